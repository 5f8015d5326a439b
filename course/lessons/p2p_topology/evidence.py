"""Lesson 04's board: what each suspect predicts of a server's copies, and whether it came true.

The lesson holds the suspects to the authors' figures. `guilty` makes the same experiments on eight
hosts here, in servers in which another suspect is guilty: the board then has to find that one.
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from course.lessons.p2p_topology.topology import PUZZLE, Topology
from course.predictions.investigation import Board, Experiment, Investigation, outcome
from course.published import load
from course.runs import in_world
from labkit.measure.records import Record

PAIRS = list(itertools.permutations(range(PUZZLE.gpus), 2))
FAR = [pair for pair in PAIRS if PUZZLE.numa[pair[0]] != PUZZLE.numa[pair[1]]]
KINDS = "NV4", "NV2", "SYS"


@dataclass(frozen=True, slots=True)
class Copies:
    """What one round of the experiments found on a server with the puzzle's table of links."""

    alone: Sequence[Sequence[float]]
    """Bytes per second of a copy with no other one under way: `alone[src][dst]`."""
    together: Mapping[int, float]
    """Seconds of GPU 0's copies to these GPUs, when they start together."""
    nbytes: float  # what each of them carries

    @property
    def slowest(self) -> int:
        """Where the longest of the copies together goes."""
        return max(self.together, key=lambda dst: self.together[dst])

    def median(self, pairs: Iterable[tuple[int, int]]) -> float:
        """Return the median rate of some pairs."""
        return statistics.median(self.alone[src][dst] for src, dst in pairs)

    def shrinks(self) -> float:
        """Return the slowest copy's time alone over its time together."""
        return self.nbytes / self.alone[0][self.slowest] / self.together[self.slowest]

    def received(self) -> float:
        """Return the rate into the slowest copy's GPU over that into the others: medians.

        Of copies over the same kind of link as the slowest one's: a GPU in a bad PCIe slot still
        receives well over its NVLinks.
        """
        kind = PUZZLE.link(0, self.slowest)
        alike = {pair for pair in PAIRS if PUZZLE.link(*pair) == kind}
        into = {pair for pair in alike if pair[1] == self.slowest}
        return self.median(into) / self.median(alike - into)

    def far(self) -> float:
        """Return the best rate to another NUMA node over the median rate within one."""
        return max(self.alone[src][dst] for src, dst in FAR) / self.median({*PAIRS} - {*FAR})

    def follow(self) -> tuple[float, float]:
        """Return the share of the upper half that the lower half's kinds tell within 5 %.

        And by how much they miss the copies that start together, at worst: 0.1 is a tenth.
        """
        lower = [pair for pair in PAIRS if pair[0] > pair[1]]
        rates = {kind: self.median(p for p in lower if PUZZLE.link(*p) == kind) for kind in KINDS}
        foretold = {(src, dst): rates[PUZZLE.link(src, dst)] for dst, src in lower}
        tells = [abs(r / self.alone[src][dst] - 1) < 0.05 for (src, dst), r in foretold.items()]
        times = {dst: self.nbytes / foretold[0, dst] for dst in self.together}
        misses = [abs(times[dst] / seconds - 1) for dst, seconds in self.together.items()]
        return sum(tells) / len(tells), max(misses)


def _follows(figures: tuple[float, float]) -> bool | None:
    share, missed = figures
    if share >= 0.9 and missed <= 0.1:
        return True
    return False if share < 0.75 or missed > 0.3 else None


def published(alone: Sequence[Sequence[float]], milliseconds: Mapping[int, float]) -> list[Copies]:
    """Return the authors' figures as the one round that they are."""
    return [Copies(alone, {dst: ms / 1e3 for dst, ms in milliseconds.items()}, 400e6)]


class Prediction(NamedTuple):
    """What a suspect predicts of a server, and how a round's copies are held to it."""

    words: str
    look: Callable[[Copies], Any]
    judge: Callable[[Any], bool | None]
    found: Callable[[Sequence], str]
    """Says what was found in all rounds."""


def _each(words: str) -> Callable[[Sequence[float]], str]:
    """Return how shares are said, round by round: ``words`` has a {} for them."""
    return lambda shares: words.format(" ".join(f"{share:.0%}" for share in shares))


def _told_and_missed(rounds: Sequence[tuple[float, float]]) -> str:
    """Say how many pairs the kinds of links tell, and how well durations, in the first round."""
    share, missed = rounds[0]
    return f"{share:.0%} of the pairs, durations within {missed:.1%}"


PREDICTIONS = {
    "a": Prediction(
        "alone, the slowest copy takes at most 85 % of its time beside the others",
        Copies.shrinks,
        partial(outcome, stands=0.85, fell=0.95),
        _each("alone it takes {} of its time beside the others"),
    ),
    "b": Prediction(
        "each kind of link has one rate: taken from half of the matrix, it tells 9 of 10 pairs of "
        "the other half within 5 %, and the three durations within 10 %; it falls at fewer than "
        "3 of 4 pairs, or where a duration is missed by more than 30 %",
        Copies.follow,
        _follows,
        _told_and_missed,
    ),
    "c": Prediction(
        "over the same kind of link, copies into GPU 2 have at most half the rate of those into "
        "the other GPUs",
        Copies.received,
        partial(outcome, stands=0.5, fell=0.8),
        _each("{} of the rate into the others"),
    ),
    "d": Prediction(
        "the best copy to another NUMA node has at most half the rate of copies within one",
        Copies.far,
        partial(outcome, stands=0.5, fell=0.8),
        _each("the best far copy has {} of the rate of the near ones"),
    ),
}
"""By suspect."""


def hold(board: Board, rounds: Sequence[Copies], suspects: str = "abcd", **how: object) -> None:
    """Hold suspects to their experiments on one server: a to A, b to B, and so on."""
    for suspect in suspects:
        predicts = PREDICTIONS[suspect]
        figures = [predicts.look(copies) for copies in rounds]
        came = [predicts.judge(figure) for figure in figures]
        found = predicts.found(figures)
        board.test(suspect, suspect.upper(), predicts.words, came, found=found, **how)


def hold_alone(board: Board, rounds: Sequence[Copies]) -> None:
    """Hold a to the authors' figures, and say how much a queue can have cost at most.

    The two other copies of the trace begin within 2 µs of the slowest, and take 8.5 ms at most.
    """
    hold(board, rounds, "a", exact=True)
    print("The two others were done within 10 ms:", end=" ")
    print("a queue behind them cannot have cost more than that.")


def say_beside(pairs: Iterable[tuple[int, int]], alone: Topology, both_ways: Topology) -> None:
    """Print pairs' rates in the authors' two matrices: one way, and both ways at once."""
    for pair in pairs:
        one_way, sum_of_both = (m.bandwidth(*pair) / 1e9 for m in (alone, both_ways))
        print(
            f"{pair}: {one_way:.0f} GB/s; in the authors' second matrix, both ways at once,",
            f"{sum_of_both:.0f} in all",
        )


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world; without one, to the authors' figures."""
    if world:
        [record] = in_world(records, world)
        rounds = []
        for measured in record.values["rounds"]:
            together = {int(dst): seconds for dst, seconds in measured["together"].items()}
            rounds.append(Copies(measured["alone"], together, record.nbytes))
        hold(board, rounds, records=[record])
        return
    figures = load("p2p_topology")
    durations = dict(zip((1, 2, 4), figures["durations"].value, strict=True))
    matrix = PUZZLE.with_measured(figures["p2p_on"].value)
    hold(board, published(matrix.measured, durations), exact=True)


INVESTIGATION = Investigation(
    key="04.cause",
    question="Why do the copies take so long?",
    suspects={
        "a": "a queue at GPU 0",
        "b": "each pair's own links",
        "c": "the receiver, GPU 2",
        "d": "distance alone",
    },
    experiments={
        "A": Experiment("each copy alone", asks="a"),
        "B": Experiment("half of the matrix predicts the other", asks="b"),
        "C": Experiment("all copies into GPU 2", asks="c"),
        "D": Experiment("to other NUMA nodes", asks="d"),
    },
    tests=hold_all,
    own="b",
    worlds="abcd",
)
