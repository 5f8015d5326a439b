"""What lesson 01 claims: each claim holds for figures that bear it out, and fails for others."""

import dataclasses
import inspect
from statistics import median

from course.catalogue import ROOT
from course.lessons.gloo_scaling import evidence, experiment, pictures, programs
from labkit.measure.records import load
from tests.course.lessons.cells import Cells

CORE, DEEPER = Cells("01_gloo_scaling"), Cells("deeper/01_deeper")


def shared(factor):
    """B's recorded run, where the CPU time of a call is `factor` times as long."""
    records = []
    for record in experiment.recorded("B"):
        values = record.values | {"on_cpu": [factor * c for c in record.values["on_cpu"]]}
        records.append(dataclasses.replace(record, values=values))
    return {"shared": records}


def test_a_claim_holds_only_for_figures_that_bear_it_out():
    CORE.hold("accounts-hold", true=shared(1), false=shared(1.3), words="no round is below the")
    fast, slow = ({"per_tensor": {"blocking": [900], "fused": [each]}} for each in (20, 300))
    DEEPER.hold("ladder-claims", true=fast, false=slow, words="more than 10 times faster")


def test_the_recorded_script_is_the_one_in_the_cell():
    """But for comments, checks of types and docstrings."""
    cell = [line.split("  #")[0].strip() for line in CORE.sources["posted"].splitlines()]
    ours = inspect.getsource(programs.target) + inspect.getsource(programs.as_posted)
    for line in cell:
        if line and not line.startswith(("def ", "#", "torch.cuda")):
            assert line in ours, line


def test_the_asker_s_figures_per_pair():
    per_pair = [round(1e6 * time / p) for p, time in pictures.asker().items()]
    assert per_pair == [377, 234, 237, 225, 225, 245, 270, 253]


def said(record, *names):
    """What texts say of a record: µs of a call, or of those of its values."""
    seconds = [median(record.values[name]) for name in names] or [record.summary.median]
    return [f"{1e6 * each:,.0f}" for each in seconds]


def posted(case, number=None):
    """The recorded seconds per call of the posted script in a place, by pairs."""
    records = [r for r in experiment.recorded("posted") if r.case == case]
    return evidence.times(records, records[0].params.get("cpus"), number)


def holds(lesson, cell, *words):
    missing = [word for word in words if word not in lesson.texts[cell]]
    assert not missing, f"{cell} does not say {missing}"


def test_the_script_and_the_number_of_cpus_are_as_recorded():
    asker, places = pictures.asker(), ("on one CPU", "on two CPUs", "a quota of one CPU")
    one, two, limited = map(posted, places)
    for times in (one, two, limited):
        holds(CORE, "many-means", *(f"{1e6 * times[p]:,.0f}" for p in (1, 2, 4, 6, 8)))
    cpus = [f"{evidence.cpus_of(one, seconds):.2f}" for seconds in (asker, two, limited)]
    holds(CORE, "many-means", *cpus)
    rounds = [[posted(place, number) for place in places[:2]] for number in range(3)]
    theirs = [f"{evidence.cpus_of(one, asker):.1f}" for one, _ in rounds]
    own = sorted(f"{evidence.cpus_of(one, two):.1f}" for one, two in rounds)
    holds(CORE, "many-means", "{}, {} and {}".format(*theirs), f"{own[0]} to {own[-1]}")
    in_rounds = (
        f"({min(theirs)} to {max(theirs)} in three rounds, in which my own two CPUs come out"
    )
    about = evidence.cpus_of(one, asker)
    holds(CORE, "reply", f"{about:.1f} CPUs like mine {in_rounds} as {own[0]} to {own[-1]})")
    eight = sorted(1e3 * posted("a quota of one CPU", number)[8] for number in range(3))
    least, most = f"{eight[0]:.1f}", f"{eight[-1]:.1f}"
    holds(CORE, "reply", f"{1e3 * limited[8]:.1f} ms ({least} to {most} in three rounds")


def test_the_board_is_as_recorded():
    alone, idle, every = map(evidence.by_round, experiment.recorded("C"))
    for several in (idle, every):
        ratio = median(b / a for a, b in zip(alone, several, strict=True))
        holds(CORE, "reply", f"{ratio:.1f} times")
    most = experiment.recorded("ways")[-1]
    switches = [median(most.values[f"{way}, switches"]) for way in ("blocking", "async_op")]
    holds(CORE, "reply", *(f"{each:.1f}" for each in switches))


def test_nccl_queues_as_recorded():
    records = load(ROOT / "course/your_gpus/recording.json", recorded=True, experiment="calls")
    ms = {r.case: f"{1e3 * median(r.seconds):.2f}" for r in records}
    for where in ("", ", on one CPU"):
        pairs = "1 pair", "2 pairs", "4 pairs"
        holds(CORE, "reply", *(ms[f"{count}, queued{where}"] for count in pairs))


def test_the_bound_is_met_nearly():
    ratios = [x for record in experiment.recorded("B") for x in evidence.above_bound(record)]
    assert all(0.95 < ratio < 1.25 for ratio in ratios)


def test_the_deeper_page_is_as_recorded():
    together, apart = experiment.recorded("placed")
    accounts = [*said(together, "on_cpu"), *said(apart, "on_cpu")]
    loops = [*said(together, "loop"), *said(apart, "loop")]
    holds(DEEPER, "knee-say", *said(together), *said(apart), *accounts, *loops)
    as_it_is, awake, batch = experiment.recorded("cause")
    holds(DEEPER, "knee-say", *(said(r, "loop")[0] for r in (as_it_is, awake, batch)))
    holds(DEEPER, "cause-say", *(said(r, "on_cpu")[0] for r in experiment.recorded("anywhere")))
    used = 2 * batch.values["on_cpu"][0] / batch.summary.median
    holds(DEEPER, "knee-say", f"{used:.1f} of two", *said(batch), *said(batch, "waiting"))
