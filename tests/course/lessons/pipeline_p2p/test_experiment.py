from types import SimpleNamespace

import pytest
import torch

from course.comm.sharing import Period
from course.lessons.pipeline_p2p import experiment
from course.lessons.pipeline_p2p.experiment import Case
from course.lessons.pipeline_p2p.programs import Stage, Workload, train
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, Task, activation, programs
from course.lessons.pipeline_p2p.simulator import StepTimeline
from labkit import launch

pytestmark = pytest.mark.slow

ORDERED, TAGGED = (Case("eager 1f1b", c) for c in (Channel.ORDERED, Channel.TAGGED))
FAST = Workload(rows=8, width=16, forward=0.0, backward=0.0)


def train_alone(work, *, stages, micro_batches):
    """Compute the same gradients in one process, without a pipeline: what must come out."""
    parts = [Stage(number, work=work) for number in range(stages)]
    for k in range(micro_batches):
        x = dy = None
        for number, part in enumerate(parts):
            x = part.compute(Task("F", number, k), x)
        for number, part in reversed(list(enumerate(parts))):
            dy = part.compute(Task("B", number, k), dy)
    return [part.gradients for part in parts]


def test_every_channel_computes_the_same_gradients_to_the_last_bit():
    plans = {name: programs(build(stages=3, micro_batches=4)) for name, build in SCHEDULES.items()}

    def gradients():
        return {
            (name, channel): train(ranks, channel, FAST)[0].gradients
            for name, ranks in plans.items()
            for channel in Channel
            if channel is not Channel.BLOCKING
        }

    expected = train_alone(FAST, stages=3, micro_batches=4)
    for found, wanted in zip(launch(gradients, world_size=3), expected, strict=True):
        assert len(found) == 12 and wanted.abs().sum() > 0
        assert [case for case, got in found.items() if not torch.equal(got, wanted)] == []


def test_gradients_agree_with_autograd():
    work, k = FAST, 2
    weights = [work.weights(stage).requires_grad_() for stage in range(2)]
    loss = 0.0
    for number in range(k):
        x = work.micro_batch(number)
        for w in weights:
            x = torch.tanh(x @ w)
        loss = loss + (x * x).sum() / 2
    loss.backward()
    for ours, w in zip(train_alone(work, stages=2, micro_batches=k), weights, strict=True):
        torch.testing.assert_close(ours, w.grad)


def test_an_input_that_lies_ready_is_found_only_where_its_rank_is_idle():
    f0, f1 = Task("F", 0, 2), Task("F", 1, 2)
    earlier, moved = Task("F", 1, 9), activation(0, 2)

    def frame(busy_until):
        tasks = ((1, earlier, Period(0.0, busy_until)), (0, f0, Period(0.0, 1.0)))
        seen = StepTimeline(2, (*tasks, (1, f1, Period(4.0, 5.0))), ((moved, Period(3.0, 4.0)),))
        values = {"timeline": seen.as_lists()}
        return experiment.frame(SimpleNamespace(values=values, params={"stages": 2}))

    assert frame(0.5) == Period(1.0, 3.0)
    assert frame(2.0) == Period(2.0, 3.0)
    assert frame(3.5) is None


def test_a_slow_first_rank_makes_the_step_longer_and_changes_no_gradient():
    slow = Workload(rows=8, width=16, forward=0.01, backward=0.01, slow=4.0)
    ranks = programs(SCHEDULES["1f1b"](stages=2, micro_batches=3))

    def forward_times():
        (notes,) = train(ranks, Channel.TAGGED, slow)
        return [end - begin for task, begin, end in notes.tasks if task.kind == "F"]

    first, second = launch(forward_times, world_size=2)
    assert min(first) > 0.039 and min(second) > 0.009
    assert sorted(first)[1] > 2 * sorted(second)[1]


def test_idle_time_is_what_lies_between_a_ranks_tasks():
    tasks = (
        (1, Task("F", 1, 0), Period(1.0, 2.0)),
        (1, Task("F", 1, 1), Period(5.0, 6.0)),
        (0, Task("F", 0, 0), Period(0.0, 1.0)),
    )
    assert experiment.idle_of(StepTimeline(2, tasks, ())) == 3.0


def test_what_nobody_recorded_runs_on_loopback_where_there_are_no_links(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    lines = []
    mine = Case("eager 1f1b", Channel.ORDERED, (0, 1, 1))
    before, after = experiment.compare(ORDERED, mine, rounds=1, say=lines.append)
    assert {before.tier, after.tier} == {"MEASURED"} and "on loopback instead" in lines[0]
    assert after.case == "eager 1f1b, ordered, receives (0, 1, 1) early"


def test_without_fabric_the_recorded_run_is_told_as_such(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    lines = []
    records = experiment.run(progress=lines.append)
    assert [record.tier for record in records] == ["RECORDED"] * len(experiment.EVERY)
    assert any("(RECORDED)" in text for text in lines)
