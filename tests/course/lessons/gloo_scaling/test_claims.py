"""What lesson 01 claims: each claim holds for figures that bear it out, and fails for others."""

import dataclasses
from types import SimpleNamespace

from pytest import mark

from course.lessons.gloo_scaling import evidence, experiment, pictures
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks.machine import Machine
from tests.course.lessons.cells import Cells

CORE, DEEPER = Cells("01_gloo_scaling"), Cells("deeper/01_deeper")
MACHINE = Machine("a CPU", 2, None, 10**9, (), "Linux", "3.11", "2.13", False)
ORIGIN = Provenance(MACHINE, "gloo", "2026-01-01", "by hand")


def record(case, pairs, seconds, *, ours=1.0, **values):
    """A made-up record; times in microseconds."""
    params = {"part": "sweep", "pairs": pairs, "placement": case}
    used = {key: value * 1e-6 for key, value in values.items()} | {"ours": ours}
    samples = [[seconds * 1e-6] * 3] * 2 * pairs
    return Record("x", case, params, samples, Tier.MEASURED, ORIGIN, values=used, others=0.0)


def shared(used=1 / 16, waiting=2.0):
    """B's records, where each rank uses so much of the CPU, and 8 pairs wait so much longer."""

    def arm(pairs, placement, **values):
        made = record("calls", pairs, 900, **values)
        params = experiment.Arm(pairs, placement)._asdict() | {"part": "B", "rounds": 3}
        waiting = [1e-6 * values["waiting"]] * 3
        values = {"ours": [used] * 3, "waiting": waiting, "on_cpu": [1e-4] * 3}
        return dataclasses.replace(made, case="calls", params=params, values=values)

    return [arm(8, "one core", waiting=100 * waiting), arm(8, "together", waiting=100),
            arm(4, "one core", waiting=100)]  # fmt: skip


def asked(**options):
    """What the cell below the experiments finds: B's figures, and a board that says nothing."""
    return {
        "gate": lambda key: None,
        "board": evidence.INVESTIGATION.empty(),
        "evidence": evidence,
        "reconcile": lambda *given, **options: None,
        "experiment": SimpleNamespace(Arm=experiment.Arm, recorded=experiment.recorded),
        "shared": shared(**options),
    }


def ways(blocking, fused):
    return {"per_tensor": {"blocking": [blocking], "fused": [fused]}}


CLAIMS = [
    (CORE, "accounts-kept", asked(), asked(used=0.04), "8 pairs keep the one CPU busy"),
    (CORE, "accounts-kept", asked(), asked(waiting=1.1), "among 8 pairs than among 4"),
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
    ratio = apart.summary.median / together.summary.median
    assert round(ratio, 1) == 4.3  # as deeper 01 says
    (free,) = experiment.recorded("cause", case="no preemption")
    assert round(free.values["ours"], 2) == 1.95  # "both ranks keep 1.95 CPUs busy"
    loop = {r.case: r.values["loop"] for r in experiment.recorded("cause")}
    assert round(loop["as it is"] / loop["no preemption"]) == 18  # "an eighteenth"
    assert 0.8 < loop["CPUs kept awake"] / loop["as it is"] < 0.9  # "by a seventh"


def test_the_asker_s_figures_per_pair():
    per_pair = [round(time / p) for p, time in pictures.per_call().items()]
    assert per_pair == [377, 234, 237, 225, 225, 245, 270, 253]


def test_a_process_of_the_recorded_runs_has_eight_threads_six_of_them_gloo_s():
    threads = experiment.recorded("sweep", case="free")[1].values["threads"]
    assert len(threads) == 8
    assert sum("gloo" in name for name in threads) == 6
