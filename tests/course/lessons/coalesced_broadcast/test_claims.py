"""Each claim of lesson 03 fails with records in which it is false."""

import dataclasses
from types import SimpleNamespace

from course.lessons.coalesced_broadcast import evidence
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast.programs import CURVE
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


def answering(records):
    """What cells find as the lesson's experiment: it answers with these records."""
    answer = SimpleNamespace(**vars(problem) | {"compare": lambda *_, **__: records})
    return {"problem": answer, "broadcast": None}


def test_a_kept_buffer_faults_little():
    def names(faults, new=25_000):
        found = iter([[new] * 2, [faults] * 2])
        return {"curve": CURVE_RUN, "launch": lambda *_, **__: next(found), "broadcast": None}

    for false in (names(9_000), names(40, new=60)):  # huge pages: both are few
        CELLS.hold("pages", true=names(3), false=false, words="a tenth as often")


def test_calls_cost():
    def names(*many):
        return answering([lasting(CURVE_RUN[0], *many), *rest]) | {"pages": 25_000}

    rest = [lasting(CURVE_RUN[0], seconds) for seconds in (0.05, 0.09, 0.13)]
    for false in (names(0.07), names(0.13, 0.07, 0.13)):
        CELLS.hold("prices", true=names(0.13), false=false, words="1.5 times as long as 2")


def test_one_bucket_takes_as_much_as_the_model_and_three_small_ones_live_at_once():
    def names(whole=102.0, ten=27.0):
        peaks = {"all in one": whole, "10 MB": ten}
        curve = [
            dataclasses.replace(r, values={"peak": 1e6 * peaks.get(r.case, 1.0)}) for r in CURVE_RUN
        ]
        return {"curve": curve, "of_cap": {CURVE[r.case]["cap"]: r for r in curve}}

    CELLS.hold("memory", true=names(), false=names(whole=1.0), words="as much as the model")
    CELLS.hold("memory", true=names(), false=names(ten=19.0), words="three buckets")


def test_between_hosts_one_by_one_loses_to_every_bucket():
    alike = [lasting(record, 0.08) for record in HOSTS]
    slow = [lasting(HOSTS[0], 0.2), *alike[1:]]
    once = [lasting(HOSTS[0], 0.2, 0.09, 0.2), *alike[1:]]
    for false in (alike, once):
        true = answering(slow)
        CELLS.hold("hosts", true=true, false=answering(false), words="loses to every bucket")


def test_the_vote_on_the_curve_follows_each_round():
    def curve(**ms):
        return [lasting(r, *(t / 1e3 for t in ms.get(r.case, [90]))) for r in CURVE_RUN]

    best = {"one by one": [200], "all in one": [130]}
    assert evidence.fastest(curve(**best)) == ["b", "b", "b"]
    assert evidence.fastest(curve(**best | {"one by one": [200, 60, 200]})) == ["b", "a", "b"]
    assert evidence.fastest(curve(**{"one by one": [200], "all in one": [60]})) == ["c"] * 3
    assert evidence.fastest(curve()) == ["d"] * 3


def test_an_arm_may_be_added_and_renamed():
    """The vote and the bets go by what an arm does, not by its name."""
    renamed = {"25 MB": "a quarter", "all in one": "everything"}
    source = CELLS.sources["curve"]
    for old, new in renamed.items():
        source = source.replace(f'"{old}": {{', f'"{new}": {{')
    source = source.replace('"1 MB": {"cap": MB}', '"50 MB": {"cap": 50 * MB}')
    cases = ["one by one", "50 MB", "10 MB", "a quarter", "everything", "flat state"]
    made = [dataclasses.replace(CURVE_RUN[0], case=case) for case in cases]
    names = CELLS.imported | answering([lasting(r, 0.1) for r in made])
    votes, marks = [], []
    names["reconcile"] = lambda key, letter, **_: votes.append(letter)
    names["mark"] = lambda ax, key, at: marks.append([place for _, place in at.values()])
    exec(source, names)
    assert (votes, marks) == (["d"], [[0, 2, 4]]) and None in names["ms"]


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
