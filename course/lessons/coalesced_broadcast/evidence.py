"""The board of lesson 3: why does one bucket for everything take longer than buckets of 25 MB?

Each experiment takes something away from *both* sides, or from one, and asks how much of the
difference between them is left, or goes. Both sides send every byte and pack every byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast import programs
from course.predictions.board import Board, Experiment, outcome
from course.predictions.investigation import Investigation
from course.runs import by_case
from labkit.measure.records import Record

MUCH, LITTLE = 0.6, 0.4
"""Shares of the difference: from here on it is most of it; up to here it is not."""
ALIKE = 1.15
"""Times the fastest way: where no way takes longer, they do not differ."""
LEAST = 0.1
"""Of the time of 'all in one': a smaller difference is none that could be explained."""


class Differences(NamedTuple):
    """What one round of an experiment found; seconds, medians of three broadcasts."""

    gap: float
    """By which 'all in one' takes longer than buckets of 25 MB."""
    change: float
    """By which the first of the pair takes longer than the second."""
    whole: float
    """That 'all in one' takes."""

    @property
    def share(self) -> float | None:
        """The change as a share of the gap; None where there is no gap."""
        return self.change / self.gap if self.gap > LEAST * self.whole else None


def rounds(records: Sequence[Record], pair: Iterable[str] = ()) -> list[Differences]:
    """Return the rounds of an experiment, from the records of `experiment.ask`.

    `pair` has the names of its runs, where they are the learner's own; the first two are compared.
    """
    seconds = {case: record.seconds for case, record in by_case(records).items()}
    cases = [*programs.GAP, *(pair or programs.EXPERIMENTS[asked(records)])][:4]
    count = len(seconds[cases[0]]) // problem.IN_A_ROUND
    result = []
    for number in range(count):
        part = slice(number * problem.IN_A_ROUND, (number + 1) * problem.IN_A_ROUND)
        whole, buckets, first, second = (median(seconds[case][part]) for case in cases)
        result.append(Differences(gap=whole - buckets, change=first - second, whole=whole))
    return result


def asked(records: Sequence[Record]) -> str:
    """Return the name of the experiment that records are of."""
    return records[0].params["asks"]


def medians(first: Record, second: Record) -> list[tuple[float, float]]:
    """Return two records' medians of each round: three broadcasts that took turns; seconds."""
    each, pairs = problem.IN_A_ROUND, list(zip(first.seconds, second.seconds, strict=True))
    parts = [pairs[start : start + each] for start in range(0, len(pairs) - each + 1, each)]
    return [(median(a for a, _ in part), median(b for _, b in part)) for part in parts]


def fastest(curve: Sequence[Record], ways: Mapping[str, Mapping] = programs.CURVE) -> list[str]:
    """Return the letter of the vote on the fastest bucket that each round of the curve supports.

    `ways` are those of the curve; a state that lies flat is no bucket.
    """
    packed = [record for record in curve if not ways[record.case].get("flat")]
    caps = [ways[record.case]["cap"] for record in packed]
    letters = []
    for pairs in zip(*(medians(record, record) for record in packed), strict=True):
        seconds = [pair[0] for pair in pairs]
        cap = caps[seconds.index(min(seconds))]
        alike = max(seconds) < ALIKE * min(seconds)
        letters.append("d" if alike else {0: "a", None: "c"}.get(cap, "b"))
    return letters


PREDICTIONS = {
    ("A", "a"): ("between kept buffers, one at a time, most of the difference is left", True),
    ("A", "d"): ("between kept buffers, one at a time, most of the difference is left", True),
    ("A", "b"): (
        "where neither program overlaps anything, little of the difference is left",
        False,
    ),
    ("A", "c"): ("where neither program needs new memory, little of the difference is left", False),
    ("B", "b"): ("without its overlap, 25 MB loses most of the difference", True),
    ("C", "c"): ("with its buffer kept, 'all in one' gains most of the difference", True),
    ("D", "a"): ("where nothing is packed, little of the difference is left", False),
    ("D", "d"): ("without any packing, most of the difference is left", True),
}
"""Experiment and suspect -> what it predicts, and whether that is a large share or a small one."""


def hold(board: Board, records: Sequence[Record], pair: Iterable[str] = ()) -> None:
    """Hold each suspect that an experiment asks to its prediction; `pair` is that of `rounds`."""
    name, all_rounds = asked(records), rounds(records, pair)
    change = 1e3 * median(each.change for each in all_rounds)
    gap = 1e3 * median(each.gap for each in all_rounds)
    for (experiment, suspect), (predicts, large) in PREDICTIONS.items():
        if experiment != name:
            continue
        most, least = (MUCH, LITTLE) if large else (LITTLE, MUCH)
        limit = f"at least {MUCH:.0%}" if large else f"at most {LITTLE:.0%}"
        outcomes = [
            None if each.share is None else outcome(each.share, stands=most, fell=least)
            for each in all_rounds
        ]
        found = f"{change:+.0f} ms of {gap:.0f} ms"
        board.test(suspect, name, f"{predicts}, {limit}", outcomes, found=found, records=records)


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world."""
    for name in programs.EXPERIMENTS:
        asks = {"asks": name} | ({"world": world} if world else {})
        hold(board, [record for record in records if problem.of_experiment(record) == asks])


INVESTIGATION = Investigation(
    key="03.why",
    question="Why does 'all in one' take longer than buckets of 25 MB?",
    suspects={"a": "packing", "b": "overlap", "c": "new memory", "d": "long messages"},
    experiments={
        "A": Experiment("kept buffers, one at a time", asks="abcd"),
        "B": Experiment("two on their way, or one", asks="b"),
        "C": Experiment("new buffers, or kept", asks="c"),
        "D": Experiment("nothing to pack", asks="ad"),
    },
    tests=hold_all,
    recording=problem.RECORDING,
    worlds="abd",
)
