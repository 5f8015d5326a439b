"""Who sent how much to whom: as a heat map, as ranks with arrows, and round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from labkit.measure.rounds import Message
from labkit.show import plots, widgets


def heat_map(
    sent: Any, *, nbytes: int, title: str = "Sent, in units of S", ax: Axes | None = None
) -> Axes:
    """Draw a wire matrix with its figures: row = sender, column = receiver.

    Args:
        sent: bytes, shape (world_size, world_size), as `labkit.measure.wire.payload` returns.
        nbytes: S; the figures are in units of it.
        title: what the picture says.
        ax: where to draw; axes of its own if not given.
    """
    shares = np.asarray(sent) / nbytes
    ranks = [f"{rank}" for rank in range(len(shares))]
    size = 2.2 + 0.62 * len(shares)
    ax = plots.new_axes(title, x="Receiver", y="Sender", ax=ax, size=(size + 0.6, size))
    ax.grid(visible=False)
    plots.matrix(ax, shares, rows=ranks, columns=ranks, value_format="{:.3g}")
    plots.describe(ax, f"{title}. {_told(shares)}")
    return ax


def arrows(
    sent: Any, *, nbytes: int, title: str = "Sent, in units of S", ax: Axes | None = None
) -> Axes:
    """Draw ranks on a circle with an arrow for each pair: its width and its label are the bytes.

    Args:
        sent: bytes, shape (world_size, world_size): row = sender, column = receiver.
        nbytes: S; the labels are in units of it.
        title: what the picture says.
        ax: where to draw; axes of its own if not given.
    """
    shares = np.asarray(sent) / nbytes
    n, most = len(shares), float(np.max(shares, initial=0.0)) or 1.0
    ax = _stage(title, n, ax)
    for src, dst in np.argwhere(shares > 0):
        _arrow(ax, _place(src, n), _place(dst, n), shares[src, dst], most)
    plots.describe(ax, f"{title}. {_told(shares)}")
    return ax


def one_round(
    found: Sequence[Sequence[Message]],
    number: int,
    *,
    world_size: int,
    nbytes: int,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw the messages of one round, counted from 1.

    Args:
        found: what `labkit.measure.rounds.rounds` returns.
        number: which round.
        world_size: how many ranks there are, also those that rest.
        nbytes: S.
        title: of the picture; the round's number is added.
        ax: where to draw; axes of its own if not given.
    """
    sent = np.zeros((world_size, world_size))
    for message in found[number - 1]:
        sent[message.src, message.dst] += message.nbytes
    heading = f"{title}: round {number} of {len(found)}" if title else f"Round {number}"
    return arrows(sent, nbytes=nbytes, title=heading, ax=ax)


def all_rounds(
    found: Sequence[Sequence[Message]], *, world_size: int, nbytes: int, title: str = ""
) -> Figure:
    """Draw every round beside the next: the still picture of `play`."""
    columns = min(len(found), 4)
    rows = math.ceil(len(found) / columns)
    figure, panels = plots.new_figure(
        rows, columns, title=title, size=(2.6 * columns, 2.7 * rows + 0.4)
    )
    for number, ax in enumerate(panels, start=1):
        if number > len(found):
            ax.set_axis_off()
            continue
        one_round(found, number, world_size=world_size, nbytes=nbytes, ax=ax)
    return figure


def play(
    found: Sequence[Sequence[Message]], *, world_size: int, nbytes: int, title: str = ""
) -> Any:
    """Show the rounds one after another, by a slider; where widgets are not rendered, the first."""

    def draw(round: int) -> Axes:  # the slider's name
        return one_round(found, round, world_size=world_size, nbytes=nbytes, title=title)

    return widgets.explore(draw, title=title, round=(1, len(found), 1, 1))


def _stage(title: str, n: int, ax: Axes | None) -> Axes:
    ax = plots.new_axes(title, ax=ax, size=(4.4, 4.6))
    ax.set_aspect("equal")
    ax.grid(visible=False)
    ax.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    for rank in range(n):
        x, y = _place(rank, n)
        ax.plot(x, y, "o", markersize=21, color="white", markeredgecolor=plots.INK, zorder=3)
        ax.text(x, y, str(rank), ha="center", va="center", fontsize=10, color=plots.INK, zorder=4)
    return ax


def _place(rank: int, n: int) -> tuple[float, float]:
    """Return where a rank stands: rank 0 on top, the others clockwise."""
    angle = math.pi / 2 - 2 * math.pi * rank / n
    return math.cos(angle), math.sin(angle)


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], share: float, most: float
) -> None:
    """Draw a curved arrow; the two directions of a pair bend away from each other."""
    ax.add_patch(
        FancyArrowPatch(
            start, end, connectionstyle="arc3,rad=0.16", shrinkA=13, shrinkB=13, zorder=2,
            arrowstyle="-|>,head_length=7,head_width=4", linewidth=0.8 + 3.6 * share / most,
            color=plots.style(0).color,
        )
    )  # fmt: skip
    (x0, y0), (x1, y1) = start, end
    early = 0.66 * np.array([x0, y0]) + 0.34 * np.array([x1, y1])  # in the middle, many cross
    aside = 0.07 * np.array([y1 - y0, x0 - x1])  # where the arc bulges: right of the way
    ax.text(
        *(early + aside), f"{share:.3g}", ha="center", va="center", fontsize=8.5,
        color=plots.INK, zorder=5,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
    )  # fmt: skip


def _told(shares: np.ndarray) -> str:
    """Say a matrix in words: what each rank sends, to whom."""
    parts = []
    for rank, row in enumerate(shares):
        to = [f"{share:.3g} S to rank {dst}" for dst, share in enumerate(row) if share > 0]
        if to:
            parts.append(f"Rank {rank} sends {', '.join(to)}.")
    return " ".join(parts) or "Nobody sends anything."
