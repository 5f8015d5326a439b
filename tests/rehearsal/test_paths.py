"""What a machine with several GPUs would run, run in a played box: rehearsed, not run on GPUs."""

import json
import re
from pathlib import Path

import pytest

from course.catalogue import ROOT
from tests.rehearsal import boxed

pytestmark = pytest.mark.slow
by_night = pytest.mark.exhaustive
GPUS = [3, *(pytest.param(n, marks=by_night) for n in (1, 2, 4, 6, 8))]

BARE = """
import torch.distributed as dist
from course.place import launch
from labkit import device
def program():
    return str(device()), dist.get_backend()
print(set(launch(program, world_size=2)))
"""


@pytest.mark.parametrize("gpus", [2, pytest.param(8, marks=by_night)])
def test_a_lessons_launch_stays_on_the_cpu_and_starts_no_cuda(gpus, tmp_path):
    log = tmp_path / "log"
    done = boxed.run(gpus, BARE, LOG=log, START=5)
    assert done.stdout.strip() == "{('cpu', 'gloo')}", done.stderr
    assert not re.search("^cuda", log.read_text(), re.MULTILINE)


def test_all_lessons_launch_so():
    for path in [*ROOT.glob("notebooks/0*.ipynb"), *ROOT.glob("notebooks/deeper/*.ipynb")]:
        cells = json.loads(path.read_text())["cells"]
        source = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        if re.search(r"(?<![.\w])launch\(", source):
            assert re.search(r"from course\.place import .*\blaunch\b", source), path.name
            assert not re.search(r"from labkit import .*\blaunch\b", source), path.name


PAGE = """
import sys
from course import your_gpus
from course.__main__ import main
from course.your_gpus import Sizes
tiny = Sizes(copied=4096, message=4096, summed=65536, width=1 / 64, rounds=1, calls=5)
Sizes.on_gpus = classmethod(lambda cls, room, ranks: tiny)
sys.exit(main(["gpus", "--out", "page.html"]))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gpus", GPUS)
def test_the_page_of_your_gpus_has_every_row(gpus, tmp_path):
    source = PAGE.replace('"page.html"', repr(str(tmp_path / "page.html")))
    done = boxed.run(gpus, source, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found: {gpus} x played GPU" in done.stderr and "failed" not in done.stdout
    if gpus == 1:
        assert "one GPU; with NCCL 2.30 ranks can share it" in done.stderr
        return
    assert "MEASURED" in done.stdout and "Nobody" not in done.stdout
    records = json.loads((tmp_path / "page.json").read_text())["records"]
    assert {record["provenance"]["backend"] for record in records} == {"nccl"}
    pairs = [record for record in records if re.fullmatch(r"\d to \d", record["case"])]
    assert len(pairs) == gpus * (gpus - 1)


FAILS = """
import time, torch, torch.distributed as dist
from labkit import device, launch
def bad():
    dist.all_reduce(torch.ones(1, device=device()))
    if dist.get_rank() == 1:
        raise KeyError("the real reason")
    dist.all_reduce(torch.ones(1, device=device()))
launch(bad, timeout=20)
"""


def test_under_torchrun_a_rank_that_fails_says_so_before_its_group_is_gone(tmp_path):
    done = boxed.run(2, FAILS, ranks=2, FOLDER=tmp_path, WAIT=8)
    told = done.stdout + done.stderr
    assert done.returncode != 0 and "KeyError: 'the real reason'" in told, told[-3000:]
    assert "labkit: on rank 1 of 2:" in told and "rank 0 of 2 was late" not in told


SLURM = """
import torch.distributed as dist
from labkit import launch
print(set(launch(lambda: dist.get_backend_config(), world_size=2)))
"""


@pytest.mark.parametrize("gpus, says", [(2, "cuda:nccl"), (1, "gloo, on the CPU")])
def test_variables_without_local_world_size_take_each_hosts_gpus(gpus, says, tmp_path):
    """As a script of Slurm's sets them: which ranks share a host the ranks tell each other."""
    unset = "import os; os.environ.pop('LOCAL_WORLD_SIZE', None)\n"
    done = boxed.run(gpus, unset + SLURM, ranks=2, FOLDER=tmp_path)
    assert says in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_box_is_for_tests_alone():
    sources = [*ROOT.glob("labkit/**/*.py"), *ROOT.glob("course/**/*.py")]
    assert not [path for path in sources if "BOX_" in Path(path).read_text()]
