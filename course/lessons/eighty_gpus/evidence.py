"""Lesson 07: what killed 34 tests of two hosts. The board of the vote, from the logs."""

import itertools
import random
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from course.lessons.eighty_gpus import experiment, logs
from course.lessons.eighty_gpus.logs import PairTest
from course.predictions.investigation import Board, Experiment, Investigation
from labkit.measure.records import Record

NINE = frozenset({1, 2, 3, 4, 6, 9, 12, 16, 17})
"""The hosts of the rule: messages into slot 9d of one of them are slow."""
WORST, DEALS, RARE = 5, 2000, 0.002
"""Pairs that are counted, random deals, and the share of these that is called no chance."""


def judge(board: Board, tests: Sequence[PairTest], nine: Collection[int] = NINE) -> Board:
    """Hold each suspect to what it predicts of these tests; `nine`: the hosts of the rule."""
    failed = [test for test in tests if not test.busbw]
    never = logs.never_complete(tests)
    inside = [test for test in failed if test.pair in never]
    rest = [test for test in failed if test.pair not in never]
    sick = {test: called_slow(test, nine) for test in tests}
    hit = sum(sick[test] for test in failed)
    words = "every failed test has a message into a sick slot"
    found = f"{hit} of {len(failed)} have one"
    board.test("a", "A", words, hit == len(failed), found=found, exact=True)
    outside = "outside the pairs that never complete"
    for suspect, some, words in (("b", rest, outside), ("d", failed, "among all tests")):
        hit, share = sum(sick[test] for test in some), by_luck(some, sick)
        words += ", failed tests have such a message no more often than others of their kind"
        found = f"{hit} of {len(some)} have one; in {share:.1%} of {DEALS} choices as many"
        words += f": in over {RARE:.1%} of random choices as often"
        board.test(suspect, "B", words, share > RARE, found=found, exact=True)
    ends = [sorted({test.ended_at for test in some}) for some in (inside, rest)]
    found = " against ".join(", ".join(some) or "none" for some in ends)
    apart = bool(inside and rest) and not {*ends[0]} & {*ends[1]}
    words = "those pairs' tests end at other lines than the rest"
    board.test("c", "C", words, apart, found=found, exact=True)
    deal = random.Random(7)
    most, dealt = heap(failed), max(heap(deal.sample(tests, len(failed))) for _ in range(DEALS))
    for suspect, words in (("b", "more failures"), ("d", "no more failures")):
        words = f"the worst {WORST} pairs hold {words} than in all of {DEALS} deals"
        found = f"{most} of {len(failed)}; in a deal at most {dealt}"
        board.test(suspect, "D", words, (most > dealt) == (suspect == "b"), found=found, exact=True)
    return board


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to the authors' logs: nothing of it was run here."""
    judge(board, logs.seventeen_hosts())


def called_slow(test: PairTest, nine: Collection[int]) -> bool:
    """Tell what our rule says: a message into 9d of one of the nine, but not from their own 9d."""
    own = dict(zip(test.pair, test.gpus, strict=True))
    return any(
        slot == "9d" and to in nine and not (src in nine and "9d" in own[src])
        for src, to, slot in test.messages()
    )


def by_luck(some: Sequence[PairTest], sick: Mapping[PairTest, bool]) -> float:
    """Return the share of random choices, as many of each kind, with as many sick ones."""
    kinds: dict[tuple[str, int], list[bool]] = {}
    for test, is_sick in sick.items():
        kinds.setdefault((test.collective, test.gpus_per_host), []).append(is_sick)
    wanted = Counter((test.collective, test.gpus_per_host) for test in some)
    deal, hit = random.Random(7), sum(sick[test] for test in some)
    choices = (
        sum(sum(deal.sample(kinds[kind], count)) for kind, count in wanted.items())
        for _ in range(DEALS)
    )
    return statistics.mean(chosen >= hit for chosen in choices)


def heap(some: Iterable[PairTest]) -> int:
    """Return how many of these tests the worst pairs of hosts hold."""
    counts = Counter(test.pair for test in some)
    return sum(count for _, count in counts.most_common(WORST))


def two_hosts_by_luck(pairs: int, hosts: int = 17) -> float:
    """Return the share of random choices of so many pairs that some two hosts touch all of."""
    deal, every = random.Random(7), [{*two} for two in itertools.combinations(range(hosts), 2)]
    choices = [deal.sample(every, pairs) for _ in range(DEALS)]
    touched = (any(all(pair & two for pair in chosen) for two in every) for chosen in choices)
    return statistics.mean(touched)


INVESTIGATION = Investigation(
    key="07.failed",
    question="What killed 34 of 810 tests?",
    suspects={
        "a": "what makes the others slow",
        "b": "one other fault",
        "c": "two faults",
        "d": "chance",
    },
    experiments={
        "A": Experiment("the rule, on each failed test", asks="a"),
        "B": Experiment("failed tests beside others of their kind", asks="bd"),
        "C": Experiment("the lines at which tests ended", asks="c"),
        "D": Experiment("as many failures, dealt at random", asks="bd"),
    },
    tests=hold_all,
    recording=experiment.RECORDING,
)
