"""Lesson 06's board: what each suspect predicts of the two-step sum, and whether it came true.

The excess is what the two steps take beyond one all_reduce. Each experiment asks of it: is it gone
when each step runs alone (launch order; steps that run alone do not overlap, so missing overlap is
not judged), does it stay with a quarter of the bytes (rounds), do the bytes tell it, or is it the
CPU's time for the sums?
"""

import math
from collections.abc import Mapping, Sequence

from course.lessons.equivalent_collectives.programs import QUARTER
from course.predictions.investigation import Board, Experiment, Investigation, outcome, outcomes
from course.runs import by_case, in_world
from labkit.measure.records import Record

ONE, TWO = "all_reduce", "reduce_scatter + all_gather"
FIRST, SECOND = TWO.split(" + ")


def excess(records: Mapping[str, Record], part: str = "") -> list[float]:
    """Return round by round by how many seconds the two steps exceed one all_reduce."""
    pairs = zip(records[TWO + part].seconds, records[ONE + part].seconds, strict=True)
    return [two - one for two, one in pairs]


def _judged(
    shares: Sequence[float], excesses: Sequence[float], *, most: float = math.inf, **limits: float
) -> list[bool | None]:
    """Judge each round's share of its excess; not where there is none, nor one above `most`."""
    pairs = zip(shares, excesses, strict=True)
    return [outcome(s, **limits) if more > 0 and s <= most else None for s, more in pairs]


def order(board: Board, records: Mapping[str, Record]) -> None:
    """Hold suspect a to the steps alone."""
    steps = zip(records[FIRST].seconds, records[SECOND].seconds, strict=True)
    rows = zip(records[TWO].seconds, steps, excess(records), strict=True)
    shares = [(both - sum(alone)) / more for both, alone, more in rows]
    predicts = "the two steps take less time, added up, when each runs alone. Then at least half "
    predicts += "of the excess (what they take longer in a row than all_reduce) is gone"
    came = _judged(shares, excess(records), stands=0.5, fell=0.25, most=1.5)
    found = f"{_all(shares)} of the excess gone, round by round"
    board.test("a", "A", predicts, came, found=found, records=records.values())


def rounds(board: Board, records: Mapping[str, Record]) -> None:
    """Hold suspect b to a quarter of the bytes.

    Messages that only wait leave all of it. Clearly more than all is another program's doing.
    """
    whole = excess(records)
    left = [few / more for few, more in zip(excess(records, QUARTER), whole, strict=True)]
    predicts = "with a quarter of the bytes in the same calls, at least two thirds of the excess "
    predicts += "(what the two steps take longer than all_reduce) stay"
    came = _judged(left, whole, stands=0.67, fell=0.45, most=1.5)
    found = f"{_all(left)} of the excess left, round by round"
    board.test("b", "B", predicts, came, found=found, records=records.values())


def sent(board: Board, by_way: Mapping[str, float], records: Mapping[str, Record]) -> None:
    """Hold suspect c to the bytes of the busiest rank, in S.

    If the two steps send as many as all_reduce, that refutes c whatever the clock says.
    """
    more = (by_way[FIRST] + by_way[SECOND]) / by_way[ONE]
    as_many = more <= 1.05
    pairs = zip(records[TWO].seconds, records[ONE].seconds, strict=True)
    longer = [two / one for two, one in pairs]
    predicts = "the two steps send more bytes than all_reduce, and take longer by the same factor, "
    predicts += "within 15 %"
    explained = outcomes([abs(x / more - 1) for x in longer], stands=0.15, fell=0.3)
    came = False if as_many else explained
    times = " ".join(f"{x:.2f}" for x in longer)
    found = f"{more:.3g} times the bytes; {times} the time"
    board.test("c", "C", predicts, came, found=found, records=records.values(), exact=as_many)


def sums(board: Board, seconds: Sequence[float], records: Mapping[str, Record]) -> None:
    """Hold suspect d to the sums without a wire, each round's against the smallest excess."""
    least = min(excess(records))
    shares = [took / least for took in seconds]
    predicts = "all sums and copies of four ranks, in one process, take at least half of the excess"
    came = _judged(shares, [least] * len(shares), stands=0.5, fell=0.25)
    found = f"{_all(shares)} of the excess"
    board.test("d", "D", predicts, came, found=found, records=records.values())


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world; c is guilty in the lesson's own."""
    ways = by_case(in_world(records, world or "c"))
    order(board, ways)
    rounds(board, ways)
    sent(board, {name: max(map(sum, r.values["matrix"])) for name, r in ways.items()}, ways)
    sums(board, next(iter(ways.values())).values["sums"], ways)


INVESTIGATION = Investigation(
    key="06.cause",
    question="Why do two steps take longer?",
    suspects={
        "a": "launch order",
        "b": "rounds, each with its alpha",
        "c": "bytes",
        "d": "sums and copies by the CPU",
    },
    experiments={
        "A": Experiment("each step alone", asks="a"),
        "B": Experiment("a quarter of the bytes", asks="b"),
        "C": Experiment("the bytes, counted", asks="c"),
        "D": Experiment("the sums, without links", asks="d"),
    },
    tests=hold_all,
    own="c",
    worlds="abcd",
)


def _all(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.0%}" for share in shares)
