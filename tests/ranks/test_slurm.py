"""The Slurm job of docs/cluster.md, given to Slurm itself: two nodes, both on this machine."""

import re
from pathlib import Path

from pytest import fixture, mark

from labkit.measure import records
from tests.ranks import slurm
from tests.ranks.nodes import ROOT, free_port

pytestmark = mark.skipif(
    not slurm.is_installed(),
    reason="no Slurm here: apt-get install slurmctld slurmd slurm-client munge",
)

DIES = """
import os, signal, time
import torch.distributed as dist
from labkit import launch
def program():
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
launch(program)
"""
LASTS = """
import os, time
from labkit import launch
def program():
    print(os.getpid(), flush=True)
    time.sleep(600)
launch(program)
"""


@fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@fixture
def submit(cluster, tmp_path):
    """Submit that job with other arguments for `python`, one rank per node."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    script = re.search(r"```bash\n(#!/bin/bash\n#SBATCH .*?)```", page, re.DOTALL)[1]

    def with_arguments(arguments):
        theirs = "-m course run equivalent-collectives --out records.json"
        assert theirs in script and "29500" in script
        mine = script.replace(theirs, arguments).replace("29500", str(free_port()))
        return cluster.submit(mine, tmp_path, "--ntasks-per-node=1")

    return with_arguments


def test_the_job_runs_an_experiment_and_rank_0_alone_tells(cluster, submit, tmp_path):
    number = submit("-m course run passport --quick --out records.json")
    state, told = cluster.end_of(number), (tmp_path / "err").read_text()
    assert state == "COMPLETED", told
    assert told.count("passport: ") == 1
    assert (tmp_path / "out").read_text().count("What this machine can do") == 1
    assert len(list(tmp_path.glob("*.json"))) == 1 and records.load(tmp_path / "records.json")


def test_a_rank_that_dies_ends_the_job(cluster, submit, tmp_path):
    (tmp_path / "dies.py").write_text(DIES)
    assert cluster.end_of(submit("dies.py")) == "FAILED"
    assert f"{slurm.NODES[1]}: task 1: Killed" in (tmp_path / "err").read_text()


def test_a_job_that_is_cancelled_leaves_no_rank(cluster, submit, tmp_path):
    (tmp_path / "lasts.py").write_text(LASTS)
    out = tmp_path / "out"
    number = submit("lasts.py")
    slurm.wait_until(lambda: out.exists() and out.read_text().count("\n") == 2, "two ranks")
    cluster.ask("scancel", number)
    assert cluster.end_of(number) == "CANCELLED"
    assert not any(Path("/proc", rank).exists() for rank in out.read_text().split())
