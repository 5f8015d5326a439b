"""What a report says of other tools' logs: pairs of hosts, curves beside the wire, doubts.

    page = Page("Our cluster")
    for log in together(logs.read(files)):
        add(page, log)

A figure above the wire is not a fault: several cards, a tree or a switch that adds can explain it,
and so can a stopwatch that stops early. The doubts name which of these would do.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from labkit.logs import pairs
from labkit.logs.logs import Log
from labkit.logs.nccl_debug import conclusions, merge
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

Series = dict[str, dict[int, list[Record]]]
"""By name what is the same but for its size; by size, what was measured, perhaps on many hosts."""


def together(logs: Sequence[Log]) -> list[Log]:
    """Put the logs of each tool into one; what NCCL says in several files stands there once."""
    by_tool: dict[str, Log] = {}
    for log in logs:
        whole = by_tool.setdefault(log.tool, Log(log.tool, []))
        for name in ("paths", "records", "failures", "problems"):
            getattr(whole, name).extend(getattr(log, name))
        whole.statements = merge([*whole.statements, *log.statements])
    return list(by_tool.values())


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
    for table in (_conclusions(log), _statements(log), _failures(log)):
        if table.rows:
            page.table(table)
    tested = _pairs(known, log)
    if tested:
        page.table(_speeds(tested))
        divided = sorted((one for one in tested if one.divided), key=lambda one: -len(one.slow))
        for one in divided[:_MOST_CURVES]:
            page.picture(_host_matrix(one))
    for part in _pictures(known):
        page.picture(_curves(part, card))
    for table in (_doubts(known, card), _hosts_alone(known), _figures(timed)):
        if table.rows:
            page.table(table)
    if log.problems:
        rows = [[problem] for problem in log.problems[:_MOST_ROWS]]
        title = f"What failed, could not be read or is doubtful, line by line: {len(log.problems)}"
        page.table(Table(["line"], rows), folded=title)


def _facts(log: Log, card: float | None) -> list[list[str]]:
    def listed(values: Iterable[object], most: int = 8) -> str:
        known = list(dict.fromkeys(str(value) for value in values if value))
        rest = f" and {len(known) - most} more" if len(known) > most else ""
        return ", ".join(known[:most]) + rest

    records = log.records
    slots = defaultdict(Counter)
    for record in records:
        slots[record.params.get("gpus_per_host")].update(set(record.values.get("slots", ())))
    facts = {
        "files": listed(path.name for path in log.paths),
        "tier": str(Tier.RECORDED),
        "measured on": listed((record.provenance for record in records), most=3),
        "nccl-tests": listed(record.params.get("tests") for record in records),
        "network": listed(record.params.get("network") for record in records),
        "settings": listed((record.params.get("settings") for record in records), most=3),
        "hosts": listed(host for record in records for host in record.values.get("hosts", ())),
    }
    if wrong := [one.values["row"] for one in records if one.values.get("wrong")]:
        facts["WRONG SUMS"] = f"{len(wrong)} of {len(records)} results; the first: {wrong[0]}"
    for each, used in sorted(slots.items(), key=str):
        facts[f"GPUs used, {each or '?'} per host"] = listed(sorted(used), most=16)
    if card and any((record.params.get("hosts") or 0) > 1 for record in records):
        seen = [r.values["row"] for r in _one_gpu_a_host(records) if r.busbw == card]
        source = f"the most that one GPU per host reached ({seen[0]})" if seen else "given"
        facts["one network card"] = f"{card / 1e9:.3g} GB/s: {source}"
    return [[name, text] for name, text in facts.items() if text]


def _wire(record: Record, card: float | None) -> float | None:
    """Return what one rank can send, in bytes per second: NVLink inside a host, a card between."""
    if record.params.get("hosts") == 1:
        names = record.provenance.machine.gpus
        return next((x for part, x in NVLINK.items() if names and part in names[0]), None)
    return card if record.params.get("hosts") else None


def one_card(records: Iterable[Record]) -> float | None:
    """Return the most that any run with one GPU per host reached between hosts: about one card."""
    return max((record.busbw for record in _one_gpu_a_host(records)), default=None)


def _one_gpu_a_host(records: Iterable[Record]) -> list[Record]:
    return [
        record
        for record in records
        if (record.params.get("hosts") or 1) > 1
        and record.params.get("gpus_per_host") == 1
        and not record.params.get("in_place")
        and record.busbw
    ]


def _explain(record: Record, wire: float) -> str | None:
    """Say what would explain a bus bandwidth above the wire; None where it is not above.

    Sources: nccl-tests, doc/PERFORMANCE.md (bus bandwidth is a ring's); P. Sanders, J. Speck and
    J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009);
    nccl, src/graph/tuning.cc (NVLS).
    """
    ratio = (record.busbw or 0.0) / wire
    if ratio <= 1.02:
        return None
    n, hosts = record.world_size, record.params.get("hosts") or 1
    each, adds = record.params.get("gpus_per_host") or 1, record.collective == "all_reduce"
    reasons = []
    if hosts > 1 and record.collective == "all_to_all" and ratio <= 1.05 * (n - 1) / (n - each):
        reasons.append(f"only {n - each} of {n - 1} parts of each rank's bytes leave its host")
    if hosts > 1 and each > 1 and record.collective in _RINGS and ratio <= 1.05 * each:
        reasons.append(f"rails: {each} cards per host, each with a ring of its own")
    if hosts == 2 and adds and ratio <= 2.1 * each:
        reasons.append("a tree: between two hosts it sends S each way, a ring almost 2 S")
    if adds and ratio <= 1.05 * 2 * (n - 1) / (n + 1) * (each if hosts > 1 else 1):
        reasons.append("a switch that adds: (n+1)/n S cross a link, not 2(n-1)/n S")
    reasons = reasons or [
        "a stopwatch that stops before the work is done; another collective than the name says; "
        "sizes per rank in one place and in total in another; or a faster wire than assumed"
    ]
    return "; or ".join(reasons)


def _doubts(records: Sequence[Record], card: float | None) -> Table:
    """List the highest figure of each series that is above its wire, and what would explain it."""
    rows = []
    for name, sizes in _series(records).items():
        best = max((r for part in sizes.values() for r in part), key=lambda record: record.busbw)
        speed = _wire(best, card)
        if speed is not None and (explanation := _explain(best, speed)):
            highest = best.busbw / 1e9, speed / 1e9, best.busbw / speed
            highest = (round(x, 2) for x in highest)
            rows.append([name, best.nbytes, *highest, explanation, best.values.get("row", "")])
    columns = ["above the wire", "bytes", "busbw GB/s", "wire GB/s", "times", "would explain it"]
    columns += ["row"]
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
        plots.line(ax, list(sizes), middle, label=name, series=number, **several)
        best[name] = max(middle)
    span = [min(r.nbytes for r in records), max(r.nbytes for r in records)]
    for speed in sorted({_wire(record, card) for record in records} - {None}):
        plots.model_line(ax, span, [speed / 1e9] * 2, label=f"one rank's wire, {speed / 1e9:.4g}")
    places = [(r.provenance.machine.gpus[:1], r.provenance.backend) for r in records]
    known = dict.fromkeys(word for gpu, library in places for word in (*gpu, library))
    plots.stamp(ax, Tier.RECORDED, note=", ".join(known))
    top = max(best, key=best.get)
    text = f"Bus bandwidth of {len(series)} series; the highest, {top}, reaches {best[top]:.3g}"
    plots.describe(ax, f"{text} GB/s.")
    return ax


def _figures(records: Sequence[Record]) -> Table:
    """Lay out medians of times and bus bandwidths, out of place and in place side by side."""
    rows: dict[tuple, list] = {}
    for in_place in (False, True):
        chosen = [record for record in records if bool(record.params.get("in_place")) == in_place]
        for name, sizes in _series(chosen).items():
            for nbytes, part in sizes.items():
                row = rows.setdefault((name, nbytes), [name, nbytes, *[None] * 7])
                at = 7 if in_place else 2
                row[at] = 1e6 * statistics.median(r.summary.median for r in part)
                known = [record.busbw / 1e9 for record in part if record.busbw is not None]
                row[at + 1] = round(statistics.median(known), 2) if known else None
                if known and not in_place:
                    row[4:6] = round(min(known), 2), round(max(known), 2)
                if not in_place:
                    row[6] = sum(record.summary.count for record in part)
    columns = ["case", "bytes", "µs", "busbw GB/s", "lowest", "highest", "samples"]
    columns += ["in place: µs", "busbw GB/s"]
    shown = list(rows.values())
    title = "" if len(shown) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(shown)} rows"
    return Table(columns, shown[:_MOST_ROWS], title)


def _hosts_alone(records: Sequence[Record]) -> Table:
    """Compare hosts that were measured one at a time; empty where none is slow."""
    rows = []
    for name, sizes in _series(r for r in records if len(r.values.get("hosts", ())) == 1).items():
        part = sizes[max(sizes)]
        speeds = {record.values["hosts"][0]: record.busbw for record in part}
        if len(speeds) < 3:
            continue  # fewer than three: nothing is usual
        usual = pairs.divide(speeds.values()) or SLOW * statistics.median(speeds.values())
        slow = [host for host, speed in speeds.items() if speed < usual]
        rows += [[name, host, round(speeds[host] / 1e9, 2), round(usual / 1e9, 2)] for host in slow]
    return Table(["slow alone", "host", "busbw GB/s", "slow below"], rows)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One series of tests of pairs of hosts, at its largest size."""

    name: str
    nbytes: int
    busbw: dict[pairs.Pair, float]
    """GB/s."""
    slots: dict[pairs.Pair, set[str]]
    """PCI addresses of the GPUs that took part."""
    failed: frozenset[pairs.Pair]
    slowest: str
    """The row of the slowest one."""
    divided: float | None
    """What lies between two speeds; None where there is one."""

    @property
    def slow(self) -> list[pairs.Pair]:
        """The pairs of the lower speed."""
        return [pair for pair, speed in self.busbw.items() if speed < (self.divided or 0.0)]

    @property
    def rule(self) -> pairs.Rule | None:
        """Which hosts the slow pairs have in common, or not in common."""
        slow = set(self.slow)
        return pairs.explain({pair: pair in slow for pair in self.busbw}) if slow else None

    @property
    def hosts(self) -> list[str]:
        """All hosts, those that the rule names first."""
        first = self.rule.hosts if self.rule else ()
        return [*first, *sorted(set().union(*self.busbw, *self.failed) - set(first))]

    def in_every_slow_test(self) -> str:
        """Name the slots that all slow tests use and not all others: ``"0000:9d:00 (...)"``."""
        slow = self.slow
        common = set.intersection(*(self.slots[pair] for pair in slow)) if slow else set()
        others = [slots for pair, slots in self.slots.items() if pair not in slow]
        users = [(slot, sum(slot in slots for slots in others)) for slot in sorted(common)]
        return ", ".join(
            f"{slot} (and {n} of {len(others)} others)" for slot, n in users if n < len(others)
        )


def _pairs(records: Sequence[Record], log: Log) -> list[_Pairs]:
    """Put together the tests of two hosts each: those of one kind, at their largest size."""
    series = []
    for name, sizes in _series((r for r in records if _pair(r)), divided=False).items():
        part = sizes[max(sizes)]
        kind = part[0].collective, part[0].params["gpus_per_host"]
        busbw = {_pair(record): record.busbw / 1e9 for record in part}
        failed = frozenset(
            frozenset(one.hosts)
            for one in log.failures
            if len(one.hosts) == 2 and (one.collective, one.params["gpus_per_host"]) == kind
        )
        if len(set().union(*busbw)) > 2:
            slots = {_pair(record): set(record.values.get("slots", ())) for record in part}
            divided = pairs.divide(busbw.values())
            slowest = min(part, key=lambda record: record.busbw).values.get("row", "")
            series.append(_Pairs(name, max(sizes), busbw, slots, failed, slowest, divided))
    return series


def _pair(record: Record) -> pairs.Pair | None:
    hosts = record.values.get("hosts", ())
    return frozenset(hosts) if len(hosts) == 2 else None


def _speeds(tested: Sequence[_Pairs]) -> Table:
    """Say of each series whether it has two speeds, and which rule the slow pairs follow."""
    rows = []
    for one in tested:
        slow, rule = one.slow, one.rule
        fast = [speed for pair, speed in one.busbw.items() if pair not in slow]
        lows = [one.busbw[pair] for pair in slow]
        follows = str(rule) if rule else "no rule of hosts alone" if slow else ""
        rows.append(
            [one.name, len(one.busbw), len(one.failed), len(slow), _range(lows), _range(fast),
             follows, one.in_every_slow_test(), one.slowest]
        )  # fmt: skip
    columns = ["pairs of hosts", "pairs", "failed", "slow", "slow GB/s", "others GB/s"]
    columns += ["which", "GPU in every slow one", "the slowest"]
    title = (
        "Two speeds or one? What a rule describes is not its cause, and of two groups the log does "
        "not say which is at fault."
    )
    return Table(columns, rows, title)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}" if values else ""


def _host_matrix(one: _Pairs) -> Axes:
    """Draw the speed of every pair of hosts; a cross for what failed."""
    hosts, n = one.hosts, len(one.hosts)
    stems = {host.rstrip("0123456789") for host in hosts}
    prefix = stems.pop() if len(stems) == 1 else ""  # cnode2-001 is 001 in a small field
    names = [host.removeprefix(prefix) for host in hosts]
    values = np.full((n, n), np.nan)
    for pair, speed in one.busbw.items():
        i, j = (hosts.index(host) for host in pair)
        values[i, j] = values[j, i] = speed
    size = 2.6 + 0.42 * n
    title = f"{one.name}: {len(one.slow)} of {len(one.busbw)} pairs are slow [GB/s]"
    host = f"Host {prefix}…" if prefix else "Host"
    ax = plots.new_axes(title, x=host, y=host, size=(size + 0.4, size))
    plots.matrix(ax, values, rows=names, columns=names, value_format="{:.3g}")
    for pair in one.failed:
        i, j = (hosts.index(host) for host in pair)
        for x, y in ((i, j), (j, i)):
            ax.text(x, y, "×", ha="center", va="center", color=plots.STYLES[1].color)
    if one.rule and n > len(one.rule.hosts):
        ax.axhline(len(one.rule.hosts) - 0.5, color=plots.INK, linewidth=1)
        ax.axvline(len(one.rule.hosts) - 0.5, color=plots.INK, linewidth=1)
    plots.stamp(ax, Tier.RECORDED, note=f"busbw at {one.nbytes} bytes; ×: the test failed")
    text = f"{title}; {len(one.failed)} failed."
    plots.describe(ax, f"{text} {one.rule or 'No rule of hosts alone explains them'}.")
    return ax


def _failures(log: Log) -> Table:
    """Count the tests that failed, by kind, with the hosts that take part in most of them."""
    kinds: dict[str, list] = defaultdict(list)
    for one in log.failures:
        ranks = (one.params[key] for key in ("hosts", "gpus_per_host", "world_size"))
        kinds[_name(one.collective or "a test", *ranks)].append(one)
    rows = []
    for name, failed in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
        hosts = Counter(host for one in failed for host in one.hosts).most_common(3)
        most = ", ".join(f"{host} ({count})" for host, count in hosts)
        first = failed[0]
        rows.append([name, len(failed), most, f"{first.file}, line {first.line}: {first.text}"])
    columns = [f"failed: {len(log.failures)} tests", "tests", "hosts in most of them", "the first"]
    return Table(columns, rows)


def _conclusions(log: Log) -> Table:
    rows_of: dict[str, list[str]] = defaultdict(list)
    for says, row in conclusions(log.statements):
        rows_of[says].append(row)
    return Table(
        ["what follows for the speed", "from"], [[s, rows[0]] for s, rows in rows_of.items()]
    )


def _statements(log: Log) -> Table:
    rows = [[one.topic, one.says, one.count, one.row] for one in log.statements[:_MOST_ROWS]]
    return Table(["NCCL says", "", "lines", "the first"], rows)


def _name(
    collective: str, hosts: int | None, each: int | None, n: int | None, settings: str = ""
) -> str:
    ranks = f"{hosts} x {each}" if hosts and each else f"{n} ranks"
    return f"{collective}, {ranks}" + (f", {settings[:60]}" if settings else "")


def _series(records: Iterable[Record], *, divided: bool = True) -> Series:
    """Put together what differs in size only, in rising order; pairs of two speeds apart.

    A name holds those settings in which the records differ.
    """
    by_setting: dict[tuple, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    ordered = sorted(records, key=lambda record: record.nbytes or 0)
    variables = [(record.params.get("settings") or "").split() for record in ordered]
    common = set(variables[0]).intersection(*variables) if variables else set()
    for record, settings in zip(ordered, variables, strict=True):
        ranks = (record.params.get(key) for key in ("hosts", "gpus_per_host", "world_size"))
        collective = record.collective or record.case.partition(",")[0]
        name = _name(collective, *ranks, " ".join(word for word in settings if word not in common))
        key = name, tuple(settings), record.params.get("dtype"), record.params.get("redop")
        by_setting[key][record.nbytes].append(record)
    named: Series = {}
    for (name, *_), sizes in by_setting.items():
        last = {_pair(r): r.busbw for r in sizes[max(sizes)] if _pair(r) and r.busbw}
        limit = pairs.divide(last.values()) if divided else None
        parts = {"": sizes}
        if limit:
            slow = {pair for pair, speed in last.items() if speed < limit}
            parts = {
                f", {label} pairs": {
                    nbytes: kind
                    for nbytes, part in sizes.items()
                    if (kind := [r for r in part if (_pair(r) in slow) == (label == "slow")])
                }
                for label in ("fast", "slow")
            }
        for label, part in parts.items():
            while name + label in named:  # the same of another data type
                label += "'"
            named[name + label] = part
    return named


def _pictures(records: Sequence[Record]) -> list[list[Record]]:
    """Divide what is drawn into pictures that can be read: all in one, or by collective."""
    series = [[r for part in sizes.values() for r in part] for sizes in _series(records).values()]
    if len(series) <= _MOST_CURVES:
        return [list(records)] if records else []
    names = sorted({one[0].collective for one in series})
    pictures = []
    for name in names:
        lines = [one for one in series if one[0].collective == name]
        lines.sort(key=lambda one: one[0].world_size or 0)  # settings of as many ranks side by side
        for at in range(0, len(lines), _MOST_CURVES):
            pictures.append([r for one in lines[at : at + _MOST_CURVES] for r in one])
    return pictures[:12]
