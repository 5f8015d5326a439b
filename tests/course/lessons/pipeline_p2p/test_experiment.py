from dataclasses import replace

import pytest
import torch

from course.lessons.pipeline_p2p import experiment
from course.lessons.pipeline_p2p.exchange import in_order
from course.lessons.pipeline_p2p.programs import Stage, Workload, train
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, Task, programs
from labkit import launch
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.measure.records import load

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


@pytest.fixture(scope="module")
def fabric():
    try:
        with Fabric.star(hosts=4, rate=experiment.PIPELINE_RATE) as fabric:
            yield fabric
    except FabricUnavailable as reason:
        pytest.skip(str(reason))


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


def test_receives_one_task_earlier_bring_eager_1f1b_close_to_no_order_at_all():
    def seconds(channel, ahead):
        return experiment.modelled("eager 1f1b", channel, ahead, leg=0.00824).seconds

    late, early, free = (
        seconds(Channel.ORDERED, 0), seconds(Channel.ORDERED, 1), seconds(Channel.TAGGED, 0),
    )  # fmt: skip
    assert late == pytest.approx(1.155, abs=0.001)
    assert early == pytest.approx(0.489, abs=0.001)
    assert free == pytest.approx(0.462, abs=0.001)


@pytest.mark.timed
def test_a_queue_typed_by_the_learner_carries_the_pipeline(fabric):
    del fabric

    def mine(batches, made, room, done):
        assert batches
        in_order(batches, made, room, done)

    early, late = experiment.pipelines(
        [("eager 1f1b", Channel.ORDERED, 1), ("eager 1f1b", Channel.ORDERED, 0)],
        steps=1,
        queue=mine,
    )
    assert early.case == "eager 1f1b, ordered, receives 1 early"
    assert early.summary.median < 0.6 * late.summary.median
    assert early.values["gradients"] == late.values["gradients"]


@pytest.mark.timed
def test_order_costs_gpipe_what_the_model_says(fabric):
    del fabric  # only: are there fabrics here
    ordered, tagged = experiment.pipelines(
        [("gpipe", Channel.ORDERED, 0), ("gpipe", Channel.TAGGED, 0)], steps=1
    )
    cost = ordered.summary.median / tagged.summary.median
    assert cost > 1.25
    assert cost == pytest.approx(ordered.predicted / tagged.predicted, rel=0.25)
    assert ordered.values["gradients"] == tagged.values["gradients"]
    seen = experiment.step(ordered)
    assert len(seen.tasks) == 64
    assert len(seen.transfers) == 48
    arrivals = {transfer: at.end for transfer, at in seen.transfers}
    begins = {task: at.begin for _, task, at in seen.tasks}
    assert all(begins[transfer.use] >= end for transfer, end in arrivals.items())


def test_legs_of_two_destinations_by_hand():
    def model_of(mode):
        return experiment.modelled_copies(mode, each=5, leg=1.0)

    assert model_of("interleaved") == 20  # 10 copies of 2 legs
    assert model_of("overlapped") == 15  # 5 times: 2 for both first legs, 1 for both second ones
    assert model_of("in turn") == 11  # the source is never idle; one last second leg


@pytest.mark.timed
def test_two_destinations_in_turn_beat_the_thread(fabric):
    del fabric
    seconds = {
        record.params["mode"]: record.summary.median
        for record in experiment.destinations(repeats=1)
    }
    assert seconds["overlapped"] < 0.9 * seconds["interleaved"]
    assert seconds["in turn"] < 0.93 * seconds["overlapped"]


def test_a_disturbed_run_is_repeated_and_the_calmest_kept(monkeypatch):
    one, *_ = load(experiment.RECORDING)
    calm, some, much = (replace(one, others=others) for others in (0.1, 0.6, 0.9))
    monkeypatch.setattr(experiment, "watched", lambda measure, say: measure())
    for runs, kept in (([much, some, much], some), ([much, calm], calm), ([calm], calm)):
        left, said = iter(runs), []
        assert experiment._settled(lambda left=left: next(left), said.append) is kept
        assert len(said) == len(runs) - 1


def test_without_fabric_the_recorded_run_is_told_as_such(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    said = []
    records = experiment.run(progress=said.append)
    assert [record.tier for record in records].count("RECORDED") == 18
    assert [r.case for r in records if r.tier == "MEASURED"] == [
        "computing beside messages, loopback"  # which is everywhere
    ]
    assert any("(RECORDED)" in text for text in said)
    table = experiment.table(records)
    columns, rows = table.columns, table.rows
    assert columns[:4] == ["schedule", "channel", "receives early", "predicted ms"]
    assert len(rows) == 17
