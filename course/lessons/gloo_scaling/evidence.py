"""The board of lesson 01: what do pairs share, so that each slows down all others?

Each experiment takes one suspect away, or changes it alone, and asks what becomes of the growth. In
all of them the ranks are pinned to two CPUs, both partners of a pair to one of them.
"""

from collections.abc import Sequence
from statistics import median

from course.lessons.gloo_scaling import experiment as problem
from course.predictions.board import Board, Experiment, outcome
from course.predictions.investigation import Investigation
from labkit.measure.records import Record

FULL, IDLE = 0.5, 0.2
"""Shares of what the network carries: from here on it may be short; up to here it is not."""
FASTER, ALIKE = 0.8, 0.92
"""Times with two CPUs, in those with one: up to here they help; from here on they do not."""
GROWS, LEVEL = 1.5, 1.25
"""Times with the most pairs, in those with one: from here on they grow; up to here they do not."""
LITTLE, MUCH = 0.25, 0.5
"""Shares of the growth that are left without a suspect."""


def by_round(record: Record) -> list[float]:
    """Return the median seconds per call of each round."""
    seconds, each = record.seconds, len(record.seconds) // record.params["rounds"]
    return [median(seconds[start : start + each]) for start in range(0, len(seconds), each)]


def of(records: Sequence[Record], series: str, arm: problem.Arm) -> Record:
    """Return the record of a series and an arm."""
    for record in records:
        if (record.case, *(record.params[key] for key in arm._fields)) == (series, *arm):
            return record
    raise LookupError(f"there is no record of {series!r} and {arm}.")


def most_of(records: Sequence[Record]) -> int:
    """Return the largest number of pairs."""
    return max(record.params["pairs"] for record in records)


def network(board: Board, records: Sequence[Record]) -> None:
    """A: what share of what the network carries do the calls use?"""
    (arm,) = problem.arms("A", most_of(records))
    job, large = (of(records, name, arm) for name in ("the job", "large"))
    shares = [
        (small_bytes / small) / (large_bytes / long)
        for small_bytes, small, large_bytes, long in zip(
            job.values["sent"], by_round(job), large.values["sent"], by_round(large), strict=True
        )
    ]
    sent = median(job.values["sent"])
    board.test(
        "a",
        "A",
        f"the calls move {FULL:.0%} or more of what the network carries; at {IDLE:.0%} or less a "
        "falls",
        [outcome(share, stands=FULL, fell=IDLE) for share in shares],
        found=f"a rank sends {sent:,.0f} bytes a call, headers and all; the ranks together use "
        f"{median(shares):.1%} of what the network carries",
        records=records,
    )


def two_cpus(board: Board, records: Sequence[Record]) -> None:
    """B: do the same calls take less time on two CPUs than on one?"""
    most = most_of(records)
    one, two = (
        by_round(of(records, "calls", problem.Arm(most, place)))
        for place in ("one core", "together")
    )
    shares = [b / a for a, b in zip(one, two, strict=True)]
    board.test(
        "b",
        "B",
        f"with one torch thread a rank, {most} pairs need at most {FASTER:.0%} of the time "
        f"when they get two CPUs instead of one; at {ALIKE:.0%} or more b falls",
        [outcome(x, stands=FASTER, fell=ALIKE) for x in shares],
        found=f"on two CPUs a call takes {median(shares):.0%} as long as on one CPU",
        records=records,
        ratio=True,
    )


def clocks(board: Board, records: Sequence[Record]) -> None:
    """C: is there less growth by a clock that begins when all are there and warm?"""
    few, many = problem.arms("C", most_of(records))
    theirs, ours = (
        _growth(of(records, clock, few), of(records, clock, many))
        for clock in ("their clock", "lesson 00's clock")
    )
    _goes_with(board, "c", "C", ("their clock", "lesson 00's clock"), theirs, ours, records)


def threads(board: Board, records: Sequence[Record]) -> None:
    """D: is there less growth with one torch thread a rank than with eight?"""
    several = max(record.params["threads"] for record in records)
    chosen = problem.arms("D", most_of(records), several)
    of_several, of_one = (
        _growth(*(of(records, "calls", arm) for arm in pair)) for pair in (chosen[:2], chosen[2:])
    )
    names = f"{several} threads a rank", "one thread"
    _goes_with(board, "d", "D", names, of_several, of_one, records)


def _growth(few: Record, many: Record) -> list[float]:
    return [b / a for a, b in zip(by_round(few), by_round(many), strict=True)]


def left(with_it: float, without: float) -> bool | None:
    """Judge one round: does the growth go with the suspect?

    Args:
        with_it: Time with the most pairs, as a multiple of that with one pair.
        without: The same, without the suspect.
    """
    if with_it <= LEVEL:
        return False
    share = outcome((without - 1) / (with_it - 1), stands=LITTLE, fell=MUCH)
    return share if with_it >= GROWS else None if share else share


def _goes_with(
    board: Board, suspect: str, name: str, names: tuple[str, str], with_it: Sequence[float],
    without: Sequence[float], records: Sequence[Record],
) -> None:  # fmt: skip
    guilty, innocent = names
    board.test(
        suspect,
        name,
        f"with {guilty} a call takes at least {GROWS:g} times as long for {most_of(records)} pairs "
        f"as for one. With {innocent} at most {LITTLE:.0%} of what was added is left (2 times as "
        f"long would become {1 + LITTLE:g} times). {suspect} falls where {MUCH:.0%} or more is "
        "left, or where nothing grew to begin with",
        [left(a, b) for a, b in zip(with_it, without, strict=True)],
        found=f"with {guilty} a call takes {median(with_it):.1f} times as long for "
        f"{most_of(records)} pairs as for one; with {innocent}, {median(without):.1f} times",
        records=records,
        ratio=True,
    )


TESTS = {"A": network, "B": two_cpus, "C": clocks, "D": threads}
"""Experiment -> the function that adds its test to a board."""


def hold(board: Board, records: Sequence[Record]) -> None:
    """Hold a suspect to what an experiment found."""
    TESTS[records[0].params["part"]](board, records)


def like_ours(records: Sequence[Record], seconds: dict[int, float]) -> dict[int, float]:
    """Return, by pairs, in how many CPUs like one of ours calls would take so long.

    That is our time on one CPU in theirs: past the knee, times go with 1 / CPUs.
    """
    ours = {r.params["pairs"]: r.seconds[0] for r in records if r.params.get("cpus") == 1}
    return {p: ours[p] / seconds[p] for p in ours if p in seconds}


def cpus_of(records: Sequence[Record], seconds: dict[int, float]) -> float:
    """Return the median of `like_ours` from four pairs on, where the CPUs are full."""
    return median(cpus for p, cpus in like_ours(records, seconds).items() if p >= 4)


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world."""
    for name in TESTS:
        of_part = [
            record
            for record in records
            if (record.params["part"], record.params.get("world", "")) == (name, world)
        ]
        if of_part:
            hold(board, of_part)


INVESTIGATION = Investigation(
    key="01.cause",
    question="What do the pairs share, so that each slows down all others?",
    suspects={
        "a": "the network",
        "b": "the CPUs",
        "c": "the stopwatch",
        "d": "torch's threads",
    },
    experiments={
        "A": Experiment("how full the network is", asks="a"),
        "B": Experiment("one CPU, or two", asks="b"),
        "C": Experiment("their clock, or lesson 00's", asks="c"),
        "D": Experiment("eight threads, or one", asks="d"),
    },
    tests=hold_all,
    recording=problem.RECORDING,
    worlds="acd",
)
