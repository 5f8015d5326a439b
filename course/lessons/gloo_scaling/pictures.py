"""Pictures of lesson 01: time against pairs, the asker's and ours."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.gloo_scaling import evidence
from course.published import load
from labkit.measure.records import Record
from labkit.show import plots

LABELS = {"one core": "all ranks on 1 CPU", "together": "pairs spread over 2 CPUs"}
"""How the cases of the sweep are called in pictures, where their names do not say it."""
ASKER = "the asker: 48 logical CPUs"


def per_call() -> dict[int, float]:
    """Return the thread's figures: pairs -> µs per call, which it does not compute."""
    figures = load("gloo_scaling")
    calls = figures["calls"].value
    return {p: 1e6 * s / calls for p, s in enumerate(figures["seconds"].value, start=1)}


def thread() -> Axes:
    """Draw the thread's own figures."""
    ax, times = _axes("Independent pairs, and yet: time per call"), per_call()
    plots.line(ax, list(times), list(times.values()), label=ASKER, kind="PUBLISHED")
    _from_zero(ax)
    plots.describe(ax, f"From {times[1]:.0f} µs with 1 pair to {times[8]:.0f} µs with 8.")
    note = "rank 0's seconds there, divided by 1024"
    return plots.stamp_published(ax, load("gloo_scaling")["seconds"], note=note)


def _growth(records: Sequence[Record], title: str, ax: Axes) -> Axes:
    """Draw time per call against the number of pairs, a line for each case."""
    _axes(title, ax)
    changes = []
    for series, case in enumerate(dict.fromkeys(record.case for record in records)):
        line = [record for record in records if record.case == case]
        middle, band = plots.spread(line, "µs")
        pairs = [record.params["pairs"] for record in line]
        plots.line(ax, pairs, middle, **band, label=LABELS.get(case, case), series=series)
        changes.append(f"{LABELS.get(case, case)}: {middle[0]:.0f} to {middle[-1]:.0f} µs")
    _from_zero(ax)
    plots.describe(ax, f"Time per call up to {pairs[-1]} pairs. {'; '.join(changes)}.")
    return plots.stamp(ax, records[0].tier, records[0].provenance, others=records[-1].others)


def on_cpus(records: Sequence[Record]) -> Figure:
    """Draw a sweep over placements: time per call, and what the first one's threads did in it.

    They are on a CPU, or ready and waiting for one, or asleep (not drawn).
    """
    figure, (left, right) = plots.new_figure(1, 2, size=(11.5, 4.4))
    _growth(records, "Time per call", left)
    first = [record for record in records if record.case == records[0].case]
    name = LABELS.get(first[0].case, first[0].case)
    _axes(f"A rank's threads in a call, {name}", right, y="Time of all threads")
    pairs = [record.params["pairs"] for record in first]
    for series, (key, label) in enumerate(
        {"on_cpu": "on a CPU", "waiting": "ready, waiting (for other programs, too)"}.items()
    ):
        values = [record.values[key] * 1e6 for record in first]
        plots.line(right, pairs, values, label=label, series=series)
    _from_zero(right)
    plots.describe(right, f"CPU time and waiting time per call for {pairs} pairs ({name}).")
    plots.stamp(right, first[0].tier, first[0].provenance)
    return figure


def posted(records: Sequence[Record], *, divided: bool = False) -> Axes:
    """Draw the posted script's time per call; `divided` by the number of pairs, if asked."""
    name = "Time per call, divided by the pairs" if divided else "Time per call"
    ax, lines = _axes("The posted script", y=name), {ASKER: per_call()}
    for record in records:
        line = lines.setdefault(record.case, {})
        line[record.params["pairs"]] = 1e6 * record.summary.median
    for series, (label, times) in enumerate(lines.items()):
        values = [us / p if divided else us for p, us in times.items()]
        kind = "PUBLISHED" if label == ASKER else records[0].tier
        plots.line(ax, list(times), values, label=label, series=series, kind=kind)
    said = [f"{label}: {line[1]:.0f} to {line[max(line)]:.0f} µs" for label, line in lines.items()]
    plots.describe(ax, f"Time per call from one pair to the most. {'; '.join(said)}.")
    tiers = [records[0].tier, "PUBLISHED"]
    return plots.stamp(ax, tiers, records[0].provenance, others=records[-1].others)


def like_ours(records: Sequence[Record]) -> Axes:
    """Draw in how many CPUs like ours the asker's calls would take so long, and our own calls."""
    ax = plots.new_axes("How many CPUs?", x="Pairs of ranks", y="CPUs like one of ours")
    seconds = {ASKER: {p: us / 1e6 for p, us in per_call().items()}}
    for record in records:
        if record.params.get("cpus") != 1:
            seconds.setdefault(record.case, {})[record.params["pairs"]] = record.seconds[0]
    said = []
    for series, (label, times) in enumerate(seconds.items()):
        cpus = evidence.like_ours(records, times)
        kind = "PUBLISHED" if label == ASKER else records[0].tier
        plots.line(ax, list(cpus), list(cpus.values()), label=label, series=series, kind=kind)
        said.append(f"{label}: {evidence.cpus_of(records, times):.1f}")
    _from_zero(ax)
    plots.describe(ax, f"In CPUs like one of ours; median from 4 pairs: {'; '.join(said)}.")
    tiers = [records[0].tier, "PUBLISHED"]
    return plots.stamp(ax, tiers, records[0].provenance, others=records[-1].others)


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `course run gloo-scaling` saves: the growth."""
    figure, (panel,) = plots.new_figure(size=(9, 4.6))
    sweep = [record for record in records if record.params["part"] == "sweep"]
    title = "Why does gloo slow down with every pair?"
    times = per_call()
    theirs = {"label": "published", "kind": "PUBLISHED"}
    plots.line(_growth(sweep, title, panel), list(times), list(times.values()), **theirs)
    return figure


def _axes(title: str, ax: Axes | None = None, *, y: str = "Time per call") -> Axes:
    return plots.new_axes(title, x="Pairs of ranks", y=y, yunit="µs", ax=ax)


def _from_zero(ax: Axes) -> None:
    """Let both axes begin at zero: whether a line points there is what the lesson asks."""
    ax.update_datalim([(0, 0)])
    ax.autoscale_view()
