"""Runs of one experiment side by side: this machine's, a cluster's, a recorded one."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from labkit.measure.records import Record, tiers_of
from labkit.measure.tables import Table
from labkit.show import plots

SETTINGS = ("place", "hosts", "rate")
"""Parameters that say where a case ran; the others say what ran."""


def draw_runs(runs: Mapping[str, Sequence[Record]], *, ax: Axes | None = None) -> Axes:
    """Draw the cases that runs have in common: a row per case, a mark per run and setting.

    Where all of them moved known bytes it is bus bandwidth, which may be compared between sizes
    and numbers of ranks; else it is time. Runs are records of one experiment, by name.

    Raises:
        ValueError: The runs have no case in common.
    """
    rows = _in_common(runs)
    bandwidth = all(record.busbw for row in rows.values() for record in row.values())
    quantity, unit = ("Bus bandwidth", "MB/s") if bandwidth else ("Time", "ms")
    figures = {
        case: {name: _figures(record, bandwidth=bandwidth) for name, record in row.items()}
        for case, row in rows.items()
    }
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    ax = plots.new_axes(
        "The same cases, here and elsewhere", x=f"{quantity}, median and 10th to 90th percentile",
        xunit=unit, xscale="log", ax=ax, size=(8.5, 2.2 + 0.36 * len(rows)),
    )  # fmt: skip
    offsets = 0.16 * (np.arange(len(names)) - (len(names) - 1) / 2)
    origins = []
    for series, (name, offset) in enumerate(zip(names, offsets, strict=True)):
        look = plots.style(series)
        there = {at: row[name] for at, row in enumerate(figures.values()) if name in row}
        low, middle, high = np.array(list(there.values())).T
        found = [row[name] for row in rows.values() if name in row]
        origins.append(f"{name}: {tiers_of(found)}, {found[0].provenance}")
        ax.errorbar(
            middle, np.array(list(there)) + offset,
            xerr=np.clip([middle - low, high - middle], 0, None),
            fmt=look.marker, color=look.color, capsize=2, label=origins[-1],
        )  # fmt: skip
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(visible=True, axis="x", color=plots.FAINT, linewidth=0.8)
    ax.get_figure(root=True).legend(loc="outside lower left", frameon=False, fontsize=8)
    lines = [[c, *(row[n][1] if n in row else None for n in names)] for c, row in figures.items()]
    short = "busbw" if bandwidth else "time"
    table = Table(["case", *(f"{name}: {short} [{unit}]" for name in names)], lines)
    said = [f"{quantity} in {unit} of {len(rows)} cases in common", *origins]
    plots.describe(ax, ". ".join(said) + ".", table=table)
    return ax


def _in_common(runs: Mapping[str, Sequence[Record]]) -> dict[str, dict[str, Record]]:
    """Find the cases that two runs or more have: by case, then by run and setting."""
    rows: dict[str, dict[str, Record]] = {}
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


def _figures(record: Record, *, bandwidth: bool) -> tuple[float, float, float]:
    """Return the low end, the median and the high end of what is compared."""
    times = record.summary
    if not bandwidth:
        return times.p10 * 1e3, times.median * 1e3, times.p90 * 1e3
    moved = record.busbw * times.median / 1e6
    return moved / times.p90, moved / times.median, moved / times.p10


def _by_setting(run: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Part one run's timed records by where they ran."""
    parts: dict[str, list[Record]] = {}
    for record in records:
        if record.samples and record.samples[0]:
            found = {key: record.params[key] for key in SETTINGS if record.params.get(key)}
            where = [f"{v} hosts" if key == "hosts" else str(v) for key, v in found.items()]
            parts.setdefault(", ".join([run, *where]), []).append(record)
    return {run: parts.popitem()[1]} if len(parts) == 1 else parts


def _by_case(records: Sequence[Record]) -> dict[str, Record]:
    """Name records by case, and where a case repeats by what tells its records apart."""
    found = {}
    for record in records:
        same = [other.params for other in records if other.case == record.case]
        apart = [
            f"{key}={value}"
            for key, value in record.params.items()
            if any(params.get(key) != value for params in same)
        ]
        found[", ".join([record.case, *apart])] = record
    return found
