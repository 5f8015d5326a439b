"""Pictures of lesson 07: busbw by cards, ways to use them, a law on trial, scale, sick pairs."""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course import gpus
from course.lessons.eighty_gpus import published
from labkit.measure.records import Record
from labkit.show import plots

_GPUS = (1, 2, 4, 8)


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw the ten hosts' bus bandwidth at 16 GiB against the GPUs per host."""
    ax = plots.new_axes(
        "Ten hosts: one collective outgrows the card, another does not",
        x="GPUs per host", y="Bus bandwidth at 16 GiB", yunit="GB/s", xscale="log", ax=ax,
    )  # fmt: skip
    told = []
    for series, name in enumerate(("all_reduce", "alltoall")):
        rows = published.pick(published.h100(), collective=name, hosts=10)
        largest = {row["gpus_per_host"]: row["busbw_gbs"] for row in rows}  # sizes ascend
        values = [largest[gpus] for gpus in _GPUS]
        plots.line(ax, _GPUS, values, label=name, series=series)
        told.append(f"{name} {', '.join(f'{value:.0f}' for value in values)} GB/s")
    ax.axhline(published.ONE_CARD.value, color=plots.INK, linewidth=1.2)
    ax.annotate("what one card carries", (1, published.ONE_CARD.value), (0, 6),
                textcoords="offset points", fontsize=8.5, color=plots.INK)  # fmt: skip
    ax.set_xticks(_GPUS, [str(gpus) for gpus in _GPUS])
    plots.stamp_published(ax, published.ONE_CARD, published.EIGHT_CARDS)
    plots.describe(ax, f"With 1, 2, 4 and 8 GPUs per host: {'; '.join(told)}.")
    return ax


def ways(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw the time of each way to use the cards beside what the cards' speed allows."""
    names = [f"{record.case}, {record.params['cards']} per server" for record in records]
    return plots.ladder(
        records, title="The same bytes, and the cards that carry them", names=names, ax=ax,
        value_format="{:.0f}",
    )  # fmt: skip


def draw(records: Sequence[Record]) -> Figure:
    """Draw the whole run: the ways to use the cards, or what one GPU showed."""
    timed = [record for record in records if record.samples]
    if timed and timed[0].experiment == gpus.NAME:
        title = f"On one GPU: {timed[0].params['device']}"
        return plots.ladder(timed, title=title, xscale="log").get_figure(root=True)
    return ways(records).get_figure(root=True)


def errors(by_name: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, title: str) -> Axes:
    """Draw predicted over measured times, a line for each name -> (sizes in bytes, ratios)."""
    ax = plots.new_axes(title, x="Size", xunit="bytes", xscale="log", y="Predicted / measured")
    for series, (name, (sizes, ratios)) in enumerate(by_name.items()):
        plots.line(ax, sizes, ratios, label=name, series=series)
    ax.axhline(1.0, color=plots.INK, linewidth=1.0)
    ax.axhspan(0.9, 1.1, color=plots.FAINT, zorder=0)
    ax.set_ylim(0, 2)
    plots.stamp(ax, "MODELLED", note=f"measured: {published.H100}")
    worst = {name: max(abs(ratio - 1) for ratio in ratios) for name, (_, ratios) in by_name.items()}
    told = "; ".join(f"{name} off by up to {value:.0%}" for name, value in worst.items())
    plots.describe(ax, f"{title}: {told}. The band is 10 %.")
    return ax


def scale(points: Mapping[int, float], models: Mapping[str, Mapping[int, float]]) -> Axes:
    """Draw Polaris' latency at 4 bytes, hosts -> microseconds, and models of it by name."""
    ax = plots.new_axes("Four bytes, 8 to 2160 GPUs", x="Hosts", xscale="log", y="Time",
                        yunit="µs", yscale="log")  # fmt: skip
    plots.published(ax, list(points), list(points.values()), label="Polaris, set-up 5")
    for series, (name, model) in enumerate(models.items()):
        plots.model_line(ax, list(model), list(model.values()), label=name, series=series)
    plots.stamp_published(ax, published.DEFAULT_IS_TCP, note="dashed: MODELLED")
    told = ", ".join(f"{value:.0f} µs on {hosts} hosts" for hosts, value in points.items())
    plots.describe(ax, f"Measured: {told}.")
    return ax


def sick(rows: Sequence[dict], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw a cluster's pairs as a matrix: each pair's bandwidth over the median pair's.

    The rows are of one collective, one size, one number of GPUs per host.
    """
    hosts = sorted({row[end] for row in rows for end in ("first", "second")})
    median = statistics.median(row["busbw_gbs"] for row in rows)
    matrix = np.full((len(hosts), len(hosts)), np.nan)
    for row in rows:
        matrix[hosts.index(row["first"]), hosts.index(row["second"])] = row["busbw_gbs"] / median
    names = [str(host) for host in hosts]
    ax = plots.new_axes(title, x="Second host", y="First host", ax=ax, size=(8, 6.5))
    look = {"value_format": "{:.1f}", "shades_from": (0.0, 1.0)}
    plots.matrix(ax, matrix, rows=names, columns=names, **look)
    slow = int((matrix < 0.8).sum())
    plots.stamp_published(ax, published.SICK_PAIRS, note="1.0 is the median pair")
    plots.describe(ax, f"{title}: {slow} of {len(rows)} pairs are below 0.8 of the median pair.")
    return ax
