"""Pictures of lesson 01: time against pairs, and the saturated server."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.gloo_scaling.model import queue, round_time
from course.published import load
from labkit.measure.records import Record
from labkit.show import plots

LABELS = {"one core": "all ranks on 1 CPU", "together": "pairs spread over 2 CPUs"}
"""How the cases of the sweep are called in pictures, where their names do not say it."""
MOST = 16
"""Customers of the saturated server."""


def per_call() -> dict[int, float]:
    """Return the thread's figures: pairs -> µs per call, which it does not compute."""
    figures = load("gloo_scaling")
    calls = figures["calls"].value
    return {p: 1e6 * s / calls for p, s in enumerate(figures["seconds"].value, start=1)}


def thread() -> Axes:
    """Draw the thread's own figures."""
    ax, times = _axes("Independent pairs, and yet: time per call"), per_call()
    label = "the asker: 48 logical CPUs"
    plots.line(ax, list(times), list(times.values()), label=label, kind="PUBLISHED")
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


def saturated_server(ranks: int, work: float, elsewhere: float, points: Sequence[Record]) -> Figure:
    """Draw customers who share one CPU: whose turn it is, and how long a lap takes.

    On the left the turns of `ranks` customers who each work `work` µs on the CPU and spend
    `elsewhere` µs off it; on the right the time of a lap against their number, beside measured
    points. The axes depend on the points alone, so that they stay where they are.
    """
    figure, (left, right) = plots.new_figure(1, 2, size=(11.5, 4.6))
    measured = {2 * r.params["pairs"]: 1e6 * r.summary.median for r in points}
    top = max(4000.0, 1.15 * max(measured.values()))
    rounds = 3 + int(top / max(work + elsewhere, ranks * work))
    turns = queue(ranks, work=work, elsewhere=elsewhere, rounds=rounds)
    plots.new_axes("Whose turn is it?", x="time", xunit="µs", y="rank", ax=left)
    for turn in turns:
        look = plots.style(turn.customer)
        left.barh(turn.customer, turn.end - turn.begin, left=turn.begin, color=look.color)
        left.plot([turn.ready, turn.begin], [turn.customer] * 2, color=plots.SOFT, linewidth=1.2)
    left.set(xlim=(0, top), ylim=(MOST - 0.4, -0.6))
    left.grid(visible=False)
    numbers = list(range(1, MOST + 1))
    curve = [round_time(queue(n, work=work, elsewhere=elsewhere)) for n in numbers]
    plots.new_axes("Time of a lap", x="ranks on one CPU", y="time", yunit="µs", ax=right)
    label = "your points" if points[0].tier == "MEASURED" else "recorded points"
    plots.line(right, list(measured), list(measured.values()), label=label)
    label = "the queue on the left, played out"
    plots.line(right, numbers, curve, label=label, kind="MODELLED")
    right.plot(ranks, curve[ranks - 1], "o", markersize=11, fillstyle="none", color=plots.INK)
    right.set(xlim=(0, MOST + 1), ylim=(0, top))
    idle = 1 - min(1.0, ranks * work / curve[ranks - 1])
    setting = f"{ranks} ranks, {work:g} µs on the CPU, {elsewhere:g} µs elsewhere"
    result = f"a lap takes {curve[ranks - 1]:.0f} µs, the CPU is idle {idle:.0%} of the time"
    plots.describe(left, f"Blocks: on the CPU; thin lines: waiting for it. {setting}.")
    plots.describe(right, f"{setting}: {result}.")
    plots.stamp(left, "MODELLED", note=result)
    plots.stamp(right, [points[0].tier, "MODELLED"], points[0].provenance)
    return figure


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
