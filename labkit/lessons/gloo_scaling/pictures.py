"""Pictures of lesson 1: time against pairs, where the time goes, and the ladder of fixes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.lessons.gloo_scaling.experiment import PUBLISHED, PUBLISHED_CALLS
from labkit.lessons.gloo_scaling.model import Saturation
from labkit.measure.records import Record
from labkit.show import plots


def published(*, ax: Axes | None = None) -> Axes:
    """Draw the thread's own figures."""
    ax = _axes("The question: independent pairs, growing time", ax)
    pairs = list(PUBLISHED)
    times = [seconds / PUBLISHED_CALLS * 1e6 for seconds in PUBLISHED.values()]
    plots.published(ax, pairs, times, label="the thread: 48 logical CPUs, rank 0")
    plots.stamp(ax, "PUBLISHED")
    plots.describe(ax, f"From {times[0]:.0f} µs with 1 pair to {times[-1]:.0f} µs with 8, in line.")
    return ax


def growth(
    records: Sequence[Record], *, beside_published: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw time per call against the number of pairs, a line for each placement."""
    sweep = [record for record in records if record.params.get("part") == "sweep"]
    ax = _axes("Time per call", ax)
    said = []
    for series, placement in enumerate(dict.fromkeys(record.case for record in sweep)):
        chosen = [record for record in sweep if record.case == placement]
        pairs = [record.params["pairs"] for record in chosen]
        middle, band = plots.spread(chosen, "µs")
        plots.line(ax, pairs, middle, **band, label=placement, series=series)
        said.append(f"{placement}: {middle[0]:.0f} to {middle[-1]:.0f} µs")
    if beside_published:
        times = [seconds / PUBLISHED_CALLS * 1e6 for seconds in PUBLISHED.values()]
        plots.published(ax, list(PUBLISHED), times, label="the thread (PUBLISHED)")
    plots.stamp(ax, sweep[0].tier, sweep[0].provenance)
    most = sweep[-1].params["pairs"]
    plots.describe(ax, f"Time per call from 1 to {most} pairs. {'; '.join(said)}.")
    return ax


def whereabouts(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw what one call costs a rank on CPUs, and how long its threads wait for a CPU."""
    ax = _axes("Where a rank's time goes, per call", ax, y="Time of all threads")
    pairs = [record.params["pairs"] for record in records]
    for series, (key, label) in enumerate(
        {"on_cpu": "on a CPU", "waiting": "ready, waiting for a CPU"}.items()
    ):
        values = [record.values[key] * 1e6 for record in records]
        plots.line(ax, pairs, values, label=label, series=series)
    plots.stamp(ax, records[0].tier, records[0].provenance)
    plots.describe(ax, f"CPU time and waiting time per call for {pairs} pairs ({records[0].case}).")
    return ax


def ladder(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the time per tensor of each way of summing, slowest first."""
    rungs = [record for record in records if record.params.get("part") == "ladder"]
    title = f"Summing one 10 x 10 tensor, {rungs[0].params['pairs']} pairs at once"
    return plots.ladder(rungs, title=title, x="Time per tensor", unit="µs", xscale="log", ax=ax)


def explorer(
    records: Sequence[Record], *, cores: float, cpu_per_call: float, latency: float
) -> Axes:
    """Draw the law's curve over the measured points. Times in microseconds."""
    law = Saturation(latency * 1e-6, cpu_per_call * 1e-6, cores)
    ax = growth(records)
    pairs = list(range(1, max(record.params["pairs"] for record in records) + 1))
    curve = [law.time(2 * count) * 1e6 for count in pairs]
    label = f"max({latency:.0f}, 2p/{cores:g} x {cpu_per_call:.0f}) µs (MODELLED)"
    plots.model_line(ax, pairs, curve, label=label)
    knee = f"the knee is at {law.knee / 2:.2g} pairs"
    plots.describe(ax, f"The law over the measured points; {knee}.")
    return ax


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `labkit run gloo-scaling` saves: the growth and the ladder."""
    figure, (left, right) = plots.new_figure(
        1, 2, title="Why does gloo slow down with every pair?", size=(13, 4.6)
    )
    growth(records, beside_published=True, ax=left)
    ladder(records, ax=right)
    return figure


def _axes(title: str, ax: Axes | None, *, y: str = "Time per call") -> Axes:
    return plots.new_axes(title, x="Pairs of ranks", y=y, yunit="µs", ax=ax)
