import threading

import pytest

from course.lessons.gradient_all_reduce import experiment as problem
from course.lessons.gradient_all_reduce import pictures
from course.lessons.gradient_all_reduce.programs import (
    CASES,
    DELAYS,
    FINAL,
    LADDER,
    THREAD,
    Setup,
    Storage,
    Workload,
    prefetched,
    vgg11,
)
from course.runs import by_case
from labkit.fabric.fabric import SWITCH
from labkit.measure.records import Tier, load
from labkit.show.alt_text import text_of

SMALL = Workload(delay=0.25, picture=32, batch=4)


def test_the_model_has_the_parameters_of_the_shapes():
    from course.comm import shapes

    workload = Workload()
    specs = shapes.vgg11(width=workload.width, classes=workload.classes)
    model = vgg11(workload)
    assert [tuple(p.shape) for p in model.parameters()] == [spec.shape for spec in specs]


def test_storage_gives_the_same_batch_again_and_prefetching_changes_nothing():
    storage = Storage(SMALL, rank=1)
    plain = list(storage.batches(5))
    ahead = list(prefetched(storage.batches(5)))
    assert len(ahead) == 5
    for (pictures_a, labels_a), (pictures_b, labels_b) in zip(plain, ahead, strict=True):
        assert pictures_a.shape == (4, 3, 32, 32)
        assert pictures_a.equal(pictures_b) and labels_a.equal(labels_b)


def test_prefetching_reads_the_next_batch_while_this_one_is_used():
    third_was_read = threading.Event()

    def source():
        yield 1
        yield 2
        third_was_read.set()
        yield 3

    batches = prefetched(source())
    assert next(batches) == 1
    assert third_was_read.wait(timeout=30)  # nobody has asked for the second yet
    assert list(batches) == [2, 3]


def test_an_error_while_prefetching_is_raised_where_the_batch_is_due():
    def broken():
        yield 1
        raise OSError("disk gone")

    batches = prefetched(broken())
    assert next(batches) == 1
    with pytest.raises(OSError, match="disk gone"):
        next(batches)


@pytest.fixture(scope="module")
def measured():
    names = [THREAD, "one flat tensor", FINAL, "DDP, input prefetched", "bfloat16, our hooks"]
    cases = {name: CASES[name] for name in names}
    return by_case(problem.measure(cases, steps=3, workload=SMALL))


@pytest.mark.timed
def test_every_way_learns_the_same(measured):
    reference = measured[THREAD].values["losses"]
    assert reference[-1] < reference[0]
    for name in ("one flat tensor", FINAL, "DDP, input prefetched"):
        assert measured[name].values["losses"][:4] == pytest.approx(reference, rel=1e-3)
    assert measured["bfloat16, our hooks"].values["losses"][:4] == pytest.approx(reference, rel=0.1)


@pytest.mark.timed
def test_the_straggler_is_seen_as_waiting(measured):
    if measured[THREAD].tier is not Tier.EMULATED:
        pytest.skip("no hosts can be made here")
    assert measured[THREAD].values["waiting"] > 0.5 * SMALL.delay
    assert problem.timeline(measured[THREAD]).straggler_delays()[SMALL.slow_rank] > SMALL.delay


@pytest.mark.timed
def test_a_ring_sends_one_and_a_half_times_the_gradients(measured):
    total = sum(p.nbytes for p in vgg11(SMALL).parameters())
    if measured[THREAD].values["sent"] is None:
        pytest.skip("the wire cannot be read here")
    for name, factor in ((THREAD, 1.5), (FINAL, 1.5), ("bfloat16, our hooks", 0.75)):
        assert measured[name].values["sent"] == pytest.approx(factor * total, rel=0.03)


def test_without_hosts_the_recorded_run_is_shown_and_says_so(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "1")
    records = problem.measure({name: CASES[name] for name in (THREAD, FINAL)})
    assert [r.case for r in records] == [THREAD, FINAL]
    assert {r.tier for r in records} == {Tier.RECORDED}
    assert "RECORDED" in capsys.readouterr().out
    (alone,) = problem.benchmark([problem.gradient_bytes()])
    assert alone.collective == "all_reduce"
    monkeypatch.setattr(problem, "WORLD_SIZES", [2])
    whole = problem.run(quick=True)
    assert {r.params["part"] for r in whole} == {"benchmark", "training", "latest"}
    assert "cap 0" not in by_case(whole)


def test_the_kept_steps_are_the_quickest_two_in_a_row():
    assert problem._calmest_pair([5.0, 1.0, 2.0, 1.5, 9.0]) == 2
    assert problem._calmest_pair([5.0]) == 1


def test_in_the_recording_the_late_rank_is_the_slow_one():
    (record,) = (r for r in load(problem.RECORDING) if r.case == THREAD)
    delays = problem.timeline(record).straggler_delays()
    assert max(delays, key=delays.get) == problem.WORKLOAD.slow_rank


class Nothing:
    """A way to average that does not: typed in a test, as a learner types one in a notebook."""

    def __init__(self, model, tracer):
        self.model = model

    def backward(self, loss):
        loss.backward()
        return True


@pytest.mark.timed
def test_a_way_of_ones_own_is_measured_like_the_others():
    (record,) = problem.measure({"nothing": Setup(Nothing)}, steps=2, workload=SMALL)
    if record.tier is Tier.EMULATED:
        assert record.case == "nothing" and record.others is not None
        assert record.values["exposed"] == 0.0


@pytest.mark.timed
def test_the_latest_of_four_is_later_than_the_latest_of_two(monkeypatch):
    monkeypatch.setattr(problem, "WORLD_SIZES", [2, 4])
    records = problem.latest()
    assert [(r.params["delays"], r.world_size) for r in records] == [
        (name, n) for name in DELAYS for n in (2, 4)
    ]
    two, four = records[-2:]
    assert four.values["lost"] > two.values["lost"] > 0
    assert four.predicted - four.values["calm"] == pytest.approx(0.060 * (1 - 0.95**4))
    assert len(text_of(pictures.latest(records))) > 30
    assert problem.table(records).rows[-1][0] == "late rarely, but much, 4 ranks"


def test_the_recording_has_every_case_and_its_pictures_have_words():
    records = load(problem.RECORDING, recorded=True)
    found = by_case(records)
    assert set(CASES) <= set(found)
    table = problem.table(records)
    columns, rows = table.columns, table.rows
    assert all(len(row) == len(columns) for row in rows)
    assert "one call per parameter" in text_of(pictures.draw(records))
    ladder = [found[name] for name in LADDER]
    for ax in (
        pictures.puzzle(),
        pictures.apart(ladder),
        pictures.exposed(ladder, title="Each rung exposes less"),
        pictures.at_scale(),
    ):
        assert len(text_of(ax)) > 30
