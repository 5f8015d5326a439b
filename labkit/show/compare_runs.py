"""Runs of one experiment side by side: this machine's, a cluster's, a recorded one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.show import plots

SETTINGS = ("place", "hosts", "rate")
"""Parameters that say where a case ran; the others say what ran."""
_SPREAD = ", median and 10th to 90th percentile"
Rows = dict[str, dict[str, Record]]


def draw(runs: Mapping[str, Sequence[Record]], *, ax: Axes | None = None) -> Axes:
    """Draw the cases that runs have in common: a row per case, a mark per run and setting.

    Where all of them moved known bytes it is bus bandwidth, which may be compared between sizes
    and numbers of ranks; else it is time.

    Args:
        runs: Records by the name of their run; all of one experiment.
        ax: Where to draw; axes of its own if not given.

    Raises:
        ValueError: The runs have no case in common.
    """
    rows = in_common(runs)
    quantity, unit, figure = _measure(rows)
    ax = plots.new_axes(
        "The same cases, here and elsewhere",
        x={"busbw": "Bus bandwidth", "time": "Time"}[quantity] + _SPREAD, xunit=unit, xscale="log",
        ax=ax, size=(8.5, 2.2 + 0.36 * len(rows)),
    )  # fmt: skip
    names = columns(rows)
    offsets = 0.16 * (np.arange(len(names)) - (len(names) - 1) / 2)
    origins = []
    for series, (name, offset) in enumerate(zip(names, offsets, strict=True)):
        look = plots.style(series)
        there = {at: row[name] for at, row in enumerate(rows.values()) if name in row}
        low, middle, high = np.array([figure(record) for record in there.values()]).T
        origins.append(f"{name}: {_origin(list(there.values()))}")
        ax.errorbar(
            middle, np.array(list(there)) + offset, xerr=[middle - low, high - middle],
            fmt=look.marker, color=look.color, capsize=2, label=origins[-1],
        )  # fmt: skip
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(visible=True, axis="x", color=plots.FAINT, linewidth=0.8)
    ax.get_figure(root=True).legend(loc="outside lower left", frameon=False, fontsize=8)
    said = [f"{quantity} in {unit} of {len(rows)} cases in common", *origins]
    plots.describe(ax, ". ".join(said) + ".", table=table(rows))
    return ax


def in_common(runs: Mapping[str, Sequence[Record]]) -> Rows:
    """Find the cases that two runs or more have: by case, then by run and setting.

    Raises:
        ValueError: There is none.
    """
    rows: Rows = {}
    owners: dict[str, set[str]] = {}
    for run, records in runs.items():
        for name, part in _by_setting(run, records).items():
            for case, record in _by_case(part).items():
                rows.setdefault(case, {})[name] = record
                owners.setdefault(case, set()).add(run)
    shared = {case: row for case, row in rows.items() if len(owners[case]) > 1}
    if not shared:
        raise ValueError(f"{' and '.join(runs)} have no case in common.")
    return shared


def columns(rows: Rows) -> list[str]:
    """Return the runs and settings that any row has, in their order."""
    return list(dict.fromkeys(name for row in rows.values() for name in row))


def table(rows: Rows) -> Table:
    """Lay `in_common` out: the median of each case in each run and setting."""
    quantity, unit, figure = _measure(rows)
    names = columns(rows)
    lines = [
        [case, *(float(figure(row[name])[1]) if name in row else None for name in names)]
        for case, row in rows.items()
    ]
    return Table(["case", *(f"{name}: {quantity} [{unit}]" for name in names)], lines)


def _origin(records: Sequence[Record]) -> str:
    tiers = " + ".join(dict.fromkeys(str(record.tier) for record in records))
    return f"{tiers}, {records[0].provenance}"


def _measure(rows: Rows) -> tuple[str, str, Callable[[Record], tuple[float, float, float]]]:
    """Choose what is compared: its name, its unit, and the function to low, median and high."""
    if all(record.busbw for row in rows.values() for record in row.values()):
        return "busbw", "MB/s", _bandwidths
    return "time", "ms", _times


def _bandwidths(record: Record) -> tuple[float, float, float]:
    times = record.summary
    moved = record.busbw * times.median / 1e6
    return moved / times.p90, moved / times.median, moved / times.p10


def _times(record: Record) -> tuple[float, float, float]:
    times = record.summary
    return times.p10 * 1e3, times.median * 1e3, times.p90 * 1e3


def _by_setting(run: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Part one run's timed records by where they ran."""
    parts: dict[str, list[Record]] = {}
    for record in records:
        if record.samples and record.samples[0]:
            where = [
                f"{record.params[key]} hosts" if key == "hosts" else str(record.params[key])
                for key in SETTINGS
                if record.params.get(key) is not None
            ]
            parts.setdefault(", ".join([run, *where]), []).append(record)
    if len(parts) == 1:
        return {run: parts.popitem()[1]}
    return parts


def _by_case(records: Sequence[Record]) -> dict[str, Record]:
    """Name records by case, and where a case repeats by what tells its records apart."""
    same: dict[str, list[Record]] = {}
    for record in records:
        same.setdefault(record.case, []).append(record)
    found = {}
    for record in records:
        apart = [
            f"{key}={value}"
            for key, value in record.params.items()
            if any(other.params.get(key) != value for other in same[record.case])
        ]
        found[", ".join([record.case, *apart])] = record
    return found
