"""Lesson 04's pictures: who is linked to whom, the router, chunks."""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.p2p_topology import experiment
from course.lessons.p2p_topology.flows import Path
from course.lessons.p2p_topology.topology import Topology, nvlinks
from course.published import load
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.timeline import Bar, draw_lanes

Pair = tuple[int, int]


def graph(topology: Topology, paths: Sequence[Path]) -> Axes:
    """Draw the GPUs on a circle, their NVLinks pale, wide ones thick, and paths as arrows."""
    ax = plots.new_axes("Every path at once", size=(6.0, 6.4))
    ax.set(xlim=(-1.65, 1.65), ylim=(-1.4, 1.4), aspect="equal")
    ax.set_axis_off()
    angles = [math.pi / 2 - 2 * math.pi * gpu / topology.gpus for gpu in range(topology.gpus)]
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    for pair in itertools.combinations(range(topology.gpus), 2):
        ends = zip(*(places[gpu] for gpu in pair), strict=True)
        ax.plot(*ends, color="#0072b2", alpha=0.25, linewidth=nvlinks(topology.link(*pair)))
    for number, way in enumerate(paths):
        style, bent = plots.style(number), f"arc3,rad={0.06 + 0.03 * number}"
        look = {"color": style.color, "linestyle": style.linestyle, "linewidth": 2.2}
        arrow = {"arrowstyle": "-|>,head_width=0.35,head_length=0.7", "connectionstyle": bent}
        for src, dst in itertools.pairwise(way.gpus):
            line = look | arrow | {"shrinkA": 14, "shrinkB": 14}
            ax.annotate("", places[dst], places[src], arrowprops=line, zorder=4)
        ax.plot([], [], label=str(way), **look)
    for gpu, (x, y) in enumerate(places):
        ax.plot(x, y, "o", color="#fff3c4", markersize=25, markeredgecolor=plots.INK, zorder=5)
        ax.text(x, y, str(gpu), ha="center", va="center", fontsize=11, color=plots.INK, zorder=6)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, handlelength=3.2)
    rows = [[" -> ".join(map(str, way.gpus)), way.rate / 1e9] for way in paths]
    words = f"{topology.gpus} GPUs. Ways: {'; '.join(map(str, paths))}."
    plots.describe(ax, words, table=Table(["way", "GB/s"], rows))
    return ax


def together(milliseconds: dict[str, float], starts: Sequence[float]) -> Axes:
    """Draw transfers as bars on a time axis, a lane for each stream; `starts` in milliseconds."""
    bars, texts = [], []
    for (name, ms), start in zip(milliseconds.items(), starts, strict=True):
        bars.append(Bar(len(bars), "copy", start / 1e3, (start + ms) / 1e3, label=f"{ms:.3g} ms"))
        texts.append(f"{name} begins at {start:.3g} ms and takes {ms:.3g} ms")
    title = "Copies of the same bytes from one GPU, each on a stream of its own"
    words = f"Copies from one GPU: {', '.join(texts)}."
    return draw_lanes(list(milliseconds), bars, description=words, title=title)


def theirs_and_ours(milliseconds: dict[int, float], records: Sequence[Record]) -> Figure:
    """Draw the authors' three copies, and those that the same program makes here."""
    both, (theirs, ours) = plots.new_figure(2, 1, size=(9, 4.6))
    published, names = load("p2p_topology"), [f"0 -> {gpu}" for gpu in milliseconds]
    plots.new_axes("Theirs", x="time", xunit="ms", ax=theirs)
    plots.bars(theirs, names, list(milliseconds.values()))
    plots.stamp_published(theirs, published["durations"])
    words = ", ".join(f"0 -> {gpu} {ms} ms" for gpu, ms in milliseconds.items())
    plots.describe(theirs, f"The authors' copies: {words}.")
    here = [record.case for record in records]
    plots.ladder(records, title="The same program here", x="time", names=here, ax=ours)
    return both


def by_pairs(records: Sequence[Record], title: str = "A copy between every two") -> Axes:
    """Draw the rates of `experiment.time_pairs` as a matrix."""
    rates = {record.case: record.algbw / 1e9 for record in records}
    count = math.isqrt(len(rates)) + 1
    values = [[rates.get(f"{a} to {b}", math.nan) for b in range(count)] for a in range(count)]
    names = [str(number) for number in range(count)]
    ax = plots.new_axes("GB/s, from the row to the column", size=(7.2, 1.8 + 0.4 * count))
    plots.matrix(ax, values, rows=names, columns=names, value_format="{:.3g}")
    figures = ", ".join(f"{pair} {rate:.3g}" for pair, rate in rates.items())
    plots.describe(ax, f"{title}. In GB/s: {figures}.")
    return plots.stamp(ax, records[0].tier, records[0].provenance)


def published(
    title: str,
    values: Mapping[str, float],
    *,
    x: str,
    unit: str = "",
    source: str = "p2p_on",
    beside: Iterable[float] = (),
    note: str = "",
) -> Axes:
    """Draw figures of a published matrix as bars; the note says what the crosses beside are."""
    crosses = dict(enumerate(beside))
    ax = plots.new_axes(title, x=x, xunit=unit, size=(9, 1.8 + 0.36 * len(values)))
    plots.bars(ax, list(values), list(values.values()), crosses=crosses)
    ax.set_ylim(top=-1.3)  # room for a mark
    texts = [f" (cross: {cross:.3g})" for cross in crosses.values()] or [""] * len(values)
    each = zip(values.items(), texts, strict=True)
    plots.describe(ax, "; ".join(f"{name}: {value:.3g}{cross}" for (name, value), cross in each))
    note = f"crosses: {note}" if crosses else note
    return plots.stamp_published(ax, load("p2p_topology")[source], note=note)


def staircase(matrix: Topology, far: Sequence[Pair], near: Sequence[Pair]) -> Axes:
    """Draw the rates between NUMA nodes, the slowest first, and those within one as a level."""
    look = {"x": "pairs, the slowest first", "y": "rate", "yunit": "GB/s", "size": (9, 4.2)}
    ax = plots.new_axes("Copies from one NUMA node to another, in order", **look)
    texts, begin = [], 0
    for number, kind in enumerate(("SYS", "NV2", "NV4")):
        rates = sorted(matrix.bandwidth(*pair) / 1e9 for pair in far if matrix.link(*pair) == kind)
        texts.append(f"{kind}: {len(rates)} pairs, {rates[0]:.1f} to {rates[-1]:.1f} GB/s")
        places = range(begin + 1, begin + len(rates) + 1)
        plots.line(ax, places, rates, label=texts[-1], series=number)
        begin += len(rates)
    level = statistics.median(matrix.bandwidth(*pair) / 1e9 for pair in near)
    kinds = ", ".join(sorted({matrix.link(*pair) for pair in near}))
    texts.append(f"within a NUMA node: {len(near)} pairs, {kinds}, median {level:.1f} GB/s")
    ax.axhline(level, color=plots.SOFT, linestyle=":", label=texts[-1])
    ax.set(xlim=(0, begin + 1), ylim=(0, 120))
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.74), frameon=False)
    plots.describe(ax, f"Of {len(far)} pairs: {'; '.join(texts)}.")
    return plots.stamp_published(ax, load("p2p_topology")["p2p_on"])


def chunk_curve(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw a relayed copy's time over the size of its chunks, beside what was predicted."""
    title = "A relayed copy, in chunks"
    ax = plots.new_axes(title, x="chunk", xunit="bytes", y="time", yunit="ms", xscale="log", ax=ax)
    sizes = [record.params["chunk"] for record in records]
    medians, band = plots.spread(records, "ms")
    plots.line(ax, sizes, medians, **band, label="measured")
    predicted = [record.predicted * 1e3 for record in records]
    plots.line(ax, sizes, predicted, label="model", kind="MODELLED")
    best, size = min(zip(medians, sizes, strict=True))
    ends = "; ".join(f"{medians[i]:.3g} ms in chunks of {sizes[i]} bytes" for i in (0, -1))
    lowest = f"lowest at {size} bytes with {best:.3g} ms"
    plots.describe(ax, f"Time against chunk size: {lowest}; {ends}.")
    return plots.stamp(ax, [records[0].tier, "MODELLED"], records[0].provenance)


def draw(records: Sequence[Record]) -> Figure:
    """Draw what `course run p2p-topology` measured: every way, and the chunk sizes."""
    figure, (above, below) = plots.new_figure(2, 1, size=(9, 9.5))
    ways = [record for record in records if record.params["part"] == "ways"]
    sweep = [record for record in ways if record.params["ways"] == experiment.SWEPT]
    shown = [record for record in ways if record.params["ways"][0][-1] == experiment.FAR]
    names = list(experiment.all_ways())
    plots.ladder(shown, title="The same bytes, every way", names=names, ax=above)
    chunk_curve(sweep, ax=below)
    return figure
