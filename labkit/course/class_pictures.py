"""Pictures of a class: what people predicted against what they measured, and their machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from labkit.measure.tables import Table
from labkit.show import plots


def predictions(
    question: str, pairs: Sequence[tuple[float, float]], *, ax: Axes | None = None
) -> Axes:
    """Draw a histogram of prediction / measurement, in steps of a factor of two.

    Args:
        question: What was asked.
        pairs: `(predicted, measured)` of each learner, both positive; at least one.
        ax: Where to draw; axes of its own if not given.
    """
    steps = np.round(np.log2([predicted / measured for predicted, measured in pairs])).astype(int)
    steps = np.clip(steps, -7, 7)
    places = np.arange(min(steps.min(), -2), max(steps.max(), 2) + 1)
    counts = [int((steps == place).sum()) for place in places]
    names = [_factor(place) for place in places]
    ax = plots.new_axes(
        question, x="Prediction / measurement", y="Learners", ax=ax, size=(7.2, 3.2)
    )
    looks = [plots.style(0 if place == 0 else 1) for place in places]
    drawn = ax.bar(range(len(places)), counts, 0.8, color=[look.color for look in looks])
    for bar, look in zip(drawn, looks, strict=True):
        bar.set(hatch=look.hatch, edgecolor="white", linewidth=0)
    ax.bar_label(drawn, [str(count) if count else "" for count in counts], fontsize=9)
    ax.set_xticks(range(len(places)), names)
    ax.yaxis.get_major_locator().set_params(integer=True)
    right = counts[list(places).index(0)]
    plots.describe(
        ax,
        f"{right} of {len(pairs)} predictions have the right size (within a factor of 1.4).",
        table=Table(
            ["prediction / measurement", "learners"], list(zip(names, counts, strict=True))
        ),
    )
    return ax


def machines(figures: Sequence[tuple[str, float, float]], *, ax: Axes | None = None) -> Axes:
    """Draw alpha against bandwidth for every machine of the class.

    Args:
        figures: `(machine, alpha in seconds, beta in seconds per byte)`.
        ax: Where to draw; axes of its own if not given.
    """
    ax = plots.new_axes(
        "The machines of this class",
        x="Latency alpha", xunit="µs", y="Bandwidth 1 / beta", yunit="GB/s",
        xscale="log", yscale="log", ax=ax,
    )  # fmt: skip
    kinds = list(dict.fromkeys(name for name, _, _ in figures))
    for series, kind in enumerate(kinds):
        look = plots.style(series)
        mine = [(alpha * 1e6, 1e-9 / beta) for name, alpha, beta in figures if name == kind]
        ax.plot(*zip(*mine, strict=True), look.marker, color=look.color, alpha=0.75, label=kind)
    if 0 < len(kinds) <= len(plots.STYLES):
        ax.legend(frameon=False, fontsize=8)
    rows = [(name, alpha * 1e6, 1e-9 / beta) for name, alpha, beta in figures]
    plots.describe(
        ax,
        f"{len(rows)} machines of {len(kinds)} kinds.",
        table=Table(["machine", "alpha [µs]", "bandwidth [GB/s]"], rows),
    )
    return ax


def _factor(step: int) -> str:
    if step == 0:
        return "right size"
    return f"{2**step}×" if step > 0 else f"1/{2**-step}"
