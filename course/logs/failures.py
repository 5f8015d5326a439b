"""Tests that failed: which of them failed alike, and what those have in common."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from course.logs.nccl_tests import Failure
from course.logs.pairs import Pair, Rule
from labkit.measure.records import Record

_PLACE = re.compile(r"(\w+\.cu:\d+)(?: '([^']*))?")


@dataclass(frozen=True, slots=True)
class Kind:
    """Tests that failed in the same phase and at the same line of nccl-tests, if they say so."""

    phase: str
    text: str
    tests: list[Failure]
    collectives: str
    """``"all_to_all: 12, send: 9"``."""
    shared: str
    """What their hosts have in common, in words."""


def kinds(failures: Iterable[Failure], records: Iterable[Record]) -> list[Kind]:
    """Put failed tests together that failed alike, the most frequent first.

    `records` are the tests that succeeded: a pair of hosts is said never to have completed a kind
    of test only if there is none of it among them.
    """
    grouped: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    for one in failures:
        grouped[one.phase, _place(one.text)].append(one)
    completed = {
        (frozenset(record.values["hosts"]), record.params.get("gpus_per_host"))
        for record in records
    }
    return [
        Kind(phase, text, tests, _collectives(tests), _shared(tests, completed))
        for (phase, text), tests in sorted(grouped.items(), key=lambda kind: -len(kind[1]))
    ]


def called_slow(tests: Sequence[Failure], rules: Mapping[tuple, Rule]) -> str:
    """Say how many failed tests a rule of the completed ones calls slow: ``"13 of 13"``.

    `rules` are by collective and GPUs per host. Where the slow ones are half of all, and all that
    failed are slow ones, what makes them slow may be what makes them fail.
    """
    judged = [
        rule.calls_slow(frozenset(one.hosts))
        for one in tests
        if len(one.hosts) == 2 and (rule := rules.get((one.collective, one.gpus_per_host)))
    ]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _collectives(tests: Sequence[Failure]) -> str:
    asked = ((one.collective or "a test", one.gpus_per_host or "?") for one in tests)
    each = Counter(asked).most_common(6)
    return ", ".join(f"{name} with {gpus} GPUs a host: {count}" for (name, gpus), count in each)


def _place(text: str) -> str:
    """Name the line of nccl-tests and the error: ``"common.cu:401: remote process exited"``."""
    if not (match := _PLACE.search(text)):
        return "nothing: its text ends" if text == "no figures" else text
    place, error = match.groups()
    return f"{place}: {error.strip(' /')}" if error else place


def _shared(tests: Sequence[Failure], completed: set[tuple]) -> str:
    """Say what they share: hosts of which one is in each; pairs that never completed; a GPU."""
    of_pairs = Counter(frozenset(one.hosts) for one in tests if len(one.hosts) == 2)
    if not of_pairs:
        hosts = Counter(host for one in tests for host in set(one.hosts)).most_common(4)
        return ", ".join(f"{host} ({count})" for host, count in hosts)
    names = [" - ".join(pair) for pair in sorted(map(sorted, of_pairs))]
    words = [f"{len(names)} pairs" + (f": {', '.join(names)}" if len(names) <= 8 else "")]
    cover = _cover(of_pairs)
    if len(names) > 1 and len(cover) <= 2:
        words.append(f"in each {' or '.join(cover)}")
    never = {(frozenset(one.hosts), one.gpus_per_host) for one in tests} - completed
    if by_gpus := sorted(Counter(gpus for _, gpus in never).items(), key=str):
        each = ", ".join(f"{n} with {gpus} GPUs a host" for gpus, n in by_gpus)
        words.append(f"no test of these completed: {each}")
    slots = [set(one.slots) for one in tests]
    if len(tests) > 2 and (common := set.intersection(*slots)) and len(common) < 3:
        words.append(f"GPU {' and '.join(sorted(common))} in each")
    return "; ".join(words)


def _cover(pairs: Iterable[Pair]) -> list[str]:
    """Return few hosts of which one is in each pair: always the one that is in most."""
    left, chosen = set(pairs), []
    while left:
        hosts = Counter(host for pair in left for host in pair)
        host = min(hosts, key=lambda one: (-hosts[one], one))
        chosen.append(host)
        left = {pair for pair in left if host not in pair}
    return chosen
