"""The frame of every picture: palette, axes with units, and the stamp that tells its tier.

A series is told by colour *and* marker *and* dash, so that a picture survives colour blindness and
a black and white printer. The palette is Okabe and Ito's, "Color Universal Design" (2008).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from labkit.show import alt_text, ticks

INK, SOFT, FAINT = "#222222", "#666666", "#dddddd"
SIZE = (7.2, 4.2)
_PADS = {"w_pad": 0.12, "h_pad": 0.1}


@dataclass(frozen=True, slots=True)
class Style:
    """How one series is told from the others: by three signs at once, four in bars."""

    color: str
    marker: str
    linestyle: Any
    hatch: str


STYLES = (
    Style("#0072b2", "o", "-", ""),
    Style("#d55e00", "s", (0, (5, 1.5)), "///"),
    Style("#009e73", "^", (0, (1.2, 1.2)), "..."),
    Style("#cc79a7", "D", (0, (5, 1.5, 1.2, 1.5)), "xxx"),
    Style("#e69f00", "v", (0, (8, 2)), "\\\\\\"),
    Style("#56b4e9", "P", (0, (3, 1, 1, 1, 1, 1)), "ooo"),
    Style("#222222", "X", (0, (2, 2)), "---"),
)


def style(series: int) -> Style:
    """Return the style of the series of that number; they repeat after the last."""
    return STYLES[series % len(STYLES)]


def new_figure(
    rows: int = 1, columns: int = 1, *, title: str = "", size: tuple[float, float] = (10, 4.2)
) -> tuple[Figure, np.ndarray]:
    """Make a figure of several panels. Dress each with `new_axes(..., ax=panel)`.

    Returns:
        The figure and a flat array of its panels, row by row.
    """
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(**_PADS))
    panels = figure.subplots(rows, columns, squeeze=False)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold", color=INK)
    return figure, panels.ravel()


def new_axes(
    title: str = "",
    *,
    x: str = "",
    y: str = "",
    xunit: str = "",
    yunit: str = "",
    xscale: str = "linear",
    yscale: str = "linear",
    ax: Axes | None = None,
    size: tuple[float, float] = SIZE,
) -> Axes:
    """Make axes in the course's look, or dress the ones given.

    Args:
        title: What the picture says, rather than what it plots.
        x: What the horizontal axis shows.
        y: What the vertical axis shows.
        xunit: Its unit; with `bytes` the ticks read KiB, MiB, GiB.
        yunit: The vertical axis's unit.
        xscale: `linear` or `log`.
        yscale: `linear` or `log`.
        ax: Axes to dress; a figure of its own if not given.
        size: Inches, for a figure of its own.
    """
    if ax is None:
        ax = new_figure(size=size)[1][0]
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(colors=SOFT, labelcolor=INK, labelsize=9, length=3)
    ax.grid(visible=True, axis="y", color=FAINT, linewidth=0.8)
    characters = int(ax.get_position().width * ax.get_figure(root=True).get_figwidth() * 11.5)
    ax.set_title(
        textwrap.fill(title, max(characters, 20)),
        loc="left",
        fontsize=11.5,
        fontweight="bold",
        color=INK,
        pad=10,
    )
    ticks.dress(ax.xaxis, x, unit=xunit, scale=xscale)
    ticks.dress(ax.yaxis, y, unit=yunit, scale=yscale)
    return ax


def stamp(ax: Axes, tier: Any, provenance: Any = None, *, note: str = "") -> Axes:
    """Say under the picture how its figures came to be: the tier, and where and when.

    Args:
        ax: The panel.
        tier: A `records.Tier` or its name; several, joined by ` + `, where one panel shows several.
        provenance: A `records.Provenance`: machine, versions, date.
        note: More: the model's parameters, the source of a published figure.
    """
    tiers = [tier] if isinstance(tier, str) else list(tier)
    parts = [" + ".join(map(str, tiers)), str(provenance) if provenance else "", note]
    said = " · ".join(part for part in parts if part)
    figure = ax.get_figure(root=True)
    said_by = alt_text.of(figure).stamps
    said_by[ax] = said
    distinct = list(dict.fromkeys(said_by.values()))
    if len(distinct) > 1:
        distinct = [f"{axes.get_title(loc='left')}: {said}" for axes, said in said_by.items()]
    width = int(figure.get_figwidth() * 17.5)
    text = "\n".join(textwrap.fill(line, width) for line in distinct)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=7.5, color=SOFT)
    return ax
