"""Pipelines on real ranks: gradients, what blocks what, what never ends, whose error is told."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from course.comm.sharing import Period
from course.lessons.pipeline_p2p import experiment, pictures
from course.lessons.pipeline_p2p.experiment import Case
from course.lessons.pipeline_p2p.programs import Stage, Workload, train, work_in_line
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, Task, activation, programs
from course.lessons.pipeline_p2p.simulator import StepTimeline
from labkit import LaunchTimeout, launch
from tests.course.lessons.refusals import patiently

pytestmark = pytest.mark.slow

ORDERED = Case("eager 1f1b", Channel.ORDERED)
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
    runs = [
        (programs(build(stages=3, micro_batches=4)), channel, FAST)
        for build in SCHEDULES.values()
        for channel in Channel
        if channel is not Channel.BLOCKING
    ]
    expected = train_alone(FAST, stages=3, micro_batches=4)
    for steps, wanted in zip(launch(train, runs, world_size=3), expected, strict=True):
        assert len(steps) == 18 and wanted.abs().sum() > 0
        assert all(torch.equal(notes.gradients, wanted) for notes in steps)


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
        kept = StepTimeline.from_lists(seen.as_lists(), world_size=2)
        return experiment.frame(kept)

    assert frame(0.5) == Period(1.0, 3.0)
    assert frame(2.0) == Period(2.0, 3.0)
    assert frame(3.5) is None


def test_without_links_it_is_the_recorded_run_or_one_on_loopback(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    lines = []
    records = experiment.run(progress=lines.append)
    assert {record.tier for record in records} == {"RECORDED"} and "(RECORDED)" in lines[-1]
    mine = Case("eager 1f1b", Channel.ORDERED, (0, 1, 1))
    before, after = experiment.pipelines(ORDERED, mine, rounds=1, say=lines.append)
    assert {before.tier, after.tier} == {"MEASURED"} and "on loopback instead" in lines[-1]
    assert after.case == "eager 1f1b, ordered, receives (0, 1, 1) early"


def test_a_task_that_takes_no_time_is_refused():
    with pytest.raises(ValueError, match=r"anything above -0\.025 is possible"):
        replace(experiment.MYSTERY, longer_b0=-0.025)


@pytest.mark.timed
def test_a_late_message_blocks_what_stands_behind_it_but_nothing_in_another_queue():
    work = Workload(rows=8, width=16)
    plan = programs(experiment.PLAN)
    channels = Channel.ORDERED, Channel.WAITING_PUT, Channel.TAGGED, Channel.PUT
    runs = [(plan, channel, work) for channel in channels]
    in_queue, by_waiting_put, by_tag, by_put = launch(train, runs, world_size=3)[0]
    for held_up in (in_queue, by_waiting_put):  # 488 ms, by the model
        for free in (by_tag, by_put):  # 300 ms
            assert free.seconds < 0.8 * held_up.seconds


def test_two_orders_in_one_queue_deadlock_and_the_case_file_says_so():
    def judge(limit):
        with pytest.raises(LaunchTimeout) as caught:
            runs = [(programs(experiment.PLAN, ahead=2), Channel.ORDERED, FAST)]
            launch(train, runs, world_size=3, timeout=limit)
        assert caught.value.case.running == [0, 1, 2]

    patiently(judge)


def breaks(entries, slot, **given):
    raise KeyError(f"of rank {dist.get_rank()}")


@pytest.mark.parametrize("channel", [Channel.ORDERED, Channel.TAGGED])
def test_an_error_in_a_learners_queue_is_what_is_told(channel):
    with pytest.raises(KeyError, match="of rank"):
        launch(train, [(programs(experiment.PLAN), channel, FAST)], breaks, world_size=3)


def one_micro_batch_after_the_other(transfers, when):
    """An order that closes a circle: B0 to rank 0 stands before the B0 that it is made of."""
    return sorted(transfers, key=lambda transfer: transfer.task.micro_batch)


ARMS = {
    "yours": {"channel": Channel.ORDERED, "order": one_micro_batch_after_the_other},
    "tags": {"channel": Channel.TAGGED},
}


def test_an_arm_that_never_ends_is_named_and_runs_in_our_order(monkeypatch, capsys):
    monkeypatch.setattr(experiment, "pipelines", lambda *cases, in_line: cases)
    assert list(experiment.never_ending(ARMS)) == ["yours"]
    by_schedule = experiment.every_schedule(ARMS, in_line=work_in_line)
    assert {cases["yours"].order for cases in by_schedule.values()} == {experiment.by_begin}
    assert by_schedule["gpipe"]["tags"] == Case("gpipe", Channel.TAGGED)
    assert capsys.readouterr().out.startswith("yours never ends, so our order runs")


def test_arms_are_simulated_and_a_circle_is_drawn_and_told():
    table, who_waits, _ = pictures.modelled(ARMS, leg=0.0075, watched="gpipe")
    assert {row[1] for row in table.rows} == {"never ends"} and "waits" in who_waits
    both = {"queue": {"channel": Channel.ORDERED}, "tags": ARMS["tags"]}
    table, who_waits, figure = pictures.modelled(both, leg=0.0075, watched="gpipe")
    assert table.rows[0] == ["GPipe", 480, 330] and not who_waits
    assert len(figure.axes) == 2, "GPipe in two arms"
