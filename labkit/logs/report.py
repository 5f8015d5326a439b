"""What a report says of other tools' logs: tables, curves beside the wire, doubts, fits, outliers.

    page = Page("Our cluster")
    for log in together(logs.read(files)):
        add(page, log)

A figure above the wire is not a fault: several cards, a tree or a switch that adds can explain it,
and so can a stopwatch that stops early. The doubts name which of these would do.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

from labkit.logs.logs import P2P_TEST, Log
from labkit.logs.page import Page
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.measure.timing import summarize
from labkit.show import plots

NVLINK = {
    "V100-SXM2": 150e9,
    "V100-SXM3": 150e9,
    "A100-SXM": 300e9,
    "H100 80GB HBM3": 450e9,
    "H200": 450e9,
    "B200": 900e9,
}
"""Bytes per second of a GPU's NVLinks in one direction: half of what NVIDIA's data sheets state
(V100 300, A100 600, H100 and H200 900, B200 1800 GB/s). By a part of the GPU's name."""
SLOW = 0.8
"""Below this share of what is usual a record is slow."""
_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_MOST_ROWS, _MOST_CURVES = 400, 7

Series = dict[tuple, dict[int, list[Record]]]
"""What is the same but for its size; by size, what was measured, perhaps on several hosts."""


def together(logs: Sequence[Log]) -> list[Log]:
    """Put the logs of one tool into one where there are more than four of it."""
    tools: dict[str, list[Log]] = defaultdict(list)
    for log in logs:
        tools[log.tool].append(log)
    found = []
    for tool, own in tools.items():
        if len(own) <= 4 or tool == P2P_TEST:
            found += own
            continue
        whole = Log(tool, [path for log in own for path in log.paths])
        for log in own:
            whole.records += log.records
            whole.findings += log.findings
            whole.problems += log.problems
        found.append(whole)
    return found


def add(page: Page, log: Log, *, card: float | None = None) -> None:
    """Add a section for one log.

    `card`: bytes per second of one network card; inferred from the log if not given.
    """
    files = f"{len(log.paths)} files" if len(log.paths) > 1 else log.paths[0].name
    page.heading(f"{log.tool}: {files}")
    timed = [record for record in log.records if record.samples]
    known = [r for r in timed if r.busbw and not r.params.get("in_place")]
    card = card or one_card(known)
    page.table(Table(["", ""], _facts(log, card)))
    if log.problems:
        rows = [[problem] for problem in log.problems[:_MOST_ROWS]]
        page.table(Table([f"could not be read: {len(log.problems)}"], rows))
    for finding in log.findings:
        page.text(finding)
    if log.tool == P2P_TEST:
        for record in log.records:
            page.picture(_matrix(record))
        return
    for part in _pictures(known):
        page.picture(_curves(part, card))
    for table in (_doubts(known, card), _fits(known), _outliers(known),
                  _figures(timed)):  # fmt: skip
        if table.rows:
            page.table(table)


def _facts(log: Log, card: float | None) -> list[list[str]]:
    def told(values: Iterable[object], most: int = 8) -> str:
        known = list(dict.fromkeys(str(value) for value in values if value))
        more = f" and {len(known) - most} more" if len(known) > most else ""
        return ", ".join(known[:most]) + more

    records = log.records
    facts = {
        "files": told(path.name for path in log.paths),
        "tier": str(Tier.RECORDED),
        "measured on": told((record.provenance for record in records), most=3),
        "nccl-tests": told(record.params.get("tests") for record in records),
        "network": told(record.params.get("network") for record in records),
        "settings": told((record.params.get("settings") for record in records), most=3),
        "hosts": told(host for record in records for host in record.values.get("hosts", ())),
    }
    if card and any((record.params.get("hosts") or 0) > 1 for record in records):
        facts["one network card"] = (
            f"{card / 1e9:.3g} GB/s: given, or what one GPU per host reached"
        )
    return [[name, text] for name, text in facts.items() if text]


def _wire(record: Record, card: float | None) -> float | None:
    """Return what one rank can send, in bytes per second: NVLink inside a host, a card between."""
    if record.params.get("hosts") == 1:
        names = record.provenance.machine.gpus
        return next((x for part, x in NVLINK.items() if names and part in names[0]), None)
    return card if record.params.get("hosts") else None


def one_card(records: Iterable[Record]) -> float | None:
    """Return the most that any run with one GPU per host reached between hosts: about one card."""
    alone = [
        record.busbw
        for record in records
        if (record.params.get("hosts") or 1) > 1
        and record.params.get("gpus_per_host") == 1
        and record.busbw
    ]
    return max(alone, default=None)


def _explain(record: Record, wire: float) -> str | None:
    """Say what would explain a bus bandwidth above the wire; None where it is not above.

    Sources: nccl-tests, doc/PERFORMANCE.md (bus bandwidth is a ring's); lesson 06 (a tree between
    two hosts, a switch that adds) and lesson 07 (rails) of this course.
    """
    ratio = (record.busbw or 0.0) / wire
    if ratio <= 1.02:
        return None
    n, hosts = record.world_size, record.params.get("hosts") or 1
    each, adds = record.params.get("gpus_per_host") or 1, record.collective == "all_reduce"
    told = []
    if hosts > 1 and record.collective == "all_to_all" and ratio <= 1.05 * (n - 1) / (n - each):
        told.append(f"only {n - each} of {n - 1} parts of each rank's bytes leave its host")
    if hosts > 1 and each > 1 and record.collective in _RINGS and ratio <= 1.05 * each:
        told.append(f"rails: {each} cards per host, each with a ring of its own")
    if hosts == 2 and adds and ratio <= 2.1 * each:
        told.append("a tree: between two hosts it sends S each way, a ring almost 2 S")
    if adds and ratio <= 1.05 * 2 * (n - 1) / (n + 1) * (each if hosts > 1 else 1):
        told.append("a switch that adds: (n+1)/n S cross a link, not 2(n-1)/n S")
    told = told or [
        "a stopwatch that stops before the work is done; another collective than the name says; "
        "sizes per rank in one place and in total in another; or a faster wire than assumed"
    ]
    return "; or ".join(told)


def _doubts(records: Sequence[Record], card: float | None) -> Table:
    """List the highest figure of each series that is above its wire, and what would explain it."""
    rows = []
    for name, sizes in _series(records).items():
        best = max((r for part in sizes.values() for r in part), key=lambda record: record.busbw)
        speed = _wire(best, card)
        if speed is not None and (said := _explain(best, speed)):
            highest = best.busbw / 1e9, speed / 1e9, best.busbw / speed
            rows.append([_name(name), best.nbytes, *(round(x, 2) for x in highest), said])
    columns = ["above the wire", "bytes", "busbw GB/s", "wire GB/s", "times", "would explain it"]
    return Table(columns, rows)


def _curves(records: Sequence[Record], card: float | None) -> Axes:
    """Draw bus bandwidth over size beside the wire, a line per collective and set of ranks.

    Where there are several records of a size (of several hosts, say) the line is their median, with
    a band from the 10th to the 90th percentile.
    """
    ax = plots.new_axes(
        "Bus bandwidth by size", x="S, the largest buffer of a rank", xunit="bytes",
        y="busbw", yunit="GB/s", xscale="log",
    )  # fmt: skip
    best, series = {}, _series(records)
    for number, (name, sizes) in enumerate(series.items()):
        spread = [summarize([r.busbw / 1e9 for r in part]) for part in sizes.values()]
        band = {"low": [s.p10 for s in spread], "high": [s.p90 for s in spread]}
        several = band if any(summary.count > 1 for summary in spread) else {}
        middle = [summary.median for summary in spread]
        plots.line(ax, list(sizes), middle, label=_name(name), series=number, **several)
        best[_name(name)] = max(middle)
    span = [min(r.nbytes for r in records), max(r.nbytes for r in records)]
    for speed in sorted({_wire(record, card) for record in records} - {None}):
        plots.model_line(ax, span, [speed / 1e9] * 2, label=f"one rank's wire, {speed / 1e9:.4g}")
    places = [(r.provenance.machine.gpus[:1], r.provenance.backend) for r in records]
    known = dict.fromkeys(word for gpu, library in places for word in (*gpu, library))
    plots.stamp(ax, Tier.RECORDED, note=", ".join(known))
    top = max(best, key=best.get)
    said = f"Bus bandwidth of {len(series)} series; the highest, {top}, reaches {best[top]:.3g}"
    plots.describe(ax, f"{said} GB/s.")
    return ax


def _matrix(record: Record) -> Axes:
    """Draw a matrix of the P2P test, and say which pairs are slower than is usual."""
    latency = bool(record.params.get("latency"))
    values = np.array(record.values["matrix"], dtype=float) * (1e6 if latency else 1e-9)
    names = [f"GPU {i}" for i in range(len(values))]
    columns = [f"GPU {i}" for i in range(values.shape[1] if values.ndim == 2 else 0)]
    unit = "µs" if latency else "GB/s"
    ax = plots.new_axes(f"{record.case} [{unit}]", x="to", y="from")
    plots.matrix(ax, values, rows=names, columns=columns, log=not latency)
    plots.stamp(ax, Tier.RECORDED, record.provenance)
    pairs = {(i, j): x for (i, j), x in np.ndenumerate(values) if i != j and np.isfinite(x)}
    said = f"{record.case}, {len(names)} GPUs."
    if pairs:
        usual = statistics.median(pairs.values())
        bad = [p for p, x in pairs.items() if (x * SLOW > usual if latency else x < SLOW * usual)]
        said += f" Between two GPUs {usual:.3g} {unit} is usual."
        if bad and len(bad) < len(pairs) / 2:
            said += f" Slower by a fifth or more: {', '.join(f'{i} to {j}' for i, j in bad[:20])}."
    plots.describe(ax, said)
    return ax


def _figures(records: Sequence[Record]) -> Table:
    """Lay out medians of times and bus bandwidths, out of place and in place side by side."""
    rows: dict[tuple, list] = {}
    for in_place in (False, True):
        own = [record for record in records if bool(record.params.get("in_place")) == in_place]
        for name, sizes in _series(own).items():
            for nbytes, part in sizes.items():
                row = rows.setdefault((name, nbytes), [_name(name), nbytes, *[None] * 6])
                at = 5 if in_place else 2
                row[at] = f"{1e6 * statistics.median(r.summary.median for r in part):,.2f}"
                known = [record.busbw / 1e9 for record in part if record.busbw is not None]
                row[at + 1] = round(statistics.median(known), 2) if known else None
                row[at + 2] = sum(record.summary.count for record in part)
    columns = ["case", "bytes", "µs", "busbw GB/s", "samples"]
    columns += ["in place: µs", "busbw GB/s", "samples"]
    shown = list(rows.values())
    title = "" if len(shown) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(shown)} rows"
    return Table(columns, shown[:_MOST_ROWS], title)


def _fits(records: Sequence[Record]) -> Table:
    """Fit alpha + beta S to each series of three sizes; say where the line is farthest off."""
    rows = []
    for name, sizes in _series(records).items():
        if len(sizes) < 3:
            continue
        times = [statistics.median(r.summary.median for r in part) for part in sizes.values()]
        alpha, beta = _alpha_beta(list(sizes), times)
        errors = [(alpha + beta * s) / t - 1 for s, t in zip(sizes, times, strict=True)]
        worst = max(range(len(errors)), key=lambda i: abs(errors[i]))
        row = [_name(name), round(alpha * 1e6, 2), round(1e-9 / beta, 3)]
        row += [f"{statistics.median(map(abs, errors)):.1%}", f"{errors[worst]:+.0%}"]
        rows.append([*row, list(sizes)[worst]])
    columns = ["alpha + beta S", "alpha µs", "1/beta GB/s", "median error", "worst", "at bytes"]
    title = (
        "A worst error far above the median one is a jump that no line can make: a change of "
        "protocol, algorithm or path."
    )
    return Table(columns, rows, title)


def _alpha_beta(nbytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Fit ``alpha + beta nbytes`` by least squares of the relative error, neither below zero."""
    sizes, times = np.array(nbytes, dtype=float), np.array(seconds)
    design = np.stack([1 / times, sizes / times], axis=1)
    alpha, beta = np.linalg.lstsq(design, np.ones(len(times)), rcond=None)[0]
    if alpha < 0:
        alpha, beta = 0.0, float(np.sum(sizes / times) / np.sum((sizes / times) ** 2))
    if beta <= 0:
        alpha, beta = float(np.sum(1 / times) / np.sum(times**-2)), 1e-30
    return float(alpha), float(beta)


def _outliers(records: Sequence[Record]) -> Table:
    """Compare hosts by the records in which each takes part, among records of one series and size.

    A record is slow below `SLOW` of their median. Of a slow pair the log does not say whose fault
    it is: the host that is in most of the slow ones is suspect. Hosts stand in rows, the worst
    first; there are none where nothing is slow.
    """
    named = [record for record in records if record.values.get("hosts")]
    shares: dict[str, list[float]] = defaultdict(list)
    for part in (part for sizes in _series(named).values() for part in sizes.values()):
        if len({tuple(record.values["hosts"]) for record in part}) < 3:
            continue  # fewer than three places: nothing is usual
        usual = statistics.median(record.busbw for record in part)
        for record in part:
            for host in record.values["hosts"]:
                shares[host].append(record.busbw / usual)
    rows = [
        [host, len(own), sum(share < SLOW for share in own), statistics.median(own), min(own)]
        for host, own in shares.items()
    ]
    rows.sort(key=lambda row: (-row[2] / row[1], row[3]))
    columns = ["host", "records", f"below {SLOW:g} of usual", "median share", "lowest share"]
    slow = any(row[2] for row in rows)
    rows = [[*row[:3], round(row[3], 3), round(row[4], 3)] for row in rows if slow]
    return Table(columns, rows, "A slow pair accuses both: measure the first ones again, alone.")


def _key(record: Record) -> tuple:
    params = record.params
    name = record.collective or record.case.partition(",")[0]
    about = (params.get(key) for key in ("hosts", "gpus_per_host", "world_size", "dtype", "redop"))
    return name, *about, params.get("settings")


def _name(key: tuple) -> str:
    collective, hosts, each, n, *_, settings = key
    ranks = f"{hosts} x {each}" if hosts and each else f"{n} ranks"
    return f"{collective}, {ranks}" + (f", {settings[:40]}" if settings else "")


def _series(records: Iterable[Record]) -> Series:
    """Put together what differs in size only, in rising order."""
    found: Series = defaultdict(lambda: defaultdict(list))
    for record in sorted(records, key=lambda record: record.nbytes or 0):
        found[_key(record)][record.nbytes].append(record)
    return found


def _pictures(records: Sequence[Record]) -> list[list[Record]]:
    """Divide what is drawn into pictures that can be read: all in one, or by collective."""
    series = [[r for part in sizes.values() for r in part] for sizes in _series(records).values()]
    if len(series) <= _MOST_CURVES:
        return [list(records)] if records else []
    names = sorted({own[0].collective for own in series})
    pictures = []
    for name in names:
        own = [one for one in series if one[0].collective == name]
        for at in range(0, len(own), _MOST_CURVES):
            pictures.append([r for one in own[at : at + _MOST_CURVES] for r in one])
    return pictures[:12]
