"""Who sent how much to whom: as a heat map, and round by round as ranks with arrows."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from labkit.show import plots, widgets


class Message(Protocol):
    """What one rank sends to another in a round."""

    src: int
    dst: int
    nbytes: int


def heat_map(sent: Any, *, nbytes: int, title: str = "Sent, in units of S") -> Axes:
    """Draw a wire matrix with its figures, in units of S = `nbytes`.

    `sent` is as `labkit.measure.wire.payload` returns it: bytes, row = sender, column = receiver.
    """
    shares = np.asarray(sent) / nbytes
    ranks = [f"{rank}" for rank in range(len(shares))]
    size = 2.2 + 0.62 * len(shares)
    ax = plots.new_axes(title, x="Receiver", y="Sender", size=(size + 0.6, size))
    ax.grid(visible=False)
    plots.matrix(ax, shares, rows=ranks, columns=ranks, value_format="{:.3g}")
    plots.describe(ax, f"{title}. {_in_words(shares)}")
    return ax


def play(rounds: Sequence[Sequence[Message]], *, world_size: int, nbytes: int, title: str) -> Any:
    """Show rounds one after another, by a slider; where widgets are not rendered, the first.

    The messages of each round are given; the arrows' labels are in units of S =
    `nbytes`. Ranks that rest are drawn, too.
    """

    def draw(round: int) -> Axes:  # the slider's name
        sent = np.zeros((world_size, world_size))
        for message in rounds[round - 1]:
            sent[message.src, message.dst] += message.nbytes
        return _arrows(sent / nbytes, f"{title}: round {round} of {len(rounds)}")

    return widgets.explore(draw, title=title, round=(1, len(rounds), 1, 1))


def _arrows(shares: np.ndarray, title: str) -> Axes:
    """Draw ranks on a circle with an arrow for each pair: its width and its label are the bytes."""
    n, most = len(shares), float(np.max(shares, initial=0.0)) or 1.0
    ax = plots.new_axes(title, size=(4.4, 4.6))
    ax.set_aspect("equal")
    ax.grid(visible=False)
    ax.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    for rank in range(n):
        x, y = _place(rank, n)
        ax.plot(x, y, "o", markersize=21, color="white", markeredgecolor=plots.INK, zorder=3)
        ax.text(x, y, str(rank), ha="center", va="center", fontsize=10, color=plots.INK, zorder=4)
    for src, dst in np.argwhere(shares > 0):
        _arrow(ax, _place(src, n), _place(dst, n), shares[src, dst], most)
    plots.describe(ax, f"{title}. {_in_words(shares)}")
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


def _in_words(shares: np.ndarray) -> str:
    """Say a matrix in words: what each rank sends, to whom."""
    parts = []
    for rank, row in enumerate(shares):
        to = [f"{share:.3g} S to rank {dst}" for dst, share in enumerate(row) if share > 0]
        if to:
            parts.append(f"Rank {rank} sends {', '.join(to)}.")
    return " ".join(parts) or "Nobody sends anything."
