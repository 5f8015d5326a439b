"""The look of every picture, and the few shapes that most of them need.

Functions take data and `ax`, draw into it and return it; nothing here measures or computes.

    ax = new_axes("Time of one call", x="Pairs", y="Time", yunit="µs")
    line(ax, pairs, medians, low=p10, high=p90, label="free", series=0)
    stamp(ax, Tier.MEASURED, records[0].provenance)
    describe(ax, "The time of a call grows from 300 to 1400 µs between 1 and 8 pairs.")

Each series has its own colour, marker, dash and hatch, so that a picture survives colour blindness
and a black and white printer. The palette is Okabe and Ito's, "Color Universal Design" (2008).
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator

from labkit.measure.records import Record, Tier, tiers_of
from labkit.measure.tables import Table
from labkit.show import alt_text
from labkit.show.alt_text import describe, save

__all__ = [
    "FAINT", "INK", "SOFT", "STYLES", "Style", "bars", "describe", "ladder", "line", "matrix",
    "new_axes", "new_figure", "save", "spread", "stamp", "stamp_published", "style",
]  # fmt: skip

BUSY = 0.25  # CPUs that other programs may use before a picture says so
_PER_SECOND = {"µs": 1e6, "ms": 1e3}
INK, SOFT, FAINT = "#222222", "#666666", "#dddddd"
_SHADES = LinearSegmentedColormap.from_list("labkit", ["#f3f7fb", "#7fb3d5", "#0b4a7d"])


@dataclass(frozen=True, slots=True)
class Style:
    """How one series looks; no part of it is shared with another series."""

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
_MARKS = {"linewidth": 1.9, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.7}
_NOT_MEASURED: dict[str, dict[str, Any]] = {
    Tier.MODELLED: {"color": STYLES[6].color, "linestyle": (0, (4, 2)), "linewidth": 1.4},
    Tier.PUBLISHED: {"color": SOFT, "marker": "o", "mfc": "none", "ls": ":", "linewidth": 1.2},
}


def style(series: int) -> Style:
    """Return the style of the series of that number; they repeat after the last."""
    return STYLES[series % len(STYLES)]


def new_figure(
    rows: int = 1, columns: int = 1, *, title: str = "", size: tuple[float, float] = (10, 4.2)
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its panels, row by row. Dress each with `new_axes(..., ax=panel)`."""
    alt_text.show_in_notebook()
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
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
    size: tuple[float, float] = (7.2, 4.2),
    pad: float = 10,
) -> Axes:
    """Make axes in labkit's look, or dress the ones given.

    The title says what the picture says; `x` and `y` what the axes show. With the unit `bytes`
    ticks read KiB, MiB, GiB. Scales are `linear` or `log`. The size is in inches, for a figure of
    its own; `pad` points are between picture and title.
    """
    if ax is None:
        ax = new_figure(size=size)[1][0]
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(colors=SOFT, labelcolor=INK, labelsize=9, length=3)
    ax.grid(visible=True, axis="y", color=FAINT, linewidth=0.8)
    characters = int(ax.get_position().width * alt_text.figure_of(ax).get_figwidth() * 11.5)
    heading = textwrap.fill(title, max(characters, 20))
    ax.set_title(heading, loc="left", fontsize=11.5, fontweight="bold", color=INK, pad=pad)
    _dress(ax.xaxis, x, unit=xunit, scale=xscale)
    _dress(ax.yaxis, y, unit=yunit, scale=yscale)
    return ax


def stamp(
    ax: Axes, tier: str | Iterable[str], provenance: Any = None, *, note: str = "", others: Any = 0
) -> Axes:
    """Say under the picture how its figures came to be: the tier, and where and when.

    A panel that shows several tiers names them all. The provenance is a `records.Provenance`; the
    note may say more, such as a model's parameters; `others` are CPUs that other programs used.
    """
    tiers = [tier] if isinstance(tier, str) else tier
    parts = [" + ".join(map(str, tiers)), str(provenance) if provenance else "", note]
    if others and others > BUSY:
        parts.append(f"other programs used up to {others:.1f} CPUs")
    figure = alt_text.figure_of(ax)
    stamps = alt_text.of(figure).stamps
    stamps[ax] = " · ".join(part for part in parts if part)
    panels: dict[str, list[str]] = {}
    for panel, stamped in stamps.items():
        panels.setdefault(stamped, []).append(panel.get_title(loc="left"))
    width, lines = int(figure.get_figwidth() * 17.5), list(panels)
    if len(lines) > 1:
        lines = [f"{'; '.join(titles)}: {stamped}" for stamped, titles in panels.items()]
    text = "\n".join(textwrap.fill(line, width) for line in lines)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=7.5, color=SOFT)
    return ax


def stamp_published(ax: Axes, *figures: Any, note: str = "") -> Axes:
    """Stamp a picture with the `source` of each figure; the only way to stamp PUBLISHED."""
    sources = "; ".join(dict.fromkeys(str(figure.source) for figure in figures))
    return stamp(ax, Tier.PUBLISHED, note=f"{sources}; {note}" if note else sources)


def line(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[float],
    *,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    label: str = "",
    series: int = 0,
    kind: str = Tier.MEASURED,
) -> Axes:
    """Draw a series: medians as marks on a line, 10th to 90th percentile as a band.

    What is MODELLED is thin and dashed, without marks, because nobody measured it; somebody else's
    figures, PUBLISHED, are hollow grey marks. Neither takes a style by `series`.
    """
    look, measured = style(series), kind not in _NOT_MEASURED
    ours = {"color": look.color, "marker": look.marker, "linestyle": look.linestyle, **_MARKS}
    ax.plot(x, y, label=label or None, **(ours if measured else _NOT_MEASURED[kind]))
    if low is not None and high is not None:
        ax.fill_between(x, low, high, color=look.color, alpha=0.16, linewidth=0)
    if measured and ax.get_yscale() == "linear":  # cut off, it makes differences look larger
        ax.update_datalim([(x[0], 0)])
        ax.autoscale_view()
    _note_data(ax, label if measured else f"{label} ({kind})", x, y, low, high)
    return _legend(ax, label)


def bars(
    ax: Axes,
    labels: Sequence[str],
    values: Sequence[float],
    *,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    crosses: Mapping[int, float] | None = None,
    series: int | Sequence[int] = 0,
    value_format: str | None = None,
) -> Axes:
    """Draw horizontal bars from top to bottom, each with its spread and its figure written out.

    Values are medians, `low` and `high` the 10th and 90th percentiles. Crosses mark a figure beside
    a bar, by the bar's number. `series` is the style of all bars, or one each. A figure is written
    like `{:.2f} S`, with three digits if no format is given.
    """
    middles = np.asarray(values, dtype=float)
    looks = [style(int(s)) for s in np.broadcast_to(series, len(middles))]
    place = np.arange(len(middles))
    colors, hatches = [look.color for look in looks], [look.hatch for look in looks]
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.0}
    ax.barh(place, middles, height=0.62, color=colors, hatch=hatches, **edge)
    ends = middles.copy()
    if low is not None and high is not None:
        spread = np.clip([middles - np.asarray(low), np.asarray(high) - middles], 0, None)
        ax.errorbar(values, place, xerr=spread, fmt="none", ecolor=INK, elinewidth=1.1, capsize=3)
        ends = np.array(high, dtype=float)
    if crosses:
        marks: dict[str, Any] = {"color": "black", "ms": 8, "mec": "white", "ls": "none"}
        ax.plot(list(crosses.values()), list(crosses), "X", **marks)
        room = 0.12 * max(*ends, *crosses.values())  # a figure stands by its bar if it fits there
        for number, cross in crosses.items():
            if ends[number] < cross < ends[number] + room:
                ends[number] = cross
    box: dict[str, Any] = {"fc": "white", "ec": "none", "alpha": 0.85, "pad": 0.5}
    words: dict[str, Any] = {"va": "center", "fontsize": 9, "color": INK, "bbox": box}
    beside: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points"}
    for at, end, value in zip(place, ends, middles, strict=True):  # above a line drawn later
        ax.annotate(_written(value, value_format), (end, at), zorder=4, **beside, **words)
    ax.set_yticks(place, labels)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x", color=FAINT, linewidth=0.8)
    ax.spines["left"].set_visible(False)
    ax.margins(x=0.14)
    ax.set(xlim=(0, None), ylim=(len(values) - 0.5, -0.5))
    _note_data(ax, "", labels, values, low, high)
    return ax


def ladder(
    records: Sequence[Record],
    *,
    title: str,
    x: str = "Time",
    unit: Literal["µs", "ms"] = "ms",
    names: Sequence[str] | None = None,
    series: int | Sequence[int] = 0,
    value_format: str | None = None,
    note: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw records as bars below each other, each beside what a model predicted for it.

    A cross marks `Record.predicted` where there is one; a bar is named by its record's case if no
    names are given. The picture is stamped with the records' tiers, provenance and the note, and
    described in words; where other programs took CPUs meanwhile, it says how many. The other
    arguments are those of `new_axes` and `bars`.
    """
    names = [record.case for record in records] if names is None else names
    ax = new_axes(title, x=x, xunit=unit, ax=ax, size=(9, 1.4 + 0.42 * len(records)))
    medians, band = spread(records, unit)
    scale = _PER_SECOND[unit]
    predicted = {y: scale * r.predicted for y, r in enumerate(records) if r.predicted is not None}
    marks: dict[str, Any] = {"crosses": predicted, "series": series, **band}
    bars(ax, names, medians, value_format=value_format, **marks)
    others = max((record.others or 0.0 for record in records), default=0.0)
    in_words = [
        f"{name} {_written(median, value_format).strip()} {unit}"
        + (f" (model {predicted[y]:.3g})" if y in predicted else "")
        for y, (name, median) in enumerate(zip(names, medians, strict=True))
    ]
    describe(ax, f"{title}. {'; '.join(in_words)}.")
    note = "; ".join(filter(None, [note, "crosses: MODELLED" if predicted else ""]))
    return stamp(ax, tiers_of(records), records[0].provenance, note=note, others=others)


def matrix(
    ax: Axes,
    values: Any,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    value_format: str | None = None,
    shades_from: tuple[float, float] | None = None,
) -> Axes:
    """Draw a matrix as a heat map with its figures written in; NaN stays empty.

    `shades_from` has the values of the lightest and the darkest shade; if not given, they are the
    extremes drawn.
    """
    values = np.asarray(values, dtype=float)
    lowest, highest = shades_from or (np.nanmin(values), np.nanmax(values))
    ax.imshow(np.ma.masked_invalid(values), cmap=_SHADES, aspect="auto", vmin=lowest, vmax=highest)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = highest > lowest and (value - lowest) > 0.55 * (highest - lowest)
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
            look["in_layout"] = False  # they lie inside: to fit them in takes as long as to draw
            ax.text(j, i, _written(value, value_format), color="white" if dark else INK, **look)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    table = [[name, *map(float, row)] for name, row in zip(rows, values, strict=True)]
    alt_text.of(ax).drawn.append((ax, Table(["", *columns], table)))
    return ax


def spread(
    records: Sequence[Record], unit: Literal["µs", "ms"]
) -> tuple[list[float], dict[str, list[float]]]:
    """Return what `line` and `bars` draw of records: medians, and the band around them."""
    scale = _PER_SECOND[unit]
    summaries = [record.summary for record in records]
    band = {"low": [s.p10 * scale for s in summaries], "high": [s.p90 * scale for s in summaries]}
    return [s.median * scale for s in summaries], band


def _note_data(ax: Axes, label: str, x: Any, y: Any, low: Any = None, high: Any = None) -> None:
    """Note what was drawn, for the data table."""
    if len(x) and isinstance(x[0], str):  # bars
        names, columns = ["", ax.get_xlabel() or "value"], [list(x), list(map(float, y))]
    else:
        names = [ax.get_xlabel() or "x", ax.get_ylabel() or "y"]
        columns = [list(map(float, x)), list(map(float, y))]
    if low is not None and high is not None:
        names += ["10th percentile", "90th percentile"]
        columns += [list(map(float, low)), list(map(float, high))]
    alt_text.of(ax).drawn.append((ax, Table(names, list(zip(*columns, strict=True)), label)))


def _written(value: float, value_format: str | None) -> str:
    if value_format is not None:
        return value_format.format(value)
    return f"{float(f'{value:.3g}'):,.10g}" if 1e-3 <= abs(value) < 1e7 else f"{value:.3g}"


def _legend(ax: Axes, label: str) -> Axes:
    """Name the series: inside the axes where there is room, below them when there are many."""
    if label:
        labels = ax.get_legend_handles_labels()[1]
        columns = 3 if max(map(len, labels)) < 30 else 1
        below: dict[str, Any] = {}
        if len(labels) >= 5:
            corner = 0, -0.16 if columns > 1 else -0.24
            below = {"loc": "upper left", "bbox_to_anchor": corner, "ncols": columns}
        ax.legend(framealpha=0.85, edgecolor="none", fontsize=9, handlelength=3.2, **below)
    return ax


def _dress(axis: Axis, name: str, *, unit: str, scale: str) -> None:
    """Give an axis its name, unit, scale and ticks."""
    axis.set_label_text(f"{name} [{unit}]" if unit and unit != "bytes" else name, fontsize=10)
    set_scale = axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale
    in_bytes = unit == "bytes"
    if scale == "log":
        set_scale("log", base=2 if in_bytes else 10)
        axis.set_minor_formatter(FuncFormatter(lambda value, _: _between(axis, value)))
        if in_bytes:
            axis.set_major_locator(LogLocator(base=2, numticks=9))
            axis.set_minor_locator(LogLocator(base=2, numticks=1))
        axis.set_major_formatter(FuncFormatter(_as_bytes if in_bytes else _plain))
    elif in_bytes:
        axis.set_major_formatter(FuncFormatter(_as_bytes))


def _as_bytes(nbytes: float, _: int | None = None) -> str:
    """Write a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} PiB"


def _between(axis: Axis, value: float) -> str:
    """Label the twos and fives as well where the axis has hardly a decade to label."""
    low, high = axis.get_view_interval()
    wanted = high < 60 * low and f"{value:.0e}"[0] in "25"
    return _plain(value) if wanted else ""


def _plain(value: float, _: int | None = None) -> str:
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}"
