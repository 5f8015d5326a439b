"""Lesson 04's pictures: who is linked to whom, the router, chunks."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

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

_LOOKS = (  # differ in colour, dash and width at once, the widest NVLinks first
    {"color": "#0072b2", "linewidth": 3.6, "linestyle": "-"},
    {"color": "#009e73", "linewidth": 2.0, "linestyle": (0, (6, 1.5))},
    {"color": "#56b4e9", "linewidth": 1.6, "linestyle": (0, (3, 1.5))},
)
_PCIE_LOOK = {"color": "#9a9a9a", "linewidth": 1.0, "linestyle": (0, (1, 2.5))}


def graph(topology: Topology, *, paths: Sequence[Path] = (), ax: Axes | None = None) -> Axes:
    """Draw the GPUs on a circle and their links, wide ones thick; paths as numbered arrows."""
    ax = plots.new_axes("Who is linked to whom", ax=ax, size=(6.0, 6.4))
    ax.set_aspect("equal")
    ax.set(xlim=(-1.65, 1.65), ylim=(-1.4, 1.4), xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    angles = [math.pi / 2 - 2 * math.pi * gpu / topology.gpus for gpu in range(topology.gpus)]
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    pairs = list(itertools.combinations(range(topology.gpus), 2))
    kinds = {pair: topology.link(*pair) for pair in pairs}
    widths = sorted({nvlinks(kind) for kind in kinds.values()} - {0}, reverse=True)
    shown = set()
    for pair in sorted(pairs, key=lambda pair: -topology.class_bandwidth(kinds[pair])):
        kind, count = kinds[pair], nvlinks(kinds[pair])
        look = _LOOKS[min(widths.index(count), len(_LOOKS) - 1)] if count else _PCIE_LOOK
        meaning = f"{count} NVLinks" if count else "PCIe and the link between CPUs"
        label = f"{kind}: {meaning}, {topology.class_bandwidth(kind) / 1e9:.3g} GB/s"
        ends = zip(*(places[gpu] for gpu in pair), strict=True)
        alpha = 0.25 if paths else 1.0
        ax.plot(*ends, label=None if kind in shown or paths else label, alpha=alpha, **look)
        shown.add(kind)
    for number, way in enumerate(paths):
        _draw_path(ax, places, way, number)
    for gpu, (x, y) in enumerate(places):
        on_path = any(gpu in way.gpus for way in paths)
        ax.plot(
            x,
            y,
            "o",
            markersize=25,
            color="#fff3c4" if on_path else "white",
            markeredgecolor=plots.INK,
            markeredgewidth=1.4,
            zorder=5,
        )
        ax.text(x, y, str(gpu), ha="center", va="center", fontsize=11, color=plots.INK, zorder=6)
        ax.text(
            1.38 * x,
            1.27 * y,
            f"NUMA {topology.numa[gpu]}",
            ha="center",
            va="center",
            fontsize=8,
            color=plots.SOFT,
        )
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=9, handlelength=3.2
    )
    pairs_by_kind = Counter(kinds.values())
    counts = ", ".join(f"{count} pairs by {kind}" for kind, count in pairs_by_kind.items())
    ways = f" Ways: {'; '.join(map(str, paths))}." if paths else ""
    columns = ["", *map(str, range(topology.gpus))]
    table = Table(columns, [[src, *links] for src, links in enumerate(topology.classes)])
    if paths:
        rows = [[" -> ".join(map(str, way.gpus)), way.rate / 1e9] for way in paths]
        table = Table(["way", "GB/s"], rows)
    plots.describe(ax, f"{topology.gpus} GPUs: {counts}.{ways}", table=table)
    return ax


def _draw_path(ax: Axes, places: Sequence[tuple[float, float]], way: Path, number: int) -> None:
    style = plots.style(number)
    look = {"color": style.color, "linestyle": style.linestyle, "linewidth": 2.2}
    arrow = look | {
        "arrowstyle": "-|>,head_width=0.35,head_length=0.7",
        "shrinkA": 14,
        "shrinkB": 14,
        "connectionstyle": f"arc3,rad={0.06 + 0.03 * number}",
    }
    for src, dst in way.hops:
        ax.annotate("", places[dst], places[src], arrowprops=arrow, zorder=4)
    ax.plot([], [], label=str(way), **look)


def together(milliseconds: dict[str, float], starts: Sequence[float] = ()) -> Axes:
    """Draw transfers as bars on a time axis, a lane for each stream; `starts` in milliseconds."""
    starts = starts or [0.0] * len(milliseconds)
    bars = [
        Bar(lane, "copy", start / 1e3, (start + value) / 1e3, label=f"{value:.3g} ms")
        for lane, (start, value) in enumerate(zip(starts, milliseconds.values(), strict=True))
    ]
    times = ", ".join(
        f"{name} begins at {1e3 * bar.begin:.3g} ms and takes {bar.label}"
        for name, bar in zip(milliseconds, bars, strict=True)
    )
    return draw_lanes(
        list(milliseconds),
        bars,
        description=f"Copies from one GPU: {times}.",
        title="Copies of the same bytes from one GPU, each on a stream of its own",
    )


def theirs_and_ours(milliseconds: dict[int, float], records: Sequence[Record]) -> Figure:
    """Draw the authors' three copies, and those that the same program makes here."""
    both, (theirs, ours) = plots.new_figure(2, 1, size=(9, 4.6))
    published, names = load("p2p_topology"), [f"0 -> {gpu}" for gpu in milliseconds]
    plots.new_axes("Theirs", x="time", xunit="ms", ax=theirs)
    plots.bars(theirs, names, list(milliseconds.values()))
    plots.stamp_published(theirs, published["durations"])
    words = ", ".join(f"0 -> {gpu} {ms} ms" for gpu, ms in milliseconds.items())
    plots.describe(theirs, f"The authors' copies: {words}.")
    plots.ladder(records, title="The same program here", x="time", names=names, ax=ours)
    return both


def switched_off(ratios: dict[str, float]) -> Axes:
    """Draw what is left of a class's rate where P2P is off: off over on, by link class."""
    ax = plots.new_axes(
        "What P2P off leaves of the rate",
        x="GB/s off, over GB/s on (above 1: faster)",
        size=(9, 2.8),
    )
    plots.bars(ax, [f"{kind} pairs" for kind in ratios], list(ratios.values()))
    ax.axvline(1.0, color=plots.SOFT, linestyle=":")
    plots.describe(ax, "; ".join(f"{kind}: {ratio:.2f}" for kind, ratio in ratios.items()))
    return plots.stamp_published(ax, load("p2p_topology")["p2p_off"], note="medians by class")


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
    plots.describe(
        ax, f"Time against chunk size: lowest at {size} bytes with {best:.3g} ms; {ends}."
    )
    return plots.stamp(ax, [records[0].tier, "MODELLED"], records[0].provenance)


def draw(records: Sequence[Record]) -> Figure:
    """Draw what `course run p2p-topology` measured: every way, and the chunk sizes."""
    figure, (left, right) = plots.new_figure(1, 2, size=(13.0, 5.0))
    ways = [record for record in records if record.params["part"] == "ways"]
    sweep = [record for record in ways if record.params["ways"] == experiment.SWEPT]
    shown = [record for record in ways if record.params["ways"][0][-1] == experiment.FAR]
    plots.ladder(shown, title="The same bytes, every way", names=list(experiment.WAYS), ax=left)
    chunk_curve(sweep, ax=right)
    return figure
