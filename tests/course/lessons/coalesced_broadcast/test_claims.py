"""Each claim of lesson 03 fails with records in which it is false."""

import dataclasses
from types import SimpleNamespace

from course.lessons.coalesced_broadcast import evidence
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast.programs import CURVE
from course.runs import by_case
from labkit.measure.records import load
from tests.course.lessons.cells import Cells

STILL = dict.fromkeys(("gate", "reconcile", "mark"), lambda *_, **__: None)
CELLS = Cells("03_coalesced_broadcast", **STILL)
RECORDED = [r for r in load(problem.RECORDING, recorded=True) if "asks" not in r.params]
CURVE_RUN = [r for r in RECORDED if r.params["rate"] != problem.LINK and r.case in CURVE]
HOSTS = [record for record in RECORDED if record.params["rate"] == problem.LINK]


def lasting(record, *seconds):
    """The record, with three rounds of three broadcasts that take so long, or each so long."""
    times = [one for one in (seconds * 3)[:3] for _ in range(3)]
    return dataclasses.replace(record, samples=[times] * 2)


def test_a_kept_buffer_faults_little_and_calls_cost():
    def names(faults, *one_by_one):
        given = [lasting(record, 0.09) for record in CURVE_RUN]
        given[0] = lasting(given[0], *one_by_one)
        launch = lambda *_, **__: next(found)  # noqa: E731
        found = iter([[25_000] * 2, [faults] * 2])
        ms = {record.case: 1e3 * record.summary.median for record in given}
        ways = dict.fromkeys(("all in one", "all in one, kept"))
        return {"curve": given, "ms": ms, "launch": launch, "ways": ways, "broadcast": None}

    CELLS.hold("pages", true=names(3, 0.2), false=names(9_000, 0.2), words="one page in ten")
    CELLS.hold("pages", true=names(3, 0.2), false=names(3, 0.1), words="1.3 times as long")
    CELLS.hold("pages", true=names(3, 0.2), false=names(3, 0.2, 0.1, 0.2), words="1.3 times")


def test_one_bucket_takes_as_much_as_the_model_and_three_small_ones_live_at_once():
    def names(peaks):
        peaks = {"all in one": 102.0, "10 MB": 27.0} | peaks
        curve = [
            dataclasses.replace(r, values={"peak": 1e6 * peaks.get(r.case, 1.0)}) for r in CURVE_RUN
        ]
        return {"curve": curve}

    CELLS.hold(
        "memory", true=names({}), false=names({"all in one": 1.0}), words="as much as the model"
    )
    CELLS.hold("memory", true=names({}), false=names({"10 MB": 19.0}), words="three buckets")


def test_between_hosts_one_by_one_loses_to_every_bucket():
    def names(records):
        answer = SimpleNamespace(**vars(problem) | {"compare": lambda *_, **__: records})
        return {"problem": answer, "broadcast": None}

    alike = [lasting(record, 0.08) for record in HOSTS]
    slow = [lasting(HOSTS[0], 0.2), *alike[1:]]
    once = [lasting(HOSTS[0], 0.2, 0.09, 0.2), *alike[1:]]
    CELLS.hold("hosts", true=names(slow), false=names(alike), words="loses to every bucket")
    CELLS.hold("hosts", true=names(slow), false=names(once), words="loses to every bucket")


def test_the_vote_on_the_curve_follows_each_round():
    def curve(**ms):
        return [lasting(r, *(t / 1e3 for t in ms.get(r.case, [90]))) for r in CURVE_RUN]

    of = by_case(CURVE_RUN)
    assert list(of) == list(CURVE)
    best = {"one by one": [200], "all in one": [130]}
    assert evidence.fastest(curve(**best)) == ["b", "b", "b"]
    assert evidence.fastest(curve(**best | {"one by one": [200, 60, 200]})) == ["b", "a", "b"]
    assert evidence.fastest(curve(**{"one by one": [200], "all in one": [60]})) == ["c"] * 3
    assert evidence.fastest(curve()) == ["d"] * 3


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
