"""What a report says of nccl-tests' logs: pairs of hosts, curves beside the wire, doubts.

    page = Page("Our cluster")
    add(page, together(logs.read(files)))

A figure above the wire is not a fault: several cards, a tree or a switch that adds can explain it,
and so can a stopwatch that stops early. The doubts name which of these would do.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.axes import Axes

from course.logs import failures, nccl_tests, pairs
from course.logs.logs import Log
from course.logs.page import Page
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

_MOST_WRITTEN, _MOST_DRAWN = 40, 1024
"""Hosts whose figures are written into a matrix, and hosts that are drawn at all."""

Series = dict[str, dict[int, list[Record]]]
"""By name what is the same but for its size; by size, what was measured, perhaps on many hosts."""
Cards = float | Mapping[tuple[str, str], Record]
"""What one network card carries between hosts: given, in bytes per second, or `inferred_cards`."""


def together(logs: Iterable[Log]) -> Log:
    """Put several logs into one."""
    whole = Log([])
    for log in logs:
        for name in ("paths", "records", "failures", "problems"):
            getattr(whole, name).extend(getattr(log, name))
    return whole


def add(page: Page, log: Log, *, card: float | None = None) -> None:
    """Add a section for one log.

    `card`: what one network card carries, in bytes per second; inferred from the log if not given.
    """
    files = f"{len(log.paths)} files" if len(log.paths) > 1 else log.paths[0].name
    page.heading(f"{nccl_tests.EXPERIMENT}: {files}")
    timed = [record for record in log.records if record.samples]
    known = [r for r in timed if r.busbw and not r.params.get("in_place")]
    cards = card or inferred_cards(known)
    page.table(Table(["", ""], _facts(log, cards)))
    whole = _series(known)
    tested = _pairs(whole, log)
    if log.failures:
        page.table(_failures(log, tested))
    if tested:
        page.table(_speeds(tested))
        divided = sorted((one for one in tested if one.divided), key=lambda one: -len(one.slow))
        for one in divided[:_MOST_CURVES]:
            if len(one.hosts) <= _MOST_DRAWN:
                page.picture(_host_matrix(one))
    series = _divided(whole, tested)
    for part in _pictures(series):
        page.picture(_curves(part, cards))
    for table in (_doubts(series, cards), _hosts_alone(series), _figures(timed, series, tested)):
        if table.rows:
            page.table(table)
    if log.problems:
        rows = [[problem] for problem in log.problems[:_MOST_ROWS]]
        title = f"What failed, could not be read or is doubtful, line by line: {len(log.problems)}"
        page.table(Table(["line"], rows), folded=title)


def _facts(log: Log, cards: Cards) -> list[list[str]]:
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
    facts |= _cards_facts(cards, records)
    return [[name, text] for name, text in facts.items() if text]


def inferred_cards(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """Return the record that tells what a card carries, by model of GPU and host.

    It is the fastest with one GPU per host, and holds for the same model of GPU on the same hosts
    only: what one cluster's cards reach says nothing of another's.
    """
    best: dict[tuple[str, str], Record] = {}
    speeds: dict[tuple[str, str], float] = {}
    for record in records:
        if not _one_gpu_a_host(record):
            continue
        speed = record.busbw
        for host in record.values.get("hosts", ()):
            key = _model(record), host
            if speed and speed > speeds.get(key, 0.0):
                best[key], speeds[key] = record, speed
    return best


def _card(record: Record, cards: Cards) -> tuple[float | None, str]:
    """Return what a card carries on the machines of a record, and which row says so.

    Of the hosts' figures it is the largest: a sick card is no wire. None where no run with one GPU
    per host had any of these hosts, or GPUs of this model.
    """
    if isinstance(cards, float):
        return cards, "given"
    found = [cards.get((_model(record), host)) for host in record.values.get("hosts", ())]
    best = max((one for one in found if one), key=lambda one: one.busbw, default=None)
    return (best.busbw, best.values["row"]) if best else (None, "")


def _cards_facts(cards: Cards, records: Iterable[Record]) -> dict[str, str]:
    """Say what is assumed, a line for each figure."""
    if isinstance(cards, float):
        between = any((record.params.get("hosts") or 0) > 1 for record in records)
        return {"one network card": f"{cards / 1e9:.3g} GB/s: given"} if between else {}
    top: dict[str, Record] = {}
    for (model, _), one in cards.items():
        if model not in top or one.busbw > top[model].busbw:
            top[model] = one
    return {
        f"one network card beside {model or 'a GPU'}": f"{one.busbw / 1e9:.3g} GB/s: the most "
        f"that one GPU per host reached ({one.values['row']})"
        for model, one in list(top.items())[:8]
    }


def _model(record: Record) -> str:
    names = record.provenance.machine.gpus
    return names[0] if names else ""


def _one_gpu_a_host(record: Record) -> bool:
    params = record.params
    several, each = (params.get("hosts") or 1) > 1, params.get("gpus_per_host")
    return several and each == 1 and not params.get("in_place")


def _wire(record: Record, cards: Cards) -> tuple[float | None, str]:
    """Return what one rank can send, in bytes per second, and how that is known.

    Inside a host it is NVLink, between hosts a card.
    """
    if record.params.get("hosts") == 1:
        model = _model(record)
        known = (speed for part, speed in NVLINK.items() if part in model)
        return next(known, None), "NVLink by the data sheet"
    return _card(record, cards) if record.params.get("hosts") else (None, "")


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
    cards = each if hosts > 1 else 1
    rails = f"rails: {each} cards per host, each with a ring of its own"
    tree = "a tree: between two hosts it sends S each way, a ring almost 2 S"
    switch = "a switch that adds: (n+1)/n S cross a link, not 2(n-1)/n S"
    saved = 2 * (n - 1) / (n + 1)
    """What a switch that adds can save alone: less than half of the bytes."""
    reasons = []
    if hosts > 1 and record.collective == "all_to_all" and ratio <= 1.05 * (n - 1) / (n - each):
        reasons.append(f"only {n - each} of {n - 1} parts of each rank's bytes leave its host")
    if cards > 1 and record.collective in _RINGS and ratio <= 1.05 * each:
        reasons.append(rails)
    if adds and hosts == 2 and ratio <= 2.1 * cards:
        reasons.append(tree if ratio <= 2.1 else f"{rails}, together with {tree}")
    if adds and ratio <= 1.05 * saved * cards:
        reasons.append(switch if ratio <= 1.05 * saved else f"{rails}, together with {switch}")
    if len(reasons) > 1:  # what rails explain alone needs no second cause beside them
        reasons = [one for one in reasons if "together with" not in one] or reasons
    reasons = reasons or [
        "a stopwatch that stops before the work is done; another collective than the name says; "
        "sizes per rank in one place and in total in another; or a faster wire than assumed"
    ]
    return "; or ".join(reasons)


def _doubts(series: Series, cards: Cards) -> Table:
    """List the highest figure of each series that is above its wire, and what would explain it."""
    rows = []
    for name, sizes in series.items():
        best = max((r for part in sizes.values() for r in part), key=lambda record: record.busbw)
        speed, source = _wire(best, cards)
        if speed is not None and (explanation := _explain(best, speed)):
            highest = best.busbw / 1e9, speed / 1e9, best.busbw / speed
            highest = (round(x, 2) for x in highest)
            rows.append([name, best.nbytes, *highest, source, explanation, best.values["row"]])
    columns = ["above the wire", "bytes", "busbw GB/s", "wire GB/s", "times", "the wire is from"]
    return Table([*columns, "would explain it", "row"], rows)


def _curves(series: Series, cards: Cards) -> Axes:
    """Draw bus bandwidth over size beside the wire, a line per collective and set of ranks.

    Where there are several records of a size (of several hosts, say) the line is their median, with
    a band from the 10th to the 90th percentile.
    """
    ax = plots.new_axes(
        "Bus bandwidth by size",
        x="S, the largest buffer of a rank",
        xunit="bytes",
        y="busbw",
        yunit="GB/s",
        xscale="log",
    )
    best, records = {}, [r for sizes in series.values() for part in sizes.values() for r in part]
    for number, (name, sizes) in enumerate(series.items()):
        spread = [summarize([r.busbw / 1e9 for r in part]) for part in sizes.values()]
        band = {"low": [s.p10 for s in spread], "high": [s.p90 for s in spread]}
        several = band if any(summary.count > 1 for summary in spread) else {}
        middle = [summary.median for summary in spread]
        plots.line(ax, list(sizes), middle, label=name, series=number, **several)
        best[name] = max(middle)
    span = [min(r.nbytes for r in records), max(r.nbytes for r in records)]
    firsts = [next(iter(sizes.values()))[0] for sizes in series.values()]
    for speed in sorted({_wire(record, cards)[0] for record in firsts} - {None}):
        wire = f"one rank's wire, {speed / 1e9:.4g}"
        plots.line(ax, span, [speed / 1e9] * 2, label=wire, kind=Tier.MODELLED)
    places = [(r.provenance.machine.gpus[:1], r.provenance.backend) for r in records]
    known = dict.fromkeys(word for gpu, library in places for word in (*gpu, library))
    plots.stamp(ax, Tier.RECORDED, note=", ".join(known))
    top = max(best, key=best.get)
    text = f"Bus bandwidth of {len(series)} series; the highest, {top}, reaches {best[top]:.3g}"
    plots.describe(ax, f"{text} GB/s.")
    return ax


def _figures(timed: Sequence[Record], series: Series, tested: Sequence[_Pairs]) -> Table:
    """Lay out medians of times and bus bandwidths, out of place and in place side by side."""
    rows: dict[tuple, list] = {}
    in_place = _series(record for record in timed if record.params.get("in_place"))
    in_place = _divided(in_place, tested)
    unknown = _series(r for r in timed if not r.busbw and not r.params.get("in_place"))
    for there, chosen in ((False, series), (False, unknown), (True, in_place)):
        for name, sizes in chosen.items():
            for nbytes, part in sizes.items():
                row = rows.setdefault((name, nbytes), [name, nbytes, *[None] * 7])
                at = 7 if there else 2
                row[at] = 1e6 * statistics.median(statistics.median(r.seconds) for r in part)
                known = [record.busbw / 1e9 for record in part if record.busbw is not None]
                row[at + 1] = round(statistics.median(known), 2) if known else None
                if known and not there:
                    row[4:6] = round(min(known), 2), round(max(known), 2)
                if not there:
                    row[6] = sum(len(record.seconds) for record in part)
    columns = ["case", "bytes", "µs", "busbw GB/s", "lowest", "highest", "samples"]
    columns += ["in place: µs", "busbw GB/s"]
    shown = list(rows.values())
    title = "" if len(shown) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(shown)} rows"
    return Table(columns, shown[:_MOST_ROWS], title)


def _hosts_alone(series: Series) -> Table:
    """Compare hosts that were measured one at a time; empty where none is slow."""
    rows = []
    for name, sizes in series.items():
        part = [r for r in sizes[max(sizes)] if len(r.values.get("hosts", ())) == 1]
        speeds = {record.values["hosts"][0]: record.busbw for record in part}
        if len(speeds) < 3:
            continue  # fewer than three: nothing is usual
        usual = pairs.divide(speeds.values()) or SLOW * statistics.median(speeds.values())
        slow = [host for host, speed in speeds.items() if speed < usual]
        rows += [[name, host, round(speeds[host] / 1e9, 2), round(usual / 1e9, 2)] for host in slow]
    return Table(["slow alone", "host", "busbw GB/s", "slow below"], rows)


@dataclass(frozen=True)
class _Pairs:
    """One series of tests of pairs of hosts, at its largest size."""

    name: str
    kind: tuple
    """Its collective, and how many GPUs of each host take part."""
    nbytes: int
    busbw: dict[pairs.Pair, float]
    """GB/s."""
    slots: dict[pairs.Pair, frozenset[str]]
    """PCI addresses of the GPUs that took part."""
    failed: frozenset[pairs.Pair]
    slowest: str
    """The row of the slowest one."""
    divided: float | None
    """What lies between two speeds; None where there is one."""
    rule: pairs.Rule | None
    """Which hosts the slow pairs have in common, or not in common."""

    @cached_property
    def slow(self) -> set[pairs.Pair]:
        """The pairs of the lower speed."""
        return {pair for pair, speed in self.busbw.items() if speed < (self.divided or 0.0)}

    @cached_property
    def hosts(self) -> list[str]:
        """All hosts, those that the rule names first."""
        first = self.rule.hosts if self.rule else ()
        return [*first, *sorted(set().union(*self.busbw, *self.failed) - set(first))]

    def in_every_slow_test(self) -> str:
        """Name the slots that all slow tests use and not all others: ``"0000:9d:00 (...)"``."""
        slow = self.slow
        common = set.intersection(*(set(self.slots[pair]) for pair in slow)) if slow else set()
        others = Counter(slots for pair, slots in self.slots.items() if pair not in slow)
        total = others.total()
        users = [(x, sum(n for slots, n in others.items() if x in slots)) for x in sorted(common)]
        return ", ".join(f"{slot} (and {n} of {total} others)" for slot, n in users if n < total)


def _pairs(series: Series, log: Log) -> list[_Pairs]:
    """Put together the tests of two hosts each: those of one kind, at their largest size."""
    found = []
    failed: dict[tuple, set[pairs.Pair]] = defaultdict(set)
    for one in log.failures:
        if len(one.hosts) == 2:
            failed[one.collective, one.params["gpus_per_host"]].add(frozenset(one.hosts))
    for name, sizes in series.items():
        if not (part := [record for record in sizes[max(sizes)] if _pair(record)]):
            continue
        kind = part[0].collective, part[0].params.get("gpus_per_host")
        busbw = {_pair(record): record.busbw / 1e9 for record in part}
        if len(set().union(*busbw)) > 2:
            slots = {_pair(record): frozenset(record.values.get("slots", ())) for record in part}
            slowest = min(part, key=lambda record: record.busbw).values.get("row", "")
            lost, speeds = frozenset(failed[kind]), pairs.two_speeds(busbw)
            found.append(_Pairs(name, kind, max(sizes), busbw, slots, lost, slowest, *speeds))
    return found


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
        counts = [len(one.busbw), len(one.failed), len(slow)]
        says = [_range(lows), _range(fast), follows, one.in_every_slow_test(), one.slowest]
        rows.append([one.name, *counts, *says])
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
    """Draw the speed of every pair of hosts; a cross for what failed.

    Of many hosts the figures are left to the shades, and to a table of the slowest pairs.
    """
    hosts, n = one.hosts, len(one.hosts)
    stems = {host.rstrip("0123456789") for host in hosts}
    prefix = stems.pop() if len(stems) == 1 else ""  # cnode2-001 is 001 in a small field
    names = [host.removeprefix(prefix) for host in hosts]
    place = {host: i for i, host in enumerate(hosts)}
    values = np.full((n, n), np.nan)
    for pair, speed in one.busbw.items():
        i, j = (place[host] for host in pair)
        values[i, j] = values[j, i] = speed
    size = min(2.6 + 0.42 * n, 11)
    title = f"{one.name}: {len(one.slow)} of {len(one.busbw)} pairs are slow [GB/s]"
    host = f"Host {prefix}…" if prefix else "Host"
    ax = plots.new_axes(title, x=host, y=host, size=(size + 0.4, size))
    slowest = None
    if n <= _MOST_WRITTEN:
        plots.matrix(ax, values, rows=names, columns=names, value_format="{:.3g}")
    else:
        ax.imshow(
            np.ma.masked_invalid(values), cmap="Blues", aspect="auto", interpolation="nearest"
        )
        every = range(0, n, -(-n // 25))
        ax.set_xticks(every, [names[i] for i in every], rotation=90)
        ax.set_yticks(every, [names[i] for i in every])
        ax.grid(visible=False)
        rows = sorted((speed, *sorted(pair)) for pair, speed in one.busbw.items())[:_MOST_CURVES]
        slowest = Table(["GB/s", "host", "host"], rows, "The slowest pairs")
    crosses = [[place[host] for host in pair] for pair in one.failed]
    if crosses:
        x, y = zip(*crosses, strict=True)
        look = {"linewidths": 1, "s": min(40, (4e3 / n) ** 1.3), "color": plots.STYLES[1].color}
        ax.scatter([*x, *y], [*y, *x], marker="x", **look)
    if one.rule and n > len(one.rule.hosts):
        ax.axhline(len(one.rule.hosts) - 0.5, color=plots.INK, linewidth=1)
        ax.axvline(len(one.rule.hosts) - 0.5, color=plots.INK, linewidth=1)
    plots.stamp(ax, Tier.RECORDED, note=f"busbw at {one.nbytes} bytes; ×: the test failed")
    text = f"{title}; {len(one.failed)} failed."
    rule = one.rule or "No rule of hosts alone explains them"
    plots.describe(ax, f"{text} {rule}.", table=slowest)
    return ax


def _failures(log: Log, tested: Sequence[_Pairs]) -> Table:
    """Put the tests together that failed in the same way, with what those have in common."""
    rules = {one.kind: one.rule for one in tested if one.rule}
    rows = []
    for kind in failures.kinds(log.failures, log.records):
        first, called = kind.tests[0], failures.called_slow(kind.tests, rules)
        at = f"{first.file}, line {first.line}" if first.line else first.file
        each = [kind.phase, kind.text, len(kind.tests), kind.collectives, kind.shared, called, at]
        rows.append(each)
    columns = [f"failed: {len(log.failures)} tests", "it printed", "tests", "collectives"]
    columns += ["hosts", "slow by the rule of the others", "the first"]
    title = "Tests that fail in other phases may have another cause: each row is one to explain."
    return Table(columns, rows, title if len(rows) > 1 else "")


def _series(records: Iterable[Record]) -> Series:
    """Put together what differs in size only, in rising order.

    A name holds those settings in which the records differ.
    """
    by_setting: dict[tuple, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    ordered = sorted(records, key=lambda record: record.nbytes or 0)
    written = {record.params.get("settings") or "" for record in ordered}
    common = set.intersection(*(set(one.split()) for one in written)) if written else set()
    for record in ordered:
        settings = record.params.get("settings") or ""
        params = record.params
        ranks = tuple(params.get(key) for key in ("hosts", "gpus_per_host", "world_size"))
        collective = record.collective or record.case.partition(",")[0]
        key = collective, ranks, settings, params.get("dtype"), params.get("redop")
        by_setting[key][record.nbytes].append(record)
    named: Series = {}
    for (collective, (hosts, each, n), settings, *_), sizes in by_setting.items():
        name = f"{collective}, {hosts} x {each}" if hosts and each else f"{collective}, {n} ranks"
        if differs := " ".join(word for word in settings.split() if word not in common):
            name += f", {differs[:60]}"
        _add(named, name, sizes)
    return named


def _divided(series: Series, tested: Sequence[_Pairs]) -> Series:
    """Return the series with pairs of hosts of two speeds apart."""
    named: Series = {}
    slow_pairs = {one.name: one.slow for one in tested if one.divided}
    for name, sizes in series.items():
        slow = slow_pairs.get(name)
        if not slow:
            _add(named, name, sizes)
            continue
        for label in ("fast", "slow"):
            kind = {
                nbytes: [r for r in part if (_pair(r) in slow) == (label == "slow")]
                for nbytes, part in sizes.items()
            }
            _add(named, f"{name}, {label} pairs", {n: part for n, part in kind.items() if part})
    return named


def _add(named: Series, name: str, sizes: dict[int, list[Record]]) -> None:
    while name in named:  # the same of another data type
        name += "'"
    named[name] = sizes


def _pictures(series: Series) -> list[Series]:
    """Divide what is drawn into pictures that can be read: all in one, or by collective."""
    if len(series) <= _MOST_CURVES:
        return [series] if series else []
    by_collective: dict[str, Series] = defaultdict(dict)
    for name, sizes in series.items():
        by_collective[next(iter(sizes.values()))[0].collective][name] = sizes
    pictures = []
    for _, mine in sorted(by_collective.items()):
        # settings of as many ranks side by side
        names = sorted(mine, key=lambda name: next(iter(mine[name].values()))[0].world_size or 0)
        for at in range(0, len(names), _MOST_CURVES):
            pictures.append({name: mine[name] for name in names[at : at + _MOST_CURVES]})
    return pictures[:12]
