"""Each claim of lesson 03 fails with records in which it is false."""

import dataclasses
from types import SimpleNamespace

from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast.programs import CURVE, PAIRS
from labkit.measure.records import load
from tests.course.lessons.cells import Cells

CELLS = Cells("03_coalesced_broadcast", gate=lambda key: None, reconcile=lambda *_, **__: None)
RECORDED = load(problem.RECORDING, recorded=True)
LOOPBACK = {record.case: record for record in RECORDED if record.params["rate"] != problem.LINK}
HOSTS = [record for record in RECORDED if record.params["rate"] == problem.LINK]
CURVE_RUN = [LOOPBACK[name] for name in CURVE]


def lasting(record, seconds, **values):
    samples = [[seconds] * 3] * 2
    return dataclasses.replace(record, samples=samples, values=record.values | values)


def names(records, **more):
    answer = SimpleNamespace(**vars(problem) | {"compare": lambda *_, **__: records})
    ms = {"25 MB": 60.0, "all in one": 150.0}
    given = {"problem": answer, "curve": CURVE_RUN, "ms": ms, "best": "25 MB", "broadcast": None}
    return given | more


def test_without_faults_one_bucket_is_faster_and_as_fast_as_small_ones():
    new, kept = (LOOPBACK[name] for name in PAIRS["page faults"])
    true = names([lasting(new, 0.15), lasting(kept, 0.06)])
    slow = names([lasting(new, 0.15), lasting(kept, 0.14)])
    CELLS.hold("why", true=true, false=slow, words="without faults one bucket is faster")
    CELLS.hold("why", true=true, false=true | {"ms": {"25 MB": 30.0, "all in one": 150.0}},
               words="about as long")  # fmt: skip


def test_one_bucket_takes_as_much_as_the_model_and_three_small_ones_live_at_once():
    peak = {"all in one": 102.0, "10 MB": 27.0}
    true = names([], peak=peak)
    thin, two = (names([], peak=peak | other) for other in ({"all in one": 1.0}, {"10 MB": 19.0}))
    CELLS.hold("memory-why", true=true, false=thin, words="as much as the model")
    CELLS.hold("memory-why", true=true, false=two, words="a third is there")


def test_between_hosts_one_by_one_loses_to_every_bucket():
    alike = [lasting(record, 0.08) for record in HOSTS]
    slow = [lasting(HOSTS[0], 0.2), *alike[1:]]
    CELLS.hold("hosts", true=names(slow), false=names(alike), words="loses to every bucket")


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
