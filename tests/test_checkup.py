"""The checkup names the row of jobs whose cause is known, alone and under torchrun."""

import re
import runpy
import sys

import pytest
import torch
from pytest import mark

from labkit import launch
from labkit.ranks.errors import LaunchTimeout, RankError
from tests.planted_jobs import JOBS, hosts_of
from tests.ranks.nodes import ROOT, python

SCRIPT = "examples/checkup.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
BY_DAY = ("straggler", "forty tiny buckets, 2 ranks", "one huge bucket", "nothing wrong")
NIGHTLY = [name for name in JOBS if name not in BY_DAY]

pytestmark = mark.slow


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """As where the file lies beside one's script."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


@mark.timed
@mark.parametrize("cause", [*BY_DAY, *(pytest.param(x, marks=mark.exhaustive) for x in NIGHTLY)])
def test_the_tree_ends_at_the_row_of_the_planted_cause(cause):
    row, program, ranks = JOBS[cause]
    with hosts_of(cause) as fabric:
        shown = launch(program, world_size=ranks, fabric=fabric)[0]
    told = shown[shown.index("ROW ") :].removeprefix("ROW ")
    assert told.startswith(row), shown


def names_rank_1_and_its_input(shown):
    assert "ROW 2: rank 1 is late" in shown and "through its input" in shown, shown
    assert "no span covers" not in shown and "gloo on the CPU" in shown
    if sys.platform == "linux":
        sent = re.search(r"MB sent a step, by rank: (.*)", shown)[1].split()
        nbytes = 4 * 20 * (224 * 224 + 224)
        assert [*map(float, sent)] == pytest.approx([1.5 * nbytes / 1e6] * 4, rel=0.02)


@mark.timed
def test_the_stand_in_has_a_slow_input_on_rank_1(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT])
    runpy.run_path(str(ROOT / SCRIPT), run_name="__main__")
    names_rank_1_and_its_input(capsys.readouterr().out)


@mark.timed
@mark.exhaustive
def test_it_does_so_under_torchrun(tmp_path):
    done = python(*TORCHRUN, str(ROOT / SCRIPT), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names_rank_1_and_its_input(done.stdout)


def one_rank_raises():
    from checkup import examine

    for step, _ in enumerate(examine([1, 2])):
        torch.distributed.all_reduce(torch.ones(10))
        if step == 5 and torch.distributed.get_rank() == 1:
            raise ValueError("a bad batch")


def one_rank_leaves():
    from checkup import examine

    for step, _ in enumerate(examine([1, 2])):
        torch.distributed.all_reduce(torch.ones(10))
        if step == 5 and torch.distributed.get_rank() == 1:
            break


def one_rank_has_no_data():
    from checkup import examine

    for _ in examine([1, 2] if torch.distributed.get_rank() == 0 else []):
        torch.distributed.all_reduce(torch.ones(10))


def train(batches, leave_at=None, model=None):
    from checkup import examine

    shown = []
    for step, _ in enumerate(examine(batches, model, show=shown.append)):
        torch.distributed.all_reduce(torch.ones(1000))
        if step == leave_at:
            break
    return "\n".join(shown)


def test_calls_that_no_span_covers_are_told():
    shown = launch(train, [1, 2, 3], world_size=2)[0]
    assert "rank 1: no span covers" in shown and "ROW" in shown


def test_what_cannot_be_examined_is_said_in_a_line(capfd):
    with pytest.raises(RankError, match="one rank, which waits for nobody"):
        launch(train, [1], world_size=1)
    with pytest.raises(RankError, match="the loader gave nothing more"):
        launch(train, [], world_size=2)
    assert launch(train, [1, 2], 4, world_size=2) == ["", ""]
    assert "left its loop in step 5 of 22: nothing is shown" in capfd.readouterr().err


def test_a_job_that_breaks_under_it_says_what_broke(capfd):
    with pytest.raises(ValueError, match="a bad batch"):
        launch(one_rank_raises, world_size=2)
    with pytest.raises(RankError, match="rank 1: the loader gave nothing more"):
        launch(one_rank_has_no_data, world_size=2)
    with pytest.raises(LaunchTimeout, match="rank 1: finished"):
        launch(one_rank_leaves, world_size=2, timeout=5)
    assert "rank 1 left its loop in step 6 of 22" in capfd.readouterr().err
    with pytest.raises(ValueError, match="needs 64 GPUs; this machine has"):
        launch(train, [1, 2], world_size=64, backend="nccl")
