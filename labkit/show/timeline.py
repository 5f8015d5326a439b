"""Timelines: one lane for each rank or stream, bars for what it did, arrows for what it sent.

Every timeline is drawn by `draw_lanes`, from plain figures::

    draw_lanes(
        ["rank 0", "rank 1"],
        [Bar(0, "forward", 0.0, 0.010, label="F0"), Bar(1, "forward", 0.012, 0.022, label="F0")],
        arrows=[Arrow(0, 0.010, 1, 0.012, "forward")],
        looks={"forward": style(5)},
        description="Rank 1 starts 12 ms after rank 0.",
    )
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Patch

from labkit.measure.tables import Table
from labkit.show.alt_text import figure_of
from labkit.show.plots import Style, describe, new_axes, style

_NAME_INCHES = 0.16  # that two letters beside an arrow take, with some air


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of time in a lane."""

    lane: int  # index of its lane, from the top
    kind: str  # what was done: the legend's word, and the key of the bar's look
    begin: float  # seconds
    end: float
    label: str = ""  # written into the bar: ``"F3"``
    behind: bool = False
    """Whether it went on in the background: drawn thin, below the lane's own bars."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """Something that left one lane at one time and reached another at a later one."""

    src: int  # index of the lane that it leaves
    begin: float  # seconds
    dst: int  # index of the lane that it reaches
    end: float
    kind: str  # key of its look; its legend is that of the bars of this kind
    label: str = ""  # written beside it where there is room, and in the data table: ``"F3"``


def draw_lanes(
    lanes: Sequence[str],
    bars: Sequence[Bar],
    *,
    description: str,
    arrows: Sequence[Arrow] = (),
    looks: Mapping[str, Style] | None = None,
    table: Table | None = None,
    title: str = "",
    until: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw bars, and arrows between lanes, on a common axis in milliseconds.

    Args:
        lanes: Names of the lanes, from top to bottom.
        bars: What each did.
        description: What the picture shows, in words, for those who cannot see it.
        arrows: What went from lane to lane.
        looks: Kind -> style of its bars and arrows; the usual styles in turn if not given.
        table: The data that stand for the picture; all bars and arrows if not given.
        title: What the picture says.
        until: End of the time axis in seconds, to put several pictures on one scale.
        ax: Where to draw; axes of its own if not given.
    """
    kinds = list(dict.fromkeys(bar.kind for bar in bars))
    looks = looks or {kind: style(series) for series, kind in enumerate(kinds)}
    shown = [kind for kind in looks if kind in kinds]
    patches = [Patch(fc=looks[k].color, hatch=looks[k].hatch, ec="white", label=k) for k in shown]
    size = (10, 1.1 + 0.62 * max(len(lanes), 2))
    above = 24 if len(patches) > 1 else 10  # the legend stands between title and picture
    ax = new_axes(title, x="Time", xunit="ms", ax=ax, size=size, pad=above)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x", alpha=0.4)
    low = 0.12 if any(bar.behind for bar in bars) else 0.0  # room for the thin ones
    for bar in bars:
        _draw_bar(ax, bar, looks[bar.kind], at=bar.lane + (0.29 if bar.behind else -low))
    for arrow in arrows:  # from the edge of one lane's bars to the facing edge of the other's
        own, down = looks[arrow.kind], 0.27 if arrow.dst > arrow.src else -0.27
        begin, end = (1e3 * arrow.begin, arrow.src + down), (1e3 * arrow.end, arrow.dst - down)
        head: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0}
        stroke: dict[str, Any] = {"color": own.color, "ls": own.linestyle, "lw": 1.1}
        ax.add_patch(FancyArrowPatch(begin, end, shrinkB=0, alpha=0.85, **head, **stroke))
    ax.set_yticks(range(len(lanes)), lanes)
    ax.set_ylim(len(lanes) - 0.45, -0.55)
    last = max([0.0, *(bar.end for bar in bars), *(arrow.end for arrow in arrows)])
    ax.set_xlim(0, 1e3 * (until or last) or None)
    _name_arrows(ax, arrows)
    if len(patches) > 1:
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
        room: dict[str, Any] = {"handlelength": 1.6, "handletextpad": 0.5, "columnspacing": 0.9}
        look: dict[str, Any] = {"ncols": len(patches), "frameon": False, "fontsize": 9}
        ax.legend(handles=patches, **look, **place, **room)
    describe(ax, description, table=table or _table(lanes, bars, arrows))
    return ax


def _draw_bar(ax: Axes, bar: Bar, look: Style, *, at: float) -> None:
    height, width = 0.2 if bar.behind else 0.54, 1e3 * (bar.end - bar.begin)
    edge = {"edgecolor": "white", "linewidth": 0.4}
    filled: dict[str, Any] = {"color": look.color, "hatch": look.hatch, **edge}
    ax.barh(at, width, left=1e3 * bar.begin, height=height, **filled)
    if bar.label:
        box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
        middle = 500 * (bar.begin + bar.end)
        ax.text(middle, at, bar.label, ha="center", va="center", fontsize=7.5, bbox=box)


def _name_arrows(ax: Axes, arrows: Sequence[Arrow]) -> None:
    """Write each arrow's name on its right, or else on its left: where nothing else stands."""
    inches = ax.get_position().width * figure_of(ax).get_figwidth()
    room = _NAME_INCHES * (ax.get_xlim()[1] / inches)  # ms that a name takes
    middles = [(500 * (arrow.begin + arrow.end), {arrow.src, arrow.dst}) for arrow in arrows]
    taken: list[tuple[float, set[int]]] = []  # middles of the names that are written
    for arrow, (middle, between) in zip(arrows, middles, strict=True):
        crossing = [x for x, lanes in middles if lanes == between and x != middle]
        named = [x for x, lanes in taken if lanes == between]
        for side in (1, -1):
            at = middle + 0.75 * side * room
            beside_arrows = all(abs(at - x) > 0.6 * room for x in crossing)
            if beside_arrows and all(abs(at - x) > room for x in named):
                taken.append((at, between))
                y = sum(between) / 2
                ax.text(at, y, arrow.label, ha="center", va="center", color="#333", fontsize=7)
                break


def _table(lanes: Sequence[str], bars: Sequence[Bar], arrows: Sequence[Arrow]) -> Table:
    places: list[tuple[str, Any]] = [(lanes[bar.lane], bar) for bar in bars]
    moves = [(f"{lanes[arrow.src]} → {lanes[arrow.dst]}", arrow) for arrow in arrows]
    rows = [[at, x.label or str(x.kind), 1e3 * x.begin, 1e3 * x.end] for at, x in (*places, *moves)]
    return Table(["lane", "what", "begin ms", "end ms"], rows)
