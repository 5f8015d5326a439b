"""The logs of three GPU clusters, as `tools.eighty_gpus_data` took them from public repositories.

Figures are in the units of nccl-tests: microseconds and GB/s (1e9), out of place. `h100.csv` has
medians where a case was run on several hosts.
"""

import csv
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labkit.measure.tables import Table

_DATA = Path(__file__).with_name("data")
_SIZES = ("32MiB", "1GiB", "16GiB")

Slots = tuple[tuple[str, ...], tuple[str, ...]]
"""PCI bus addresses of the GPUs that took part, by rank: of the first host, of the second."""


@dataclass(frozen=True, eq=False, slots=True)
class PairTest:
    """One test of two of the seventeen hosts."""

    collective: str
    gpus_per_host: int
    first: int
    second: int
    gpus: Slots
    busbw: dict[str, float]  # GB/s at "32MiB", "1GiB" and "16GiB"; empty where the test failed
    ended_at: str = ""
    """Of a failed test: the line of nccl-tests' source that its error names, and who called it.

    In nccl-tests 2.17.6 `common.cu:1279` is the end of ncclCommInitRank, before any message;
    `alltoall.cu:274` the call of ncclAlltoAll; `common.cu:401` an error of NCCL met while waiting
    for a call that was under way. The callers 693 and 695 are the loop that warms up.
    """

    @property
    def pair(self) -> tuple[int, int]:
        """Its two hosts."""
        return self.first, self.second

    @property
    def is_slow(self) -> bool:
        """Whether it reached less than half of the best such test at 16 GiB."""
        return self.busbw["16GiB"] < 0.5 * best(self.collective, self.gpus_per_host)

    def messages(self) -> list[tuple[int, int, str]]:
        """Return what crosses between the hosts: sender, receiver, slot that it goes into."""
        return messages(self.first, self.second, self.gpus, self.collective)


def messages(first: int, second: int, gpus: Slots, collective: str) -> list[tuple[int, int, str]]:
    """Return what crosses between two hosts: sender, receiver, and the receiver's slot.

    nccl-tests' sendrecv is a ring over the ranks, so only a host's first GPU hears from the other
    host. In alltoall all of them do.
    """
    into = [slots[:1] if collective == "sendrecv" else slots for slots in gpus]
    return [(second, first, slot) for slot in into[0]] + [(first, second, s) for s in into[1]]


@cache
def seventeen_hosts() -> tuple[PairTest, ...]:
    """Read all 810 tests of two of the seventeen hosts that began, the 34 failed ones too."""
    tests = []
    for row in _rows("seventeen.csv"):
        numbers = [int(row[name]) for name in ("gpus_per_host", "first", "second")]
        slots = tuple(tuple(row[f"{end}_slots"].split("-")) for end in ("first", "second"))
        busbw = {size: float(row[f"busbw_{size}"]) for size in _SIZES if row[f"busbw_{size}"]}
        tests.append(PairTest(row["collective"], *numbers, slots, busbw, row["ended_at"]))
    return tuple(tests)


def select(tests: Iterable[PairTest], **values: object) -> list[PairTest]:
    """Return the completed tests with these values: ``collective``, ``gpus_per_host``."""
    return [t for t in tests if t.busbw and all(getattr(t, k) == v for k, v in values.items())]


def means(collective: str, gpus_per_host: int) -> dict[int, float]:
    """Return host -> the mean of its pairs in GB/s at 16 GiB."""
    tests = select(seventeen_hosts(), collective=collective, gpus_per_host=gpus_per_host)
    return {
        host: statistics.mean(test.busbw["16GiB"] for test in tests if host in test.pair)
        for host in range(1, 18)
    }


def worst_hosts() -> Table:
    """Lay out the tests by kind: the hosts with the lowest means, and how many pairs are slow."""
    rows = []
    for collective in ("sendrecv", "alltoall"):
        for gpus in (1, 4, 8):
            tests = select(seventeen_hosts(), collective=collective, gpus_per_host=gpus)
            by_host = means(collective, gpus)
            worst = ", ".join(map(str, sorted(by_host, key=by_host.get)[:4]))
            middle = statistics.median(test.busbw["16GiB"] for test in tests)
            slow = sum(test.is_slow for test in tests)
            rows.append([collective, gpus, worst, middle, f"{slow} of {len(tests)}"])
    columns = ["test", "GPUs per host", "lowest means: hosts", "median pair (GB/s)", "slow"]
    return Table(columns, rows, title="Pairs of seventeen hosts, at 16 GiB (PUBLISHED)")


def keys() -> dict[str, Callable[[PairTest], set]]:
    """Return what tests may be counted by, each with the values of it that a test has."""
    return {
        "a host": lambda test: {*test.pair},
        "a slot at work": lambda test: {*test.gpus[0], *test.gpus[1]},
        "a slot that sends": lambda test: {slots[-1] for slots in test.gpus},
        "a slot that receives": lambda test: {slot for _, _, slot in test.messages()},
    }


def by_value(
    tests: Iterable[PairTest], name: str, values_of: Callable[[PairTest], Iterable[object]]
) -> Table:
    """Count tests, all and slow ones, by the values that they have, as `values_of` tells."""
    began, slow = _counted(tests, values_of, lambda test: test.is_slow)
    rows = [[value, count, slow[value]] for value, count in sorted(began.items())]
    return Table([name, "tests", "slow"], rows)


def _counted(
    tests: Iterable[PairTest],
    values_of: Callable[[PairTest], Iterable[object]],
    is_hit: Callable[[PairTest], bool],
) -> tuple[Counter, Counter]:
    """Count by their values all tests, and those that are hit."""
    began, hits = Counter(), Counter()
    for test in tests:
        values = {*values_of(test)}
        began.update(values)
        if is_hit(test):
            hits.update(values)
    return began, hits


def judge(rule: Callable[[int, int, Slots, str], bool]) -> Table:
    """Lay out what a rule makes of the tests seen before; if all is right, of those held out."""
    rows: list[list] = []
    for words, collective, gpus in (
        ("sendrecv: you found it here", "sendrecv", (1, 4, 8)),
        ("alltoall, 8 GPUs: seen; 1: sendrecv's cards", "alltoall", (1, 8)),
        ("alltoall, 4 GPUs: held out", "alltoall", (4,)),
    ):
        if len(rows) == 2 and any(sum(row[3:5]) for row in rows):
            break  # held out: nobody tunes a rule on these
        completed, failed = Counter(), []
        for test in seventeen_hosts():
            if test.collective == collective and test.gpus_per_host in gpus:
                called = bool(rule(test.first, test.second, test.gpus, collective))
                if test.busbw:
                    completed[test.is_slow, called] += 1
                else:
                    failed.append(called)
        right = completed[False, False], completed[True, True]
        missed, false_alarms = completed[True, False], completed[False, True]
        rows.append([words, *right, missed, false_alarms, f"{sum(failed)} of {len(failed)}"])
    columns = ["tests", "fast, right", "slow, right", "missed", "false alarms", "failed: slow"]
    return Table(columns, rows, title="The rule and the logs (PUBLISHED)")


def failures(
    key: Callable[[PairTest], Iterable[object]], *, apart: Iterable[tuple[int, int]] = ()
) -> Table:
    """Count failed tests by what they have in common, the value with most of them first.

    Args:
        key: Gives the values that a test has: its two hosts, its pair, its collective.
        apart: Pairs of hosts whose tests are left out of the count.
    """
    left_out = {tuple(sorted(pair)) for pair in apart}
    tests = [test for test in seventeen_hosts() if test.pair not in left_out]
    began, failed = _counted(tests, key, lambda test: not test.busbw)
    rows = [[str(value), count, began[value]] for value, count in failed.items()]
    rows.sort(key=lambda row: (-row[1], row[2]))
    columns = ["in common", "failed", "tests that began"]
    return Table(columns, rows, title="The failed tests (PUBLISHED)")


def never_complete(tests: Iterable[PairTest]) -> dict[tuple[int, int], list[int]]:
    """Return the pairs of hosts of which no test with 4 or 8 GPUs per host was completed.

    For each: how many of its six planned tests were completed, failed, and never began.
    """
    by_pair: dict[tuple[int, int], list[PairTest]] = {}
    for test in tests:
        by_pair.setdefault(test.pair, []).append(test)
    counts = {}
    for pair, own in sorted(by_pair.items()):
        done = [test.gpus_per_host for test in own if test.busbw]
        if max(done, default=0) < 2:
            counts[pair] = [len(done), len(own) - len(done), 6 - len(own)]
    return counts


def lost_by_size() -> Table:
    """Lay out how far fast and slow tests stay below the best of their kind, by size."""
    rows = []
    for size in _SIZES:
        lost: dict[bool, list[float]] = {True: [], False: []}
        for test in select(seventeen_hosts()):
            most = best(test.collective, test.gpus_per_host, size)
            lost[test.is_slow].append(100 * (1 - test.busbw[size] / most))
        rows.append([size, *map(round, (max(lost[False]), min(lost[True]), max(lost[True])))])
    columns = ["size", "a fast test loses at most", "a slow one at least", "at most"]
    return Table(columns, rows, title="Against the best of its kind, in % (PUBLISHED)")


def alone_into(slot: str) -> dict[int, list[int]]:
    """Count, by host, sendrecv tests of which just one message goes into a slot: slow ones, all."""
    slow_on: dict[int, list[bool]] = {host: [] for host in range(1, 18)}
    for test in select(seventeen_hosts(), collective="sendrecv"):
        hit = [host for _, host, into in test.messages() if into == slot]
        if len(hit) == 1:
            slow_on[hit[0]].append(test.is_slow)
    return {host: [sum(tests), len(tests)] for host, tests in slow_on.items()}


def by_host(suspect: object, tests: Iterable[PairTest]) -> tuple[str, list[int], Table]:
    """Count by host what goes into a slot alone: of two messages into it either may be the one.

    Where no slot is named (`...`), the first one that is at work in all slow tests is taken.

    Returns:
        The slot; the hosts that have a slow test; and the table.
    """
    if suspect is ...:
        at_work = keys()["a slot at work"]
        slot = min(set.intersection(*(at_work(test) for test in tests if test.is_slow)))
        whose = "this cell's guess: the first address that all slow tests have"
    else:
        slot, whose = str(suspect), "your suspect"
    counts = alone_into(slot)
    rows = [[host, *figures] for host, figures in counts.items()]
    columns = ["a message goes into it on host", "slow", "tests"]
    accused = [host for host, (slow, _) in counts.items() if slow]
    return slot, accused, Table(columns, rows, title=f"Slot {slot} ({whose})")


def by_senders() -> Table:
    """Lay out what went from the other host into one slot in the slow tests, by their senders.

    With n = 2g ranks a test of t seconds and S bytes shows algbw = S/t. In sendrecv one message of
    S goes into a slot, and bus bandwidth is algbw. In alltoall each of g ranks sends it S/n, and
    bus bandwidth is algbw (n-1)/n, as nccl-tests' PERFORMANCE.md defines: g/(n-1) of it goes in.
    """
    into: dict[tuple[str, int, int], list[float]] = {}
    for test in seventeen_hosts():
        if test.busbw and test.is_slow:
            senders = 1 if test.collective == "sendrecv" else test.gpus_per_host
            gbs = test.busbw["16GiB"] * senders / (2 * senders - 1)
            into.setdefault((test.collective, test.gpus_per_host, senders), []).append(gbs)
    kinds = sorted(into.items(), reverse=True)
    rows = [[*kind, len(gbs), round(min(gbs), 2), round(max(gbs), 2)] for kind, gbs in kinds]
    columns = ["test", "GPUs per host", "senders", "slow tests", "into a slot: least GB/s", "most"]
    return Table(columns, rows, title="The same slots, more senders, at 16 GiB (PUBLISHED)")


@cache
def h100() -> tuple[dict, ...]:
    """Read the ten hosts' figures, and of how many ``runs`` each row is the median.

    Its other columns: ``collective``, ``hosts``, ``gpus_per_host``, ``bytes``, ``time_us``,
    ``busbw_gbs``, ``inplace_gbs``.
    """
    return _figures("h100.csv")


@cache
def polaris() -> tuple[dict, ...]:
    """Read Polaris' all_reduce at 4 bytes and 1 GiB: ``nccl``, ``hosts``, ``setup``, and times."""
    return _figures("polaris.csv")


def pick(rows: Iterable[dict], **values: object) -> list[dict]:
    """Return the rows whose columns have these values, in the order of their sizes."""
    chosen = [row for row in rows if all(row[key] == value for key, value in values.items())]
    return sorted(chosen, key=lambda row: row["bytes"])


@cache
def best(collective: str, gpus_per_host: int, size: str = "16GiB") -> float:
    """Return the best such test of the seventeen hosts, in GB/s."""
    tests = select(seventeen_hosts(), collective=collective, gpus_per_host=gpus_per_host)
    return max(test.busbw[size] for test in tests)


LEVELS = "slow", "across", "rail"


def levels(*, shown: bool = False) -> list[tuple[PairTest, str]]:
    """Return the sendrecv tests with 4 and 8 GPUs, each with its level: one of `LEVELS`.

    `shown`: only those that exercise 7.4 shows, two thirds; the others are held out.
    """
    tests = []
    for gpus in (8, 4):
        fastest = best("sendrecv", gpus)
        for test in select(seventeen_hosts(), collective="sendrecv", gpus_per_host=gpus):
            share = test.busbw["16GiB"] / fastest
            # Nothing lies from 0.08 to 0.93, or from 0.962 to 0.995.
            level = "slow" if share < 0.5 else "across" if share < 0.98 else "rail"
            if not shown or (test.first + test.second) % 3:
                tests.append((test, level))
    return tests


def _rows(name: str) -> list[dict[str, str]]:
    with (_DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _figures(name: str) -> tuple[dict, ...]:
    kept = ("collective",)
    return tuple({k: v if k in kept else json.loads(v) for k, v in r.items()} for r in _rows(name))
