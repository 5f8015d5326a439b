"""Pictures of a topology: who is linked to whom, how fast, and which way the bytes go."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.lessons.p2p_topology import flows
from labkit.lessons.p2p_topology.flows import Path
from labkit.lessons.p2p_topology.link_rates import CLASS_NAMES, nvlinks
from labkit.lessons.p2p_topology.topology import Topology
from labkit.measure.tables import Table
from labkit.show import plots

_LOOKS = (  # told by colour, dash and width at once, the widest NVLinks first
    {"color": "#0072b2", "linewidth": 3.6, "linestyle": "-"},
    {"color": "#009e73", "linewidth": 2.0, "linestyle": (0, (6, 1.5))},
    {"color": "#56b4e9", "linewidth": 1.6, "linestyle": (0, (3, 1.5))},
)
_PCIE_LOOK = {"color": "#9a9a9a", "linewidth": 1.0, "linestyle": (0, (1, 2.5))}


def graph(topology: Topology, *, paths: Sequence[Path] = (), ax: Axes | None = None) -> Axes:
    """Draw the GPUs on a circle and their links, wide ones thick; paths as numbered arrows.

    Args:
        topology: The links.
        paths: Ways of a transfer, drawn over the links.
        ax: Where to draw; axes of its own if not given.
    """
    ax = plots.new_axes("Who is linked to whom", ax=ax, size=(6.0, 6.4))
    _clear(ax)
    places = _places(topology)
    pairs = sorted(
        itertools.combinations(range(topology.gpus), 2),
        key=lambda pair: -topology.rates.bandwidth(topology.link(*pair)),
    )
    shown = set()
    for src, dst in pairs:
        kind = topology.link(src, dst)
        look = _look(topology, kind)
        label = None if kind in shown else _legend(topology, kind)
        shown.add(kind)
        faded = 0.25 if paths else 1.0
        ends = zip(places[src], places[dst], strict=True)
        ax.plot(*ends, label=label, alpha=faded, **look)
    for number, path in enumerate(paths):
        _arrows(ax, places, path, number)
    numa = topology.table.numa
    for gpu, (x, y) in enumerate(places):
        on_path = any(gpu in path.gpus for path in paths)
        ax.plot(x, y, "o", markersize=25, color="#fff3c4" if on_path else "white",
                markeredgecolor=plots.INK, markeredgewidth=1.4, zorder=5)  # fmt: skip
        ax.text(x, y, str(gpu), ha="center", va="center", fontsize=11, color=plots.INK, zorder=6)
        if numa[gpu] is not None:
            ax.text(1.38 * x, 1.27 * y, f"NUMA {numa[gpu]}", ha="center", va="center", fontsize=8,
                    color=plots.SOFT)  # fmt: skip
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=9,
              handlelength=3.2)  # fmt: skip
    plots.describe(ax, _said(topology, paths), table=_link_table(topology, paths))
    return ax


def bandwidth_matrix(topology: Topology, *, ax: Axes | None = None) -> Axes:
    """Draw the bandwidths of all ordered pairs as a heat map with their figures, in GB/s."""
    ax = plots.new_axes(
        "Bandwidth of a copy, GB/s", x="to GPU", y="from GPU", ax=ax, size=(6.0, 5.0)
    )
    matrix = np.array(topology.bandwidths()) / 1e9
    matrix[np.diag_indices(topology.gpus)] = np.nan
    names = [str(gpu) for gpu in range(topology.gpus)]
    plots.matrix(ax, matrix, rows=names, columns=names, value_format="{:.3g}", log=True)
    low, high = np.nanmin(matrix), np.nanmax(matrix)
    plots.describe(
        ax, f"Bandwidths of all pairs: from {low:.3g} to {high:.3g} GB/s, {high / low:.3g} to 1."
    )
    return ax


def transfer(topology: Topology, src: int, dst: int, nbytes: int) -> Figure:
    """Draw the ways from one GPU to another, and how long each takes: link, relay, every path.

    Args:
        topology: The links.
        src: Where the bytes are.
        dst: Where they should be.
        nbytes: How many.
    """
    figure, (left, right) = plots.new_figure(1, 2, size=(11.5, 6.0))
    if src == dst:
        for ax in (left, right):
            _clear(plots.new_axes(ax=ax))
        left.set_title("Choose two different GPUs", loc="left")
        return figure
    direct = flows.path(topology, src, dst)
    every = flows.maximum_flow(topology, src, dst, nvlink_only=True)
    if sum(path.rate for path in every) <= direct.rate:
        every = flows.maximum_flow(topology, src, dst)
    graph(topology, paths=every, ax=left)
    left.set_title(f"Every way from {src} to {dst}", loc="left", fontsize=11.5, fontweight="bold")
    ways = {f"direct ({topology.link(src, dst)})": [direct]}
    if topology.gpus > 2:
        best = flows.best_relay(topology, src, dst)
        ways[f"by {best.gpus[1]}"] = [best]
    ways[f"every path ({len(every)})"] = every
    times = [nbytes / sum(path.rate for path in paths) * 1e3 for paths in ways.values()]
    plots.new_axes(f"{nbytes / 1e6:g} MB from {src} to {dst}", x="time", xunit="ms", ax=right)
    plots.bars(right, list(ways), times, label="modelled", value_format="{:.3g} ms")
    said = ", ".join(f"{way} {time:.3g} ms" for way, time in zip(ways, times, strict=True))
    plots.describe(right, f"Modelled times of {nbytes / 1e6:g} MB from GPU {src} to {dst}: {said}.")
    for ax in (left, right):
        plots.stamp(ax, "MODELLED", note=f"bandwidths: {_source(topology)}")
    return figure


def _source(topology: Topology) -> str:
    return "a measured matrix" if topology.measured else topology.rates.source


def _places(topology: Topology) -> list[tuple[float, float]]:
    angles = [math.pi / 2 - 2 * math.pi * gpu / topology.gpus for gpu in range(topology.gpus)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def _look(topology: Topology, kind: str) -> dict:
    if not nvlinks(kind):
        return _PCIE_LOOK
    widths = sorted({nvlinks(k) for row in topology.table.classes for k in row} - {0}, reverse=True)
    return _LOOKS[min(widths.index(nvlinks(kind)), len(_LOOKS) - 1)]


def _legend(topology: Topology, kind: str) -> str:
    meaning = f"{nvlinks(kind)} NVLinks" if nvlinks(kind) else CLASS_NAMES.get(kind, kind)
    return f"{kind}: {meaning}, {topology.rates.bandwidth(kind) / 1e9:.3g} GB/s"


def _arrows(ax: Axes, places: Sequence[tuple[float, float]], path: Path, number: int) -> None:
    look = plots.style(number)
    for src, dst in path.hops:
        ax.annotate(
            "",
            places[dst],
            places[src],
            arrowprops={
                "arrowstyle": "-|>,head_width=0.35,head_length=0.7",
                "color": look.color,
                "linestyle": look.linestyle,
                "linewidth": 2.2,
                "shrinkA": 14,
                "shrinkB": 14,
                "connectionstyle": f"arc3,rad={0.06 + 0.03 * number}",
            },
            zorder=4,
        )


def _clear(ax: Axes) -> None:
    ax.set_aspect("equal")
    ax.set_xlim(-1.65, 1.65)
    ax.set_ylim(-1.4, 1.4)
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _said(topology: Topology, paths: Sequence[Path]) -> str:
    pairs = itertools.combinations(range(topology.gpus), 2)
    kinds = [topology.link(*pair) for pair in pairs]
    counts = ", ".join(f"{kinds.count(kind)} pairs by {kind}" for kind in dict.fromkeys(kinds))
    ways = f" Ways: {'; '.join(map(str, paths))}." if paths else ""
    return f"{topology.gpus} GPUs: {counts}.{ways}"


def _link_table(topology: Topology, paths: Sequence[Path]) -> Table:
    if paths:
        rows = [[" -> ".join(map(str, path.gpus)), path.rate / 1e9] for path in paths]
        return Table(["way", "GB/s"], rows)
    gpus = range(topology.gpus)
    rows = [[src, *(topology.link(src, dst) for dst in gpus)] for src in gpus]
    return Table(["", *map(str, gpus)], rows)
