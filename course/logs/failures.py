"""Tests that failed: which of them failed alike, and what those have in common."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from course.logs import pairs
from course.logs.nccl_tests import Failure
from labkit.measure.records import Record
from labkit.measure.tables import Table

_PLACE = re.compile(r"(\w+\.cu:\d+)(?: '([^']*))?")


def table(failed: Sequence[Failure], records: Iterable[Record], rules: Mapping) -> Table:
    """Put tests together that failed alike, the most frequent first, with what they share.

    `records` are the tests that succeeded: a pair of hosts is said never to have completed a kind
    of test only if there is none of it among them. `rules` are what calls pairs slow among these,
    by collective and GPUs per host. Where the slow ones are half of all, and all that failed are
    slow ones, what makes them slow may be what makes them fail.
    """
    grouped: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    for test in failed:
        grouped[test.phase, _place(test.text)].append(test)
    completed = {(frozenset(r.values["hosts"]), r.params.get("gpus_per_host")) for r in records}
    rows = []
    for (phase, text), tests in sorted(grouped.items(), key=lambda kind: -len(kind[1])):
        kinds = ((test.collective or "a test", test.gpus_per_host or "?") for test in tests)
        of_kind = Counter(f"{name} with {gpus} GPUs a host" for name, gpus in kinds)
        ruled = [(rules[test.kind], pairs.of(test.hosts)) for test in tests if test.kind in rules]
        judged = [rule.calls_slow(pair) for rule, pair in ruled if pair]
        each = ", ".join(f"{kind}: {n}" for kind, n in of_kind.most_common(6))
        slow = f"{sum(judged)} of {len(judged)}" if judged else ""
        first = f"{tests[0].file}, line {tests[0].line}"
        rows.append([phase, text, len(tests), each, _shared(tests, completed), slow, first])
    columns = [f"failed: {len(failed)} tests", "it printed", "tests", "collectives"]
    columns += ["hosts", "slow by the rule of the others", "the first"]
    title = "Tests that fail in other phases may have another cause: each row is one to explain."
    return Table(columns, rows, title if len(rows) > 1 else "")


def _place(text: str) -> str:
    """Name the line of nccl-tests and the error: ``"common.cu:401: remote process exited"``."""
    if not (match := _PLACE.search(text)):
        return "nothing: its text ends" if text == "no figures" else text
    place, error = match.groups()
    return f"{place}: {error.strip(' /')}" if error else place


def _shared(tests: Sequence[Failure], completed: set[tuple]) -> str:
    """Say what they share: hosts of which one is in each; pairs that never completed; a GPU."""
    names = sorted({tuple(sorted(test.hosts)) for test in tests if pairs.of(test.hosts)})
    hosts = Counter(host for test in tests for host in sorted(test.hosts))
    if not names:
        return ", ".join(f"{host} ({count})" for host, count in hosts.most_common(4))
    listed = ", ".join(map(" - ".join, names))
    words = [f"{len(names)} pairs: {listed}" if len(names) <= 8 else f"{len(names)} pairs"]
    either = [{host} for host in names[0]] + [{host, other} for host in names[0] for other in hosts]
    in_each = next((some for some in either if all(some & set(pair) for pair in names)), ())
    if len(names) > 1 and in_each:
        words.append(f"in each {' or '.join(sorted(in_each))}")
    never = {(frozenset(test.hosts), test.gpus_per_host) for test in tests} - completed
    if by_gpus := sorted(Counter(gpus for _, gpus in never).items(), key=str):
        each = ", ".join(f"{n} with {gpus} GPUs a host" for gpus, n in by_gpus)
        words.append(f"no test of these completed: {each}")
    common = set.intersection(*(set(test.slots) for test in tests))
    if len(tests) > 2 and 0 < len(common) < 3:
        words.append(f"GPU {' and '.join(sorted(common))} in each")
    return "; ".join(words)
