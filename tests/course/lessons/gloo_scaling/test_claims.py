"""What lesson 01 claims: each claim holds for figures that bear it out, and fails for others."""

import dataclasses
import inspect
from statistics import median

from course.lessons.gloo_scaling import evidence, experiment, pictures, programs
from tests.course.lessons.cells import Cells

CORE, DEEPER = Cells("01_gloo_scaling"), Cells("deeper/01_deeper")


def shared(factor):
    """B's recorded run, where the CPU time of a call is `factor` times as long."""
    made = []
    for record in experiment.recorded("B"):
        values = record.values | {"on_cpu": [factor * c for c in record.values["on_cpu"]]}
        made.append(dataclasses.replace(record, values=values))
    return {"shared": made}


def test_a_claim_holds_only_for_figures_that_bear_it_out():
    words = "no round is below the bound"
    CORE.hold("accounts-hold", true=shared(1), false=shared(1.3), words=words)
    fast, slow = ({"per_tensor": {"blocking": [900], "fused": [each]}} for each in (20, 300))
    words = "more than 10 times faster"
    DEEPER.hold("ladder-claims", true=fast, false=slow, words=words)


def test_the_recorded_script_is_the_one_in_the_cell():
    """But for comments, checks of types and docstrings."""
    cell = [line.split("  #")[0].strip() for line in CORE.sources["posted"].splitlines()]
    ours = inspect.getsource(programs.target) + inspect.getsource(programs.as_posted)
    for line in cell:
        if line and not line.startswith(("def ", "#", "torch.cuda")):
            assert line in ours, line


def test_the_asker_s_figures_per_pair():
    per_pair = [round(time / p) for p, time in pictures.per_call().items()]
    assert per_pair == [377, 234, 237, 225, 225, 245, 270, 253]


def said(record, *names):
    """What texts say of a record: µs of a call, or of those of its values."""
    seconds = [median(record.values[name]) for name in names] or [record.summary.median]
    return [f"{1e6 * each:,.0f}" for each in seconds]


def by_pairs(case):
    return {r.params["pairs"]: r for r in experiment.recorded("posted") if r.case == case}


def holds(lesson, cell, *words):
    missing = [word for word in words if word not in lesson.texts[cell]]
    assert not missing, f"{cell} does not say {missing}"


def test_the_script_and_the_number_of_cpus_are_as_recorded():
    free, one, two = map(by_pairs, ("not pinned", "on one CPU", "on two CPUs"))
    times = f"{free[8].seconds[0] / free[1].seconds[0]:.1f} times as long"
    holds(CORE, "reproduce-say", *said(free[1]), *said(free[4]), *said(free[8]), times)
    holds(CORE, "explain", *said(free[1]), *said(free[3]))
    asker = {p: us / 1e6 for p, us in pictures.per_call().items()}
    ours = {p: record.seconds[0] for p, record in two.items()}
    theirs, own = (evidence.cpus_of([*one.values()], times) for times in (asker, ours))
    holds(CORE, "many-means", f"{theirs:.1f} CPUs like ours", f"came out as {own:.1f}")
    holds(CORE, "reply", f"{theirs:.1f} CPUs")


def test_the_board_and_the_bound_are_as_recorded():
    alone, idle, every = map(evidence.by_round, experiment.recorded("C"))
    for cell in ("many-say", "reply"):
        for several in (idle, every):
            ratio = median(b / a for a, b in zip(alone, several, strict=True))
            holds(CORE, cell, f"{ratio:.1f} times")
    lone, four, eight, both = experiment.recorded("B")
    above = [f"{median(evidence.above_bound(record)):.2f}" for record in (lone, eight, both)]
    accounts = [*said(lone, "waiting", "on_cpu"), *said(eight, "waiting", "on_cpu")]
    holds(CORE, "accounts-mean", *accounts, *above)
    anywhere = experiment.recorded("anywhere")
    for lesson, cell in ((CORE, "explain"), (DEEPER, "cause-say")):
        holds(lesson, cell, *(said(record, "on_cpu")[0] for record in anywhere))
    holds(DEEPER, "cause-say", *(said(record, "on_cpu")[0] for record in (lone, four, eight)))


def test_the_ways_are_as_recorded():
    few, *_, most = experiment.recorded("ways")
    first, last = ({way: median(r.values[way]) for way in programs.WAYS} for r in (few, most))
    grew = [f"{last[way] / first[way]:.1f} times" for way in ("blocking", "async_op")]
    faster = f"{last['blocking'] / last['async_op']:.1f} times as fast"
    fused = f"{last['blocking'] / last['fused']:.0f} times as fast"
    holds(CORE, "ways-means", *grew, faster, fused)
    holds(CORE, "reply", faster)


def test_the_deeper_page_is_as_recorded():
    together, apart = experiment.recorded("placed")
    accounts = [*said(together, "on_cpu"), *said(apart, "on_cpu")]
    ratio = f"{apart.summary.median / together.summary.median:.1f} times"
    holds(DEEPER, "apart-say", *said(together), *said(apart), *accounts, ratio)
    as_it_is, awake, batch = experiment.recorded("cause")
    holds(DEEPER, "cause-say", *(said(r, "loop")[0] for r in (as_it_is, awake, batch)))
    used = 2 * batch.values["on_cpu"][0] / batch.summary.median
    holds(DEEPER, "knee-say", f"{used:.2f} of two", *said(batch), *said(batch, "waiting"))
