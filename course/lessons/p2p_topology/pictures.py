"""Lesson 04's pictures: who is linked to whom, the ways around the slow link, chunks, scale."""

import itertools
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.p2p_topology import experiment, flows
from course.lessons.p2p_topology.flows import Cluster, Path
from course.lessons.p2p_topology.topology import CLASS_NAMES, Topology, nvlinks
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.timeline import Bar, draw_lanes

_LOOKS = (  # told by colour, dash and width at once, the widest NVLinks first
    {"color": "#0072b2", "linewidth": 3.6, "linestyle": "-"},
    {"color": "#009e73", "linewidth": 2.0, "linestyle": (0, (6, 1.5))},
    {"color": "#56b4e9", "linewidth": 1.6, "linestyle": (0, (3, 1.5))},
)
_PCIE_LOOK = {"color": "#9a9a9a", "linewidth": 1.0, "linestyle": (0, (1, 2.5))}


def graph(topology: Topology, *, paths: Sequence[Path] = (), ax: Axes | None = None) -> Axes:
    """Draw the GPUs on a circle and their links, wide ones thick; paths as numbered arrows."""
    ax = plots.new_axes("Who is linked to whom", ax=ax, size=(6.0, 6.4))
    _clear(ax)
    angles = [math.pi / 2 - 2 * math.pi * gpu / topology.gpus for gpu in range(topology.gpus)]
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    pairs = list(itertools.combinations(range(topology.gpus), 2))
    kinds = {pair: topology.link(*pair) for pair in pairs}
    widths = sorted({nvlinks(kind) for kind in kinds.values()} - {0}, reverse=True)
    shown = set()
    for pair in sorted(pairs, key=lambda pair: -topology.rates.bandwidth(kinds[pair])):
        kind, count = kinds[pair], nvlinks(kinds[pair])
        look = _LOOKS[min(widths.index(count), len(_LOOKS) - 1)] if count else _PCIE_LOOK
        meaning = f"{count} NVLinks" if count else CLASS_NAMES[kind]
        label = f"{kind}: {meaning}, {topology.rates.bandwidth(kind) / 1e9:.3g} GB/s"
        ends = zip(*(places[gpu] for gpu in pair), strict=True)
        alpha = 0.25 if paths else 1.0
        ax.plot(*ends, label=None if kind in shown else label, alpha=alpha, **look)
        shown.add(kind)
    for number, way in enumerate(paths):
        _arrows(ax, places, way, number)
    for gpu, (x, y) in enumerate(places):
        on_path = any(gpu in way.gpus for way in paths)
        ax.plot(x, y, "o", markersize=25, color="#fff3c4" if on_path else "white",
                markeredgecolor=plots.INK, markeredgewidth=1.4, zorder=5)  # fmt: skip
        ax.text(x, y, str(gpu), ha="center", va="center", fontsize=11, color=plots.INK, zorder=6)
        if topology.numa[gpu] is not None:
            ax.text(1.38 * x, 1.27 * y, f"NUMA {topology.numa[gpu]}", ha="center", va="center",
                    fontsize=8, color=plots.SOFT)  # fmt: skip
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=9,
              handlelength=3.2)  # fmt: skip
    found = list(kinds.values())
    counts = ", ".join(f"{found.count(kind)} pairs by {kind}" for kind in dict.fromkeys(found))
    ways = f" Ways: {'; '.join(map(str, paths))}." if paths else ""
    plots.describe(ax, f"{topology.gpus} GPUs: {counts}.{ways}", table=_link_table(topology, paths))
    return ax


def _link_table(topology: Topology, paths: Sequence[Path]) -> Table:
    if paths:
        rows = [[" -> ".join(map(str, way.gpus)), way.rate / 1e9] for way in paths]
        return Table(["way", "GB/s"], rows)
    rows = [[src, *links] for src, links in enumerate(topology.classes)]
    return Table(["", *map(str, range(topology.gpus))], rows)


def _arrows(ax: Axes, places: Sequence[tuple[float, float]], way: Path, number: int) -> None:
    look = plots.style(number)
    arrow = {
        "arrowstyle": "-|>,head_width=0.35,head_length=0.7",
        "color": look.color,
        "linestyle": look.linestyle,
        "linewidth": 2.2,
        "shrinkA": 14,
        "shrinkB": 14,
        "connectionstyle": f"arc3,rad={0.06 + 0.03 * number}",
    }
    for src, dst in way.hops:
        ax.annotate("", places[dst], places[src], arrowprops=arrow, zorder=4)


def _clear(ax: Axes) -> None:
    ax.set_aspect("equal")
    ax.set(xlim=(-1.65, 1.65), ylim=(-1.4, 1.4), xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


def bandwidth_matrix(
    matrix: Sequence[Sequence[float]], *, title: str = "Bandwidth of a copy", ax: Axes | None = None
) -> Axes:
    """Draw the bandwidths of all ordered pairs, in bytes per second, as a heat map in GB/s."""
    ax = plots.new_axes(f"{title}, GB/s", x="to GPU", y="from GPU", ax=ax, size=(8.0, 5.2))
    names = [str(gpu) for gpu in range(len(matrix))]
    shown = [[rate / 1e9 if rate else float("nan") for rate in row] for row in matrix]
    plots.matrix(ax, shown, rows=names, columns=names, value_format="{:.3g}", log=True)
    pairs = [rate for i, row in enumerate(shown) for j, rate in enumerate(row) if i != j]
    if pairs:
        low, high = min(pairs), max(pairs)
        plots.describe(
            ax, f"{title}, all pairs: {low:.3g} to {high:.3g} GB/s, {high / low:.3g} to 1."
        )
    return ax


def gpu_matrices(direct: Sequence[Sequence[float]], staged: Sequence[Sequence[float]]) -> Figure:
    """Draw the measured bandwidths of all pairs of GPUs: by the driver's choice, and staged."""
    figure, panels = plots.new_figure(1, 2, size=(11, 4.6))
    titles = ("As the driver chooses", "Staged through the host")
    for ax, matrix, title in zip(panels, (direct, staged), titles, strict=True):
        plots.stamp(bandwidth_matrix(matrix, title=title, ax=ax), "MEASURED")
    return figure


def transfer(topology: Topology, src: int, dst: int, nbytes: int) -> Figure:
    """Draw the ways from one GPU to another, and how long each takes: link, relay, every path."""
    figure, (left, right) = plots.new_figure(1, 2, size=(11.5, 6.0))
    if src == dst:
        for ax in (left, right):
            _clear(plots.new_axes(ax=ax))
        left.set_title("Choose two different GPUs", loc="left")
        return figure
    direct = flows.path(topology, src, dst)
    every = flows.maximum_flow(topology, src, dst, nvlink_only=True)
    if sum(way.rate for way in every) <= direct.rate:
        every = flows.maximum_flow(topology, src, dst)
    graph(topology, paths=every, ax=left)
    left.set_title(f"Every way from {src} to {dst}", loc="left", fontsize=11.5, fontweight="bold")
    ways = {f"direct ({topology.link(src, dst)})": [direct]}
    ways |= {f"by {relay.gpus[1]}": [relay] for relay in flows.relays(topology, src, dst)[:1]}
    ways[f"every path ({len(every)})"] = every
    times = [nbytes / sum(way.rate for way in paths) * 1e3 for paths in ways.values()]
    plots.new_axes(f"{nbytes / 1e6:g} MB from {src} to {dst}", x="time", xunit="ms", ax=right)
    plots.bars(right, list(ways), times, label="modelled", value_format="{:.3g} ms")
    said = ", ".join(f"{way} {time:.3g} ms" for way, time in zip(ways, times, strict=True))
    plots.describe(right, f"Modelled times of {nbytes / 1e6:g} MB from GPU {src} to {dst}: {said}.")
    source = "a measured matrix" if topology.measured else topology.rates.source
    for ax in (left, right):
        plots.stamp(ax, "MODELLED", note=f"bandwidths: {source}")
    return figure


def together(milliseconds: dict[str, float]) -> Axes:
    """Draw transfers that start together as bars on a time axis, a lane for each stream."""
    said = ", ".join(f"{name} {value:.3g} ms" for name, value in milliseconds.items())
    return draw_lanes(
        list(milliseconds),
        [
            Bar(lane, "copy", 0.0, value / 1e3, label=f"{value:.3g} ms")
            for lane, value in enumerate(milliseconds.values())
        ],
        said=f"Transfers that start together: {said}.",
        title=f"They start together; the last ends after {max(milliseconds.values()):.3g} ms",
    )


def chunk_curve(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw a relayed copy's time over the size of its chunks, beside what was predicted."""
    title = "Neither the largest chunk nor the smallest"
    ax = plots.new_axes(title, x="chunk", xunit="bytes", y="time", yunit="ms", xscale="log", ax=ax)
    sizes = [record.params["chunk"] for record in records]
    medians, band = plots.spread(records, "ms")
    plots.line(ax, sizes, medians, **band, label="measured")
    plots.model_line(ax, sizes, [record.predicted * 1e3 for record in records])
    best, size = min(zip(medians, sizes, strict=True))
    ends = "; ".join(f"{medians[i]:.3g} ms in chunks of {sizes[i]} bytes" for i in (0, -1))
    plots.describe(
        ax, f"Time against chunk size: lowest at {size} bytes with {best:.3g} ms; {ends}."
    )
    return plots.stamp(ax, [records[0].tier, "MODELLED"], records[0].provenance)


def at_scale(nbytes: int, nics: Sequence[int] = (1, 2, 4, 8), *, algorithm: str = "ring") -> Axes:
    """Draw the modelled busbw of an all_reduce, by `"ring"` or `"tree"`, over 8 to 4096 GPUs.

    A curve for each number of network cards of a host.
    """
    title = f"all_reduce of {nbytes / 2**20:,.0f} MiB by {algorithm}"
    ax = plots.new_axes(title, x="GPUs", y="busbw", yunit="GB/s", xscale="log")
    for series, cards in enumerate(nics):
        clusters = [Cluster(2**power, nics=cards) for power in range(10)]
        times = [
            one.ring_time(nbytes) if algorithm == "ring" else one.tree_time(nbytes)
            for one in clusters
        ]
        busbw = [one.busbw(time, nbytes) / 1e9 for one, time in zip(clusters, times, strict=True)]
        label = f"{cards} network card{'s' if cards > 1 else ''} a host"
        plots.line(ax, [one.gpus for one in clusters], busbw, label=label, series=series)
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


def draw(records: Sequence[Record]) -> Figure:
    """Draw what `labkit run p2p-topology` measured: every way, and the chunk sizes."""
    figure, (left, right) = plots.new_figure(1, 2, size=(13.0, 5.0))
    relayed = [
        record
        for record in records
        if record.params["part"] == "ways"
        and record.params["ways"][0][-1] == experiment.FAR
        and record.nbytes == experiment.NBYTES
    ]
    ways = [record for record in records if record.params["part"] == "copies"]
    sweep = {}
    for record in relayed:
        if record.params["ways"] == experiment.RELAYED["via 5"]:
            sweep.setdefault(-record.params["chunk"], record)
        if record.params["ways"] not in [shown.params["ways"] for shown in ways]:
            ways.append(record)
    plots.ladder(ways, title="The same bytes, every way", ax=left)
    chunk_curve([sweep[chunk] for chunk in sorted(sweep)], ax=right)
    return figure
