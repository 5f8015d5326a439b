"""Lesson 4's pictures: the three copies, the ways around the slow link, chunks, and scale."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.lessons.p2p_topology.relay_model import relay_time
from labkit.lessons.p2p_topology.rings import Cluster
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.show import plots


def timeline(milliseconds: dict[str, float], *, tier: str, note: str = "") -> Axes:
    """Draw transfers that start together as bars on a time axis, one stream each."""
    longest = max(milliseconds.values())
    ax = plots.new_axes(
        f"They start together; the last ends after {longest:.3g} ms",
        x="time",
        xunit="ms",
        size=(8.0, 2.4),
    )
    plots.bars(
        ax,
        list(milliseconds),
        list(milliseconds.values()),
        series=range(len(milliseconds)),
        value_format="{:.3g} ms",
    )
    said = ", ".join(f"{name} {value:.3g} ms" for name, value in milliseconds.items())
    plots.describe(ax, f"Transfers that start together: {said}.")
    return plots.stamp(ax, tier, note=note)


def ladder(records: Sequence[Record], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw the time of each case with its spread, and what the model says as a mark."""
    medians, band = plots.spread(records, "ms")
    ax = plots.new_axes(
        title,
        x="time",
        xunit="ms",
        xscale="log" if max(medians) > 6 * min(medians) else "linear",
        ax=ax,
        size=(8.4, 0.5 + 0.55 * (len(records) + 2)),
    )
    plots.bars(
        ax,
        [record.case for record in records],
        medians,
        **band,
        label="measured",
    )
    predicted = [record.predicted * 1e3 for record in records]
    ax.plot(
        predicted,
        range(len(records)),
        linestyle="",
        marker="|",
        markersize=22,
        markeredgewidth=2.2,
        color=plots.style(1).color,
        label="model",
    )
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=9)
    rows = list(zip([record.case for record in records], medians, predicted, strict=True))
    said = "; ".join(f"{case}: {median:.3g} ms, model {p:.3g} ms" for case, median, p in rows)
    plots.describe(ax, f"{said}.", table=Table(["case", "measured ms", "model ms"], rows))
    return plots.stamp(ax, [records[0].tier, "MODELLED"], records[0].provenance)


def chunk_curve(
    records: Sequence[Record], *, rates: Sequence[float], alpha: float, ax: Axes | None = None
) -> Axes:
    """Draw a relayed copy's time over the size of its chunks, with the model's curve.

    Args:
        records: One for each size; `params["chunk"]` is the size.
        rates: Of the hops, bytes per second.
        alpha: What a chunk costs, in seconds.
        ax: Where to draw.
    """
    ax = plots.new_axes(
        "Neither the largest chunk nor the smallest",
        x="chunk",
        xunit="bytes",
        y="time",
        yunit="ms",
        xscale="log",
        ax=ax,
    )
    sizes = [record.params["chunk"] for record in records]
    medians, band = plots.spread(records, "ms")
    plots.line(ax, sizes, medians, **band, label="measured")
    nbytes = records[0].nbytes
    steps = [min(sizes) * (max(sizes) / min(sizes)) ** (i / 60) for i in range(61)]
    curve = [relay_time(rates, nbytes=nbytes, chunk=round(c), alpha=alpha) * 1e3 for c in steps]
    plots.model_line(ax, steps, curve, label=f"model, {alpha * 1e6:.0f} µs for each chunk")
    best, size = min(zip(medians, sizes, strict=True))
    plots.describe(
        ax,
        f"Time against chunk size: lowest at {size} bytes with {best:.3g} ms; "
        f"{medians[0]:.3g} ms in chunks of {sizes[0]} bytes, "
        f"{medians[-1]:.3g} ms in chunks of {sizes[-1]}.",
    )
    return plots.stamp(ax, [records[0].tier, "MODELLED"], records[0].provenance)


def at_scale(nbytes: int, nics: Sequence[int] = (1, 2, 4, 8), *, algorithm: str = "ring") -> Axes:
    """Draw the modelled busbw of an all_reduce over 8 to 4096 GPUs, for hosts with NICs.

    Args:
        nbytes: S.
        nics: Network cards of a host, a curve each.
        algorithm: `"ring"` or `"tree"`.
    """
    ax = plots.new_axes(
        f"all_reduce of {nbytes / 2**20:,.0f} MiB by {algorithm}",
        x="GPUs",
        y="busbw",
        yunit="GB/s",
        xscale="log",
    )
    hosts = [2**power for power in range(10)]
    for series, cards in enumerate(nics):
        clusters = [Cluster(count, nics=cards) for count in hosts]
        seconds = [
            c.ring_time(nbytes) if algorithm == "ring" else c.tree_time(nbytes) for c in clusters
        ]
        busbw = [c.busbw(t, nbytes) / 1e9 for c, t in zip(clusters, seconds, strict=True)]
        label = f"{cards} network card{'s' if cards > 1 else ''} a host"
        plots.line(ax, [c.gpus for c in clusters], busbw, label=label, series=series)
    plots.describe(
        ax,
        f"Modelled bus bandwidth of an all_reduce of {nbytes} bytes by {algorithm}, 8 to 4096 "
        "GPUs: several hosts are held to the rate of their network cards, and many to latency.",
    )
    one = Cluster(2, nics=1)
    note = (
        f"NVLink {one.nvlink_rate / 1e9:.0f} GB/s, a card {one.nic_rate / 1e9:.0f} GB/s, "
        f"step {one.alpha_nvlink * 1e6:g} µs in a host and {one.alpha_network * 1e6:g} µs between"
    )
    return plots.stamp(ax, "MODELLED", note=note)


def gpu_matrices(direct: Sequence[Sequence[float]], staged: Sequence[Sequence[float]]) -> Figure:
    """Draw the measured bandwidths of all pairs of GPUs: by the driver's choice, and staged.

    Args:
        direct: Bytes per second of each ordered pair.
        staged: The same, through pinned host memory.
    """
    figure, panels = plots.new_figure(1, 2, size=(11, 4.6))
    titles = ("GB/s, as the driver chooses", "GB/s, staged through the host")
    for ax, matrix, title in zip(panels, (direct, staged), titles, strict=True):
        names = [str(gpu) for gpu in range(len(matrix))]
        plots.new_axes(title, x="to GPU", y="from GPU", ax=ax)
        shown = [[rate / 1e9 for rate in row] for row in matrix]
        plots.matrix(ax, shown, rows=names, columns=names, log=True)
        plots.describe(ax, f"{title}: {len(names)} x {len(names)} pairs, measured.")
        plots.stamp(ax, "MEASURED")
    return figure


def draw(records: Sequence[Record]) -> Figure:
    """Draw what `labkit run p2p-topology` measured: every way, and the chunk sizes."""
    figure, (left, right) = plots.new_figure(1, 2, size=(13.0, 5.0))
    sweep = [record for record in records if record.case.endswith(" B")]
    ways = [
        record
        for record in records
        if record.case.startswith(("0 -> ", "via ", "every "))
        and " in " not in record.case
        and record not in sweep
    ]
    ladder(ways, title="The same bytes, every way", ax=left)
    plots.new_axes(
        "Neither the largest chunk nor the smallest",
        x="chunk",
        xunit="bytes",
        y="time",
        yunit="ms",
        xscale="log",
        ax=right,
    )
    plots.line(
        right,
        [record.params["chunk"] for record in sweep],
        [record.summary.median * 1e3 for record in sweep],
        label="measured",
    )
    plots.model_line(
        right,
        [record.params["chunk"] for record in sweep],
        [record.predicted * 1e3 for record in sweep],
    )
    plots.stamp(right, [sweep[0].tier, "MODELLED"], sweep[0].provenance)
    return figure
