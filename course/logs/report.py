"""What a report says of nccl-tests' logs: pairs of hosts, curves beside the wire, doubts.

    page = Page("Our cluster")
    add(page, together(map(logs.read, files)))

A figure above the wire is not a fault: several cards, a tree or a switch that adds can explain it,
and so can a stopwatch that stops early. The doubts name which of these would do.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from course.logs import failures, nccl_tests, pairs
from course.logs.nccl_tests import Failure, Log
from course.logs.page import Page
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.measure.timing import summarize
from labkit.show import plots

NVLINK = {"V100-SXM": 150, "A100-SXM": 300, "H100 80GB HBM3": 450, "H200": 450, "B200": 900}
"""GB/s of a GPU's NVLinks in one direction: half of what NVIDIA's data sheets state (V100 300,
A100 600, H100 and H200 900, B200 1800 GB/s). By a part of the GPU's name."""
SLOW = 0.8  # below this share of what is usual a record is slow
_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_MOST_ROWS, _MOST_CURVES, _MOST_PICTURES = 400, 7, 12
_MOST_WRITTEN, _MOST_DRAWN = 40, 1024
"""Hosts whose figures are written into a matrix, and hosts that are drawn at all."""

Series = dict[str, list[Record]]
"""By name what is the same but for its size, in rising order of sizes; perhaps of many hosts."""
Cards = float | Mapping[tuple[str, str], Record]
"""What one network card carries between hosts: given, in bytes per second, or `inferred_cards`."""


def add(page: Page, log: Log, *, card: float | None = None) -> None:
    """Add a section for one log.

    `card`: what one network card carries, in bytes per second; inferred from the log if not given.
    """
    files = f"{len(log.files)} files" if len(log.files) > 1 else log.files[0]
    page.heading(f"{nccl_tests.EXPERIMENT}: {files}")
    out_of_place = [record for record in log.records if not record.params["in_place"]]
    known = [record for record in out_of_place if record.busbw]
    cards = card or inferred_cards(known)
    page.table(Table(["", ""], _facts(log, cards)))
    whole = _series(known)
    tested = _pairs(whole, log)
    if log.failures:
        rules = {group.kind: group.rule for group in tested if group.rule}
        page.table(failures.table(log.failures, log.records, rules))
    if tested:
        page.table(_speeds(tested))
    divided = [group for group in tested if group.divided]
    divided.sort(key=lambda group: -len(group.slow))
    for group in divided[:_MOST_CURVES]:
        if len(group.hosts) <= _MOST_DRAWN:
            page.picture(_host_matrix(group))
    series = _divided(whole, tested)
    for part in _pictures(series):
        page.picture(_curves(part, cards))
    for table in (_doubts(series, cards), _hosts_alone(series), _figures(log.records, tested)):
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
    slots: dict[int | None, set[str]] = defaultdict(set)
    for record in records:
        slots[record.params.get("gpus_per_host")].update(record.values["slots"])
    facts = {
        "files": listed(log.files),
        "tier": str(Tier.RECORDED),
        "measured on": listed((record.provenance for record in records), most=3),
        "nccl-tests": listed(record.params.get("tests") for record in records),
        "network": listed(record.params.get("network") for record in records),
        "settings": listed((record.params.get("settings") for record in records), most=3),
        "hosts": listed(host for record in records for host in record.values["hosts"]),
    }
    if wrong := [record.values["row"] for record in records if record.values["wrong"]]:
        facts["WRONG SUMS"] = f"{len(wrong)} of {len(records)} results; the first: {wrong[0]}"
    for each, used in sorted(slots.items(), key=str):
        facts[f"GPUs used, {each or '?'} per host"] = listed(sorted(used), most=16)
    if isinstance(cards, float):
        facts["one network card"] = f"{cards / 1e9:.3g} GB/s: given"
    else:
        rising = sorted(cards.values(), key=lambda record: record.busbw)
        best = {_model(record): record for record in rising}
        for model, record in best.items():
            reached = f"{record.busbw / 1e9:.3g} GB/s: the most that one GPU per host reached"
            name = f"one network card beside {model or 'a GPU'}"
            facts[name] = f"{reached} ({record.values['row']})"
    return [[name, text] for name, text in facts.items() if text]


def inferred_cards(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """Return the record that tells what a card carries, by model of GPU and host.

    It is the fastest with one GPU per host, and holds for the same model of GPU on the same hosts
    only: what one cluster's cards reach says nothing of another's.
    """
    best: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=lambda record: record.busbw):
        if record.params.get("hosts", 1) > 1 and record.params.get("gpus_per_host") == 1:
            best |= {(_model(record), host): record for host in record.values["hosts"]}
    return best


def _model(record: Record) -> str:
    names = record.provenance.machine.gpus
    return names[0] if names else ""


def _wire(record: Record, cards: Cards) -> tuple[float | None, str]:
    """Return what one rank can send, in bytes per second, and how that is known.

    Inside a host it is NVLink, between hosts a card. Of the hosts' cards it is the best: a sick one
    is no wire. None where no run with one GPU per host had any of these hosts, or GPUs of this
    model.
    """
    hosts, model = record.values["hosts"], _model(record)
    if len(hosts) == 1:
        known = (1e9 * speed for part, speed in NVLINK.items() if part in model)
        return next(known, None), "NVLink by the data sheet"
    if isinstance(cards, float):
        return (cards, "given") if hosts else (None, "")
    theirs = [cards[model, host] for host in hosts if (model, host) in cards]
    best = max(theirs, key=lambda record: record.busbw, default=None)
    return (best.busbw, best.values["row"]) if best else (None, "")


def _explain(record: Record, wire: float) -> str | None:
    """Say what would explain a bus bandwidth above the wire; None where it is not above.

    Sources: nccl-tests, doc/PERFORMANCE.md (bus bandwidth is a ring's); P. Sanders, J. Speck and
    J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009);
    nccl, src/graph/tuning.cc (NVLS).
    """
    ratio = (record.busbw or 0.0) / wire
    if ratio <= 1.02:
        return None
    n, hosts = record.world_size, len(record.values["hosts"])
    each = record.params.get("gpus_per_host") or 1
    rails = f"rails: {each} cards per host, each with a ring of its own"
    causes: dict[str, float] = {}  # how many times the wire each of them explains alone
    if hosts > 1 and record.collective == "all_to_all":
        parts = f"only {n - each} of {n - 1} parts of each rank's bytes leave its host"
        causes[parts] = (n - 1) / (n - each)
    if hosts > 1 and each > 1 and record.collective in _RINGS:
        causes[rails] = each
    if record.collective == "all_reduce":
        if hosts == 2:
            causes["a tree: between two hosts it sends S each way, a ring almost 2 S"] = 2
        switch = "a switch that adds: (n+1)/n S cross a link, not 2(n-1)/n S"
        causes[switch] = 2 * (n - 1) / (n + 1)
    reasons = [text for text, times in causes.items() if ratio <= 1.05 * times]
    if not reasons and causes.pop(rails, None):
        both = (text for text, times in causes.items() if ratio <= 1.05 * times * each)
        reasons = [f"{rails}, together with {text}" for text in both]
    return "; or ".join(reasons) or (
        "a stopwatch that stops before the work is done; another collective than the name says; "
        "sizes per rank in one place and in total in another; or a faster wire than assumed"
    )


def _doubts(series: Series, cards: Cards) -> Table:
    """List the highest figure of each series that is above its wire, and what would explain it."""
    rows = []
    for name, records in series.items():
        best = max(records, key=lambda record: record.busbw)
        speed, source = _wire(best, cards)
        if speed and (explanation := _explain(best, speed)):
            figures = best.busbw / 1e9, speed / 1e9, best.busbw / speed
            highest = (round(figure, 2) for figure in figures)
            rows.append([name, best.nbytes, *highest, source, explanation, best.values["row"]])
    columns = ["above the wire", "bytes", "busbw GB/s", "wire GB/s", "times", "the wire is from"]
    return Table([*columns, "would explain it", "row"], rows)


def _curves(series: Series, cards: Cards) -> Axes:
    """Draw bus bandwidth over size beside the wire, a line per collective and set of ranks.

    Where there are several records of a size (of several hosts, say) the line is their median, with
    a band from the 10th to the 90th percentile.
    """
    axes = {"x": "S, the largest buffer of a rank", "xunit": "bytes", "xscale": "log"}
    ax = plots.new_axes("Bus bandwidth by size", y="busbw", yunit="GB/s", **axes)
    best, records = {}, [record for part in series.values() for record in part]
    for number, (name, part) in enumerate(series.items()):
        sizes = _by_size(part)
        spread = [summarize([r.busbw / 1e9 for r in same]) for same in sizes.values()]
        band = {"low": [s.p10 for s in spread], "high": [s.p90 for s in spread]}
        several = band if len(part) > len(sizes) else {}
        middle = [summary.median for summary in spread]
        plots.line(ax, list(sizes), middle, label=name[:80], series=number, **several)
        best[name] = max(middle)
    span = [min(r.nbytes for r in records), max(r.nbytes for r in records)]
    for speed in sorted({_wire(part[0], cards)[0] for part in series.values()} - {None}):
        wire = f"one rank's wire, {speed / 1e9:.4g}"
        plots.line(ax, span, [speed / 1e9] * 2, label=wire, kind=Tier.MODELLED)
    places = (f"{_model(record)}, {record.provenance.backend}" for record in records)
    plots.stamp(ax, Tier.RECORDED, note="; ".join(dict.fromkeys(places)))
    top = max(best, key=best.get)
    text = f"Bus bandwidth of {len(series)} series; the highest, {top}, reaches {best[top]:.3g}"
    plots.describe(ax, f"{text} GB/s.")
    return ax


def _figures(records: Sequence[Record], tested: Sequence[_Pairs]) -> Table:
    """Lay out medians of times and bus bandwidths, out of place and in place side by side."""
    rows: dict[tuple, list] = {}
    for in_place, at in ((False, 2), (True, 7)):
        chosen = (record for record in records if record.params["in_place"] == in_place)
        for name, part in _divided(_series(chosen), tested).items():
            for nbytes, same in _by_size(part).items():
                row = rows.setdefault((name, nbytes), [name, nbytes, *[None] * 7])
                speeds = [round(r.busbw / 1e9, 2) for r in same if r.busbw is not None]
                row[at] = 1e6 * statistics.median(r.seconds[0] for r in same)
                row[at + 1] = round(statistics.median(speeds), 2) if speeds else None
                if not in_place:
                    row[4:7] = min(speeds, default=None), max(speeds, default=None), len(same)
    columns = ["case", "bytes", "µs", "busbw GB/s", "lowest", "highest", "samples"]
    columns += ["in place: µs", "busbw GB/s"]
    title = "" if len(rows) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(rows)} rows"
    return Table(columns, list(rows.values())[:_MOST_ROWS], title)


def _hosts_alone(series: Series) -> Table:
    """Compare hosts that were measured one at a time; empty where none is slow."""
    rows = []
    for name, records in series.items():
        alone = [r for r in _largest(records) if len(r.values["hosts"]) == 1]
        speeds = {record.values["hosts"][0]: record.busbw for record in alone}
        if len(speeds) < 3:
            continue  # fewer than three: nothing is usual
        usual = pairs.divide(speeds.values()) or SLOW * statistics.median(speeds.values())
        slow = [host for host, speed in speeds.items() if speed < usual]
        rows += [[name, host, round(speeds[host] / 1e9, 2), round(usual / 1e9, 2)] for host in slow]
    return Table(["slow alone", "host", "busbw GB/s", "slow below"], rows)


class _Pairs:
    """The tests of pairs of hosts in one series, at its largest size.

    `kind` is the collective and how many GPUs of each host take part; `divided` lies between two
    speeds, and is None where there is one; `busbw` has GB/s of each pair, the slowest first.
    """

    def __init__(self, name: str, tests: dict[pairs.Pair, Record], failed: Sequence[Failure]):
        first = next(iter(tests.values()))
        self.name, self.tests = name, tests
        self.kind = first.collective, first.params.get("gpus_per_host")
        self.failed = {pairs.of(test.hosts) for test in failed if test.kind == self.kind} - {None}
        speeds = {pair: record.busbw / 1e9 for pair, record in tests.items()}
        self.busbw = dict(sorted(speeds.items(), key=lambda item: item[1]))
        self.divided, self.rule = pairs.two_speeds(self.busbw)
        self.slow = {pair for pair, speed in speeds.items() if speed < (self.divided or 0.0)}
        first_hosts = self.rule.hosts if self.rule else ()
        others = set().union(*tests, *self.failed) - set(first_hosts)
        self.hosts = [*first_hosts, *sorted(others)]

    def in_every_slow_test(self) -> str:
        """Name the slots that all slow tests use and not all others: ``"0000:9d:00 (...)"``."""
        slots = {pair: set(record.values["slots"]) for pair, record in self.tests.items()}
        others = [used for pair, used in slots.items() if pair not in self.slow]
        common = set.intersection(*map(slots.get, self.slow)) if self.slow else set()
        n = len(others)
        users = [(slot, sum(slot in used for used in others)) for slot in sorted(common)]
        return ", ".join(f"{slot} (and {m} of {n} others)" for slot, m in users if m < n)


def _pairs(series: Series, log: Log) -> list[_Pairs]:
    """Put together the tests of two hosts each, where three hosts or more were in them."""
    tested = []
    for name, records in series.items():
        tests = {pairs.of(record.values["hosts"]): record for record in _largest(records)}
        tests.pop(None, None)  # of one host, or of many
        if len(set().union(*tests)) > 2:
            tested.append(_Pairs(name, tests, log.failures))
    return tested


def _speeds(tested: Sequence[_Pairs]) -> Table:
    """Say of each series whether it has two speeds, and which rule the slow pairs follow."""

    def between(speeds: Sequence[float]) -> str:
        return f"{speeds[0]:.3g} to {speeds[-1]:.3g}" if speeds else ""

    rows = []
    for group in tested:
        slow, speeds = len(group.slow), list(group.busbw.values())
        follows = str(group.rule) if group.rule else "no rule of hosts alone" if slow else ""
        slowest = group.tests[next(iter(group.busbw))].values["row"]
        counts = len(speeds), len(group.failed), slow
        ranges = between(speeds[:slow]), between(speeds[slow:])
        rows.append([group.name, *counts, *ranges, follows, group.in_every_slow_test(), slowest])
    columns = ["pairs of hosts", "pairs", "failed", "slow", "slow GB/s", "others GB/s"]
    columns += ["which", "GPU in every slow one", "the slowest"]
    title = (
        "Two speeds or one? What a rule describes is not its cause, and of two groups the log does "
        "not say which is at fault."
    )
    return Table(columns, rows, title)


def _host_matrix(group: _Pairs) -> Axes:
    """Draw the speed of every pair of hosts; a cross for what failed.

    Of many hosts the figures are left to the shades, and to a table of the slowest pairs.
    """
    n, place = len(group.hosts), {host: i for i, host in enumerate(group.hosts)}
    stems = {host.rstrip("0123456789") for host in group.hosts}
    prefix = stems.pop() if len(stems) == 1 else ""  # cnode2-001 is 001 in a small field
    names = [host.removeprefix(prefix) for host in group.hosts]
    values = np.full((n, n), np.nan)
    for pair, speed in group.busbw.items():
        i, j = (place[host] for host in pair)
        values[i, j] = values[j, i] = speed
    size = min(2.6 + 0.42 * n, 11)
    title = f"{group.name}: {len(group.slow)} of {len(group.busbw)} pairs are slow [GB/s]"
    host = f"Host {prefix}…" if prefix else "Host"
    ax = plots.new_axes(title, x=host, y=host, size=(size + 0.4, size))
    slowest = None
    if n <= _MOST_WRITTEN:
        plots.matrix(ax, values, rows=names, columns=names, value_format="{:.3g}")
    else:
        image = np.ma.masked_invalid(values)
        ax.imshow(image, cmap="Blues", aspect="auto", interpolation="nearest")
        every = range(0, n, -(-n // 25))
        ax.set_xticks(every, [names[i] for i in every], rotation=90)
        ax.set_yticks(every, [names[i] for i in every])
        ax.grid(visible=False)
        rows = [(speed, *sorted(pair)) for pair, speed in group.busbw.items()][:_MOST_CURVES]
        slowest = Table(["GB/s", "host", "host"], rows, "The slowest pairs")
    crosses = np.array([[place[host] for host in pair] for pair in group.failed]).reshape(-1, 2)
    look = {"linewidths": 1, "s": min(40, (4e3 / n) ** 1.3), "color": plots.STYLES[1].color}
    ax.scatter(crosses, crosses[:, ::-1], marker="x", **look)
    if group.rule:
        ax.axhline(len(group.rule.hosts) - 0.5, color=plots.INK, linewidth=1)
        ax.axvline(len(group.rule.hosts) - 0.5, color=plots.INK, linewidth=1)
    nbytes = next(iter(group.tests.values())).nbytes
    plots.stamp(ax, Tier.RECORDED, note=f"busbw at {nbytes} bytes; ×: the test failed")
    rule = group.rule or "No rule of hosts alone explains them"
    plots.describe(ax, f"{title}; {len(group.failed)} failed. {rule}.", table=slowest)
    return ax


def _series(records: Iterable[Record]) -> Series:
    """Put together what differs in size only, in rising order of ranks and sizes.

    A name holds those settings, types and operations in which a collective's records differ.
    """
    by_collective: Series = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.world_size, record.nbytes)):
        by_collective[record.case.partition(",")[0]].append(record)
    series: Series = defaultdict(list)
    for collective, part in by_collective.items():
        names = "settings", "dtype", "redop"
        words_of_each = [" ".join(r.params.get(name, "") for name in names).split() for r in part]
        common = set.intersection(*map(set, words_of_each))
        for record, words in zip(part, words_of_each, strict=True):
            hosts, each = (record.params.get(key) for key in ("hosts", "gpus_per_host"))
            n = record.params.get("world_size", "?")
            ranks = f"{hosts} x {each}" if hosts and each else f"{n} ranks"
            differs = " ".join(word for word in words if word not in common)
            series[", ".join(filter(None, (collective, ranks, differs)))].append(record)
    return series


def _by_size(records: Iterable[Record]) -> dict[int, list[Record]]:
    sizes = itertools.groupby(records, key=lambda record: record.nbytes)
    return {nbytes: list(part) for nbytes, part in sizes}


def _largest(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.nbytes == records[-1].nbytes]


def _divided(series: Series, tested: Sequence[_Pairs]) -> Series:
    """Return the series with pairs of hosts of two speeds apart."""
    slow_pairs = {group.name: group.slow for group in tested if group.slow}
    divided: Series = defaultdict(list)
    for name, records in series.items():
        slow = slow_pairs.get(name)
        for record in records:
            speed = "slow" if slow and pairs.of(record.values["hosts"]) in slow else "fast"
            divided[f"{name}, {speed} pairs" if slow else name].append(record)
    return divided


def _pictures(series: Series) -> list[Series]:
    """Divide what is drawn into pictures that can be read: all in one, or by collective."""
    by_collective: dict[str, list[str]] = defaultdict(list)
    for name in series:
        key = name.partition(",")[0] if len(series) > _MOST_CURVES else ""
        by_collective[key].append(name)
    return [
        {name: series[name] for name in names[at : at + _MOST_CURVES]}
        for names in by_collective.values()
        for at in range(0, len(names), _MOST_CURVES)
    ][:_MOST_PICTURES]
