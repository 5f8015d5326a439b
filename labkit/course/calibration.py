"""The learner's calibration curve: every prediction beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

from labkit.measure.tables import Table
from labkit.show import plots


def draw(
    predictions: Sequence[tuple[str, float, float]],
    *,
    tiers: Iterable[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw how far each prediction was from its measurement, in the order in which they come.

    A mark on the line is exact; one step up is twice too much, one step down half. The band is
    a factor of two.

    Args:
        predictions: `(name, predicted, measured)`, both positive.
        tiers: Those of the measurements.
        ax: Where to draw; axes of its own if not given.
    """
    names = [name for name, _, _ in predictions]
    factors = np.array([predicted / measured for _, predicted, measured in predictions])
    ax = plots.new_axes(
        "How far off were your predictions?",
        y="Predicted / measured",
        yscale="log",
        ax=ax,
    )
    place = np.arange(len(names))
    ax.axhspan(0.5, 2, color=plots.FAINT, alpha=0.5, zorder=0)
    ax.axhline(1, color=plots.SOFT, linewidth=1)
    ax.vlines(place, 1, factors, color=plots.FAINT, linewidth=2, zorder=1)
    for series, far in enumerate((np.maximum(factors, 1 / factors) <= 2, None)):
        shown = far if far is not None else np.maximum(factors, 1 / factors) > 2
        look = plots.style(series)
        label = "within a factor of 2" if series == 0 else "farther off"
        ax.plot(place[shown], factors[shown], look.marker, color=look.color, label=label, zorder=2)
    widest = max(4.0, *np.maximum(factors, 1 / factors) * 1.3) if len(factors) else 4.0
    ax.set_ylim(1 / widest, widest)
    ax.set_xticks(place, names, rotation=45, ha="right")
    if names:
        ax.legend(frameon=False, fontsize=9)
    else:
        said = "no prediction yet that was committed before its measurement"
        ax.text(0.5, 0.55, said, transform=ax.transAxes, ha="center", color=plots.SOFT)
    if shown_tiers := list(dict.fromkeys(tiers)):
        plots.stamp(ax, shown_tiers, note="what the predictions are held against")
    rows = [(name, float(p), float(m), float(p / m)) for name, p, m in predictions]
    inside = int((np.maximum(factors, 1 / factors) <= 2).sum()) if len(factors) else 0
    plots.describe(
        ax,
        f"{inside} of {len(names)} predictions are within a factor of two of the measurement.",
        table=Table(["prediction", "predicted", "measured", "ratio"], rows),
    )
    return ax
