"""Lesson 07: what killed 34 tests of two hosts. The board of the vote, from the logs."""

import itertools
import random
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.logs import PairTest
from course.predictions import ledger_file
from course.predictions.investigation import Board, Experiment, Investigation
from course.runs import quiet
from labkit.measure.records import Record

NINE = frozenset({1, 2, 3, 4, 6, 9, 12, 16, 17})
"""The hosts of the rule: messages into slot 9d of one of them are slow."""
WORST, DEALS, RARE = 5, 2000, 0.002
"""Pairs that are counted, random deals, and the share of these that is called no chance."""


def judge(board: Board, tests: Sequence[PairTest], nine: Collection[int] = NINE) -> Board:
    """Hold each suspect to what it predicts of these tests; `nine`: the hosts of the rule."""
    failed = [test for test in tests if not test.busbw]
    never = logs.never_complete(tests)
    in_pairs = [test for test in failed if test.pair in never]
    others = [test for test in failed if test.pair not in never]
    sick = {test: called_slow(test, nine) for test in tests}
    _hold_the_rule(board, failed, sick)
    _hold_beside_their_kind(board, "b", "outside the pairs that never complete", others, sick)
    _hold_beside_their_kind(board, "d", "among all tests", failed, sick)
    _hold_the_places(board, in_pairs, others)
    _hold_the_heap(board, failed, tests)
    return board


def _hold_the_rule(board: Board, failed: Sequence[PairTest], sick: Mapping[PairTest, bool]) -> None:
    """What makes the others slow would stand in every failed test."""
    hit = sum(sick[test] for test in failed)
    predicts = "every failed test has a message into a sick slot"
    found = f"{hit} of {len(failed)} have one"
    board.test("a", "A", predicts, hit == len(failed), found=found, exact=True)


def _hold_beside_their_kind(
    board: Board,
    suspect: str,
    where: str,
    failed: Sequence[PairTest],
    sick: Mapping[PairTest, bool],
) -> None:
    """Another fault, or chance, would choose tests whatever their messages."""
    share = by_luck(failed, sick)
    hit = sum(sick[test] for test in failed)
    predicts = (
        f"{where}, failed tests have such a message no more often than others of their kind: in "
        f"over {RARE:.1%} of random choices as often"
    )
    found = f"{hit} of {len(failed)} have one; by luck as many in {share:.1%} of choices"
    board.test(suspect, "B", predicts, share > RARE, found=found, exact=True)


def _hold_the_places(
    board: Board, in_pairs: Sequence[PairTest], others: Sequence[PairTest]
) -> None:
    """Two faults would end their tests at two sorts of lines."""
    in_pairs_at = {test.ended_at for test in in_pairs}
    others_at = {test.ended_at for test in others}
    shared = in_pairs_at & others_at
    apart = bool(in_pairs and others) and not shared
    predicts = "those pairs' tests end at other lines than the rest"
    found = f"{len(in_pairs_at)} and {len(others_at)} places, {len(shared)} of them shared"
    board.test("c", "C", predicts, apart, found=found, exact=True)


def _hold_the_heap(board: Board, failed: Sequence[PairTest], tests: Sequence[PairTest]) -> None:
    """Chance would heap no more failures on a few pairs than a deal does."""
    deal = random.Random(7)
    most = heap(failed)
    dealt = max(heap(deal.sample(tests, len(failed))) for _ in range(DEALS))
    found = f"{most} of {len(failed)}; in a deal at most {dealt}"
    one_fault = f"the worst {WORST} pairs hold more failures than in any of {DEALS} deals"
    chance = f"the worst {WORST} pairs hold no more failures than in some of {DEALS} deals"
    board.test("b", "D", one_fault, most > dealt, found=found, exact=True)
    board.test("d", "D", chance, most <= dealt, found=found, exact=True)


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to the authors' logs: nothing of it was run here."""
    judge(board, logs.seventeen_hosts())


def in_words(tests: Sequence[PairTest], nine: Collection[int] = NINE) -> str:
    """Say in a few sentences of which sorts the failed tests are."""
    failed, never = [test for test in tests if not test.busbw], logs.never_complete(tests)
    others = [test for test in failed if test.pair not in never]
    done, died, absent = map(sum, zip(*never.values(), strict=True))
    names = ", ".join(f"{a}-{b}" for a, b in sorted(never))
    single = ", ".join(f"{a}-{b}" for a, b in sorted(never) if never[a, b][0])
    (kind,) = {f"{test.collective} with {test.gpus_per_host} GPUs per host" for test in others}
    planned, called = 6 * len(never), sum(called_slow(test, nine) for test in others)
    across = sum(len({*pair} & {*nine}) == 1 for pair in never)
    return f"""There are two sorts of failed tests.

The first sort belongs to {len(never)} pairs of hosts: {names}. They never complete a test
with 4 or 8 GPUs. Of their {planned} planned tests {died} failed, and {absent} never began.
The other {done} were completed with one GPU each ({single}).
Most failures come while NCCL connects the ranks, before any byte moves.

The second sort are the other {len(others)}. All of them are {kind}, and all
end at one line, while data move. {called} of them have a message that the rule calls slow.

No place of an end is common to both sorts, so one fault does not explain them. In {across} of the
{len(never)} pairs just one host is of the nine. Some two hosts touch all of the pairs, which pairs
chosen at random show in {two_hosts_by_luck(len(never)):.0%} of choices."""


class Tribunal(Board):
    """The board of the vote, whose matrix stands in a fold behind its verdict."""

    def html(self, verdict: str = "", ours: Board | None = None) -> str:
        """Return the verdict, and below it, folded, what was held against each suspect."""
        summary = "<summary>The tribunal: each suspect and what was held against it</summary>"
        return f"<p><b>{verdict}</b></p><details>{summary}{super().html('', ours)}</details>"


def tribunal() -> Tribunal:
    """Return the board of the learner's vote, judged by the authors' logs."""
    ours = INVESTIGATION
    question = ledger_file.entry(ours.key).question
    board = Tribunal(question, ours.suspects, ours.experiments, key=ours.key, say=quiet)
    judge(board, logs.seventeen_hosts())
    return board


def group(host: int) -> str:
    """Return to which hosts one belongs: `nine`, `rest`, or `alone` (host 8)."""
    return "nine" if host in NINE else "alone" if host == 8 else "rest"


def hosts_in_order() -> list[int]:
    """Return the seventeen hosts as a matrix is to show them: those of one group side by side."""
    return sorted(
        range(1, 18), key=lambda host: (["nine", "rest", "alone"].index(group(host)), host)
    )


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


def two_hosts_by_luck(pairs: int) -> float:
    """Return the share of random choices of so many pairs that two of 17 hosts touch all of."""
    deal, every = random.Random(7), [{*two} for two in itertools.combinations(range(17), 2)]
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
    own="c",
)
