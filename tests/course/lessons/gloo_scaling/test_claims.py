"""What lesson 01 claims: each claim holds for figures that bear it out, and fails for others."""

import statistics

from pytest import mark

from course.lessons.gloo_scaling import experiment, pictures
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks.machine import Machine
from tests.course.lessons.cells import Cells

CORE, DEEPER = Cells("01_gloo_scaling"), Cells("deeper/01_gloo_scaling")
MACHINE = Machine("a CPU", 2, None, 10**9, (), "Linux", "3.11", "2.13", False)
ORIGIN = Provenance(MACHINE, "gloo", "2026-01-01", "by hand")


def record(case, pairs, seconds, *, ours=1.0, **values):
    """A made-up record; times in microseconds."""
    params = {"part": "sweep", "pairs": pairs, "placement": case}
    used = {key: value * 1e-6 for key, value in values.items()} | {"ours": ours}
    samples = [[seconds * 1e-6]] * 2 * pairs
    return Record("x", case, params, samples, Tier.MEASURED, ORIGIN, values=used, others=0.0)


def runs(together=900, waiting=2000, ours=1.0):
    one = [record("one core", 1, 250, on_cpu=120, waiting=300)]
    one += [record("one core", 8, 2000, on_cpu=120, waiting=waiting, ours=ours)]
    swept = [*one, record("together", 8, together, on_cpu=120, waiting=900)]
    return {
        "swept": swept,
        "one_cpu": one,
        "pairs": [1, 8],
        "cpus": [0, 1],
        "reconcile": lambda *a, **k: None,
    }


def ways(blocking, fused):
    return {"per_tensor": {"blocking": [blocking], "fused": [fused]}}


CLAIMS = [
    (CORE, "verdict", runs(), runs(together=1900), "more CPUs make each call shorter"),
    (CORE, "verdict", runs(), runs(waiting=310), "more pairs wait longer"),
    (CORE, "verdict", runs(), runs(ours=0.5), "hardly ever idle"),
    (DEEPER, "ladder-claims", ways(900, 20), ways(900, 300), "more than 10 times faster"),
]


@mark.parametrize(("lesson", "cell", "true", "false", "words"), CLAIMS, ids=[c[4] for c in CLAIMS])
def test_a_claim_holds_only_for_figures_that_bear_it_out(lesson, cell, true, false, words):
    lesson.hold(cell, true=true, false=false, words=words)


def test_every_claim_is_tried():
    tried = {(lesson, cell) for lesson, cell, *_ in CLAIMS}
    assert {(x, cell) for x in (CORE, DEEPER) for cell in x.claiming()} == tried


def test_the_lesson_says_of_the_recorded_run_what_it_shows():
    sweep = {(r.case, r.params["pairs"]): r for r in experiment.recorded("sweep")}
    apart, together = sweep["apart", 1], sweep["together", 1]
    assert 2.5 < apart.summary.median / together.summary.median < 5  # "about three times"
    assert 9 < sweep["together", 4].values["switches"] < 11  # "ten context switches"
    assert 1.2 < sweep["free", 1].values["ours"] < 1.3  # what a lone pair keeps busy
    one = [sweep["one core", p] for p in (1, 2, 3, 4, 6, 8)]
    per_pair = [r.summary.median / r.params["pairs"] for r in one]
    assert per_pair[0] > 1.2 * statistics.median(per_pair[1:])  # "there a lone pair's costs more"
    loop = {r.case: r.values["loop"] for r in experiment.recorded("cause")}
    assert 15 < loop["as it is"] / loop["no preemption"] < 25  # "a twentieth"
    assert 0.8 < loop["CPUs kept awake"] / loop["as it is"] < 0.9  # "by a seventh"


def test_the_asker_s_figures_per_pair():
    per_pair = [round(time / p) for p, time in pictures.per_call().items()]
    assert per_pair == [377, 234, 237, 225, 225, 245, 270, 253]
