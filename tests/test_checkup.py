"""The checkup names the row of jobs whose cause is known, alone and under torchrun."""

import itertools
import re
import runpy
import statistics
import sys
import time

import pytest
import torch
from pytest import mark
from torch.nn.parallel import DistributedDataParallel

from labkit import Tracer, launch
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


def train(batches, leave_at=None):
    from checkup import examine

    shown = []
    for step, _ in enumerate(examine(batches, show=shown.append)):
        torch.distributed.all_reduce(torch.ones(1000))
        if step == leave_at:
            break
    return "\n".join(shown)


def one_rank_leaves():
    train([1, 2], leave_at=5 if torch.distributed.get_rank() == 1 else None)


def one_rank_has_no_data():
    train([1, 2] if torch.distributed.get_rank() == 0 else [])


def test_calls_that_no_span_covers_are_told():
    shown = launch(train, [1, 2, 3], world_size=2)[0]
    assert "rank 1: no span covers" in shown and "ROW" in shown
    assert "a step of the job" in shown and "hook" not in shown, "this job has none"


class SlowHook(Tracer):
    def ddp_hook(self, group, bucket):
        time.sleep(0.1)
        return super().ddp_hook(group, bucket)


def under_a_slow_hook():
    from checkup import examine

    shown, model = [], DistributedDataParallel(torch.nn.Linear(10, 10))
    batches = itertools.repeat(torch.ones(1, 10))
    for batch in examine(batches, model, tracer=SlowHook.aligned(), show=shown.append):
        time.sleep(0.02)
        model(batch).sum().backward()
    return "\n".join(shown)


@mark.timed
def test_the_step_is_told_as_it_is_without_the_hook():
    shown = launch(under_a_slow_hook, world_size=2)[0]
    told = re.search(r"a step of the job: ([\d.]+) ms, without DDP's hook; ([\d.]+) through", shown)
    step, seen = told.groups()
    assert 20 < float(step) < 100 < 120 < float(seen), shown
    assert "ROW none: no network will help this job. Profile the computing" in shown


def steps_of_nothing():
    from checkup import PLAIN, WARM_UP, examine

    begins = [time.perf_counter() for _ in examine(itertools.repeat(None), show=str)]
    took = [after - before for before, after in itertools.pairwise(begins)]
    return statistics.median(took[WARM_UP : WARM_UP + PLAIN - 1])


@mark.timed
def test_a_step_that_is_timed_costs_less_than_two_percent_of_the_shortest_planted_one():
    shortest = 0.03
    assert max(launch(steps_of_nothing, world_size=2)) < 0.02 * shortest


def test_what_cannot_be_examined_is_said_in_a_line(capfd):
    with pytest.raises(RankError, match="one rank, which waits for nobody"):
        launch(train, [1], world_size=1)
    with pytest.raises(RankError, match="the loader gave nothing more"):
        launch(train, [], world_size=2)
    assert launch(train, [1, 2], 4, world_size=2) == ["", ""]
    assert "left its loop in step 5 of 25: nothing is shown" in capfd.readouterr().err


def test_a_job_that_breaks_under_it_says_what_broke(capfd):
    with pytest.raises(ValueError, match="a bad batch"):
        launch(one_rank_raises, world_size=2)
    with pytest.raises(RankError, match="rank 1: the loader gave nothing more"):
        launch(one_rank_has_no_data, world_size=2)
    with pytest.raises(LaunchTimeout, match="rank 1: finished"):
        launch(one_rank_leaves, world_size=2, timeout=3)
    assert "rank 1 left its loop in step 6 of 25" in capfd.readouterr().err
