"""The board of lesson 01: what do pairs share, so that each slows down all others?

Each experiment takes one suspect away, or changes it alone, and asks what becomes of the growth.
Its arms are known by their values, not by their names. Both partners of a pair share one CPU.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from course.lessons.gloo_scaling import programs
from course.lessons.gloo_scaling.experiment import MOST
from course.predictions.investigation import Board, Experiment, Investigation, outcome, outcomes
from course.runs import in_world
from labkit.measure.records import Record

HALF_OF_48 = 24  # CPUs: where the asker's come out as fewer, the 48 were not all at work
FULL, IDLE = 0.5, 0.2
FASTER, ALIKE = 0.8, 0.92
GROWS, LEVEL = 1.5, 1.25
LITTLE, MUCH = 0.25, 0.5
"""Limits: of what the network carries, to call it full or idle; of times with two CPUs in those
with one; of times with the most pairs in those with one; and of the growth that is left."""


def by_round(record: Record, middle: Callable[[list[float]], float] = median) -> list[float]:
    """Return the median seconds per call of each round, or another middle of them."""
    seconds, each = record.seconds, len(record.seconds) // record.params["rounds"]
    return [middle(seconds[start : start + each]) for start in range(0, len(seconds), each)]


USUAL = {"threads": 1, "numel": None, "calling": None}  # of an arm that says nothing else
Settings = Mapping[str, Any]


def _has(record: Record, settings: Settings) -> bool:
    own = USUAL | record.params
    return all(own.get(key) == value for key, value in (USUAL | settings).items())


def of(records: Sequence[Record], **settings: Any) -> Record:
    """Return the record of the arm with these settings, otherwise usual ones, or `LookupError`."""
    for record in records:
        if _has(record, settings):
            return record
    raise LookupError(f"This needs an arm with {settings}, beside others of as many pairs.")


def most_of(records: Sequence[Record], *settings: Settings) -> int:
    """Return the largest number of pairs with which there is an arm of each of the settings."""
    counts = [{r.params["pairs"] for r in records if _has(r, each)} for each in settings]
    return max(set.intersection(*counts), default=MOST)


def _ratios(records: Sequence[Record], below: Settings, above: Settings) -> list[float]:
    """Return, by round, the time of the arm with the second settings in that of the first's."""
    times = (by_round(of(records, **settings)) for settings in (below, above))
    return [b / a for a, b in zip(*times, strict=True)]


def reference(records: Sequence[Record]) -> float:
    """Return the seconds to which an experiment's bet compares.

    In B they are those of the most pairs on one CPU, in D those with one thread, else one pair's.
    """
    part = records[0].params["part"]
    if part == "B":
        arm = of(records, pairs=most_of(records, {"cpus": 1}, {"cpus": 2}), cpus=1)
    elif part == "D":
        threads = {"threads": _most_threads(records)}
        arm = of(records, pairs=most_of(records, threads, {"threads": 1}))
    else:
        arm = of(records, pairs=1)
    return arm.summary.median


def carried(record: Record) -> list[float]:
    """Return, by round, the bytes that all ranks send in a second."""
    ranks = 2 * record.params["pairs"]
    sent = zip(record.values["sent"], by_round(record), strict=True)
    return [ranks * nbytes / seconds for nbytes, seconds in sent]


Found = tuple[str, list[bool | None], str, list[float]]
"""What the suspect predicts, whether that came true, by round, what was found, and what the bet
asks for, by round. Each of the functions below returns this."""


def network(records: Sequence[Record]) -> Found:
    """A: what share of what the network carries do the calls use, in %?"""
    job = of(records, pairs=most_of(records, {}))
    large = max(records, key=lambda record: median(carried(record)))
    if large is job:
        raise LookupError("This needs an arm with larger tensors, to fill the network.")
    shares = [small / most for small, most in zip(carried(job), carried(large), strict=True)]
    predicts = f"the calls move {FULL:.0%} or more of what the network carries; at {IDLE:.0%} or "
    predicts += "less a falls"
    came = outcomes(shares, stands=FULL, fell=IDLE)
    found = f"a rank sends {median(job.values['sent']):,.0f} bytes a call, headers and all; the "
    found += f"ranks together use {median(shares):.1%} of what the network carries"
    return predicts, came, found, [100 * share for share in shares]


def two_cpus(records: Sequence[Record]) -> Found:
    """B: in how many % of their time on one CPU do the same calls come to an end on two?"""
    most = most_of(records, {"cpus": 1}, {"cpus": 2})
    shares = _ratios(records, {"pairs": most, "cpus": 1}, {"pairs": most, "cpus": 2})
    predicts = f"with one torch thread a rank, {most} pairs need at most {FASTER:.0%} of the time "
    predicts += f"when they get two CPUs instead of one; at {ALIKE:.0%} or more b falls"
    came = outcomes(shares, stands=FASTER, fell=ALIKE)
    found = f"on two CPUs a call takes {median(shares):.0%} as long as on one CPU"
    return predicts, came, found, [100 * share for share in shares]


def groups(records: Sequence[Record]) -> Found:
    """C: how many times as long as alone does a pair's call take among groups that do not call?"""
    most = most_of(records, {"calling": 1}, {})
    idle = _ratios(records, {"pairs": 1}, {"pairs": most, "calling": 1})
    every = _ratios(records, {"pairs": 1}, {"pairs": most})
    predicts = f"where {most} groups exist and one pair calls, at least {MUCH:.0%} is there of "
    predicts += f"what calls of all {most} pairs add to the time of one; at {LITTLE:.0%} or less c "
    predicts += "falls, or where nothing grew to begin with"
    found = f"with {most} groups, a call takes {median(idle):.1f} times as long as with one if one "
    found += f"pair calls, and {median(every):.1f} times if all do"
    return predicts, _left(every, idle, stands=MUCH, fell=LITTLE), found, idle


def threads(records: Sequence[Record]) -> Found:
    """D: how many times as long do the most pairs take with several torch threads as with one?"""
    count = _most_threads(records)
    most = most_of(records, {"threads": count}, {"threads": 1})
    with_it, without = (
        _ratios(records, {"pairs": 1, "threads": n}, {"pairs": most, "threads": n})
        for n in (count, 1)
    )
    calls = f"with {count} threads a rank a call takes"
    predicts = f"{calls} at least {GROWS:g} times as long for {most} pairs as for one. With one "
    predicts += f"thread at most {LITTLE:.0%} of what was added is left (2 times as long would "
    predicts += f"become {1 + LITTLE:g} times). d falls where {MUCH:.0%} or more is left, or where "
    predicts += "nothing grew to begin with"
    ratios = _ratios(records, {"pairs": most, "threads": 1}, {"pairs": most, "threads": count})
    found = f"{calls} {median(with_it):.1f} times as long for {most} pairs as for one; with one "
    found += f"thread, {median(without):.1f} times. With {count} threads instead of one, {most} "
    found += f"pairs take {median(ratios):.1f} times as long"
    return predicts, _left(with_it, without, stands=LITTLE, fell=MUCH), found, ratios


def _most_threads(records: Sequence[Record]) -> int:
    """Return the most torch threads that a rank has in an arm of D."""
    return max(record.params["threads"] for record in records)


def _left(wholes: Sequence[float], rests: Sequence[float], **limits: float) -> list[bool | None]:
    """Judge, by round, which share of the growth is left; where nothing grows, none can stand."""
    return [_left_in(whole, rest, **limits) for whole, rest in zip(wholes, rests, strict=True)]


def _left_in(whole: float, rest: float, **limits: float) -> bool | None:
    """Judge the share of one round's growth that is left."""
    if whole <= LEVEL:
        return False
    came = outcome((rest - 1) / (whole - 1), **limits)
    return None if came and whole < GROWS else came  # it grew too little to convict anybody


TESTS: dict[str, Callable[[Sequence[Record]], Found]] = {
    "A": network, "B": two_cpus, "C": groups, "D": threads,
}  # fmt: skip


def hold(board: Board, records: Sequence[Record]) -> float | None:
    """Hold a suspect to what an experiment found; return the figure that its bet asks for.

    None: an arm is missing that it takes, and a line says which.
    """
    if not records:
        print("The board says nothing: no arm was measured.")
        return None
    part = records[0].params["part"]
    try:
        predicts, rounds, found, figures = TESTS[part](records)
    except LookupError as missing:
        print(f"The board says nothing. {missing}")
        return None
    more = {"found": found, "records": records, "ratio": part != "A"}
    board.test(part.lower(), part, predicts, rounds, **more)
    return median(figures)


def bound(record: Record) -> list[float]:
    """Return, by round, what n ranks need at least for a call of each: n c / CPUs."""
    ranks = 2 * record.params["pairs"]
    pinned = record.params.get("cpus")  # where partners share a CPU
    cpus = min(pinned, ranks // 2) if pinned else record.provenance.machine.cores
    return [ranks * c / cpus for c in record.values["on_cpu"]]


def above_bound(record: Record) -> list[float]:
    """Return, by round, the mean time of a call in the `bound`."""
    return [t / least for t, least in zip(by_round(record, fmean), bound(record), strict=True)]


def times(records: Sequence[Record], cpus: int, number: int | None = None) -> dict[int, float]:
    """Return, by pairs, the posted script's seconds per call on so many CPUs.

    They are those of the round with this number; without one, the median of all rounds.
    """
    return {
        record.params["pairs"]: record.summary.median if number is None else record.seconds[number]
        for record in records
        if record.params.get("cpus") == cpus and not record.params.get("apart")
    }


def like_ours(ours: dict[int, float], seconds: dict[int, float]) -> dict[int, float]:
    """Return, by pairs, in how many CPUs like one of ours calls would take so long.

    That is our time on one CPU in theirs: past the knee, times go with 1 / CPUs.
    """
    return {p: ours[p] / seconds[p] for p in ours if p in seconds}


def cpus_of(ours: dict[int, float], seconds: dict[int, float]) -> float:
    """Return the median of `like_ours` from four pairs on, where the CPUs are full, or of all."""
    cpus = like_ours(ours, seconds)
    return median([cpus[p] for p in cpus if p >= 4] or cpus.values())


def growth(records: Sequence[Record]) -> str:
    """Say how many times as long as one pair the most pairs take on one CPU."""
    ours = times(records, 1)
    few, most = min(ours), max(ours)
    return f"on one CPU {most} pairs take {ours[most] / ours[few]:.1f} times as long as {few}"


def in_words(records: Sequence[Record], seconds: dict[int, float], shared: Sequence[Record]) -> str:
    """Say on how many CPUs like ours somebody's calls take as long, and by B our own on two."""
    rounds = range(records[0].params["rounds"])
    theirs = [cpus_of(times(records, 1, number), seconds) for number in rounds]
    of_all = cpus_of(times(records, 1), seconds)
    text = "Where the CPUs are full, times go with 1 / CPUs. So divide your time on one CPU by the "
    text += f"asker's:\nTheir calls take as long as on {of_all:.1f} CPUs like yours"
    text += f" ({_in_row(theirs)})"
    with contextlib.suppress(LookupError):  # B's cell has told which arm is missing
        two = [100 / share for share in two_cpus(shared)[-1]]
        text += (
            f";\nby B your own calls on two take as long as on {median(two):.1f} ({_in_row(two)})"
        )
    if max(theirs) < HALF_OF_48:
        text += ".\nSo their 48 CPUs cannot all have been at work: the job had a few, or one"
    return f"{text}."


def _in_row(rounds: Sequence[float]) -> str:
    return f"by rounds: {' '.join(f'{each:.1f}' for each in rounds)}"


def accounts_in_words(records: Sequence[Record]) -> str:
    """Say how each account of a call grew from the fewest pairs on one CPU to the most."""
    on_one = [record for record in records if record.params.get("cpus") == 1]
    few, most = (f(on_one, key=lambda record: record.params["pairs"]) for f in (min, max))
    lines = []
    for account, meaning in {"on_cpu": "on a CPU", "waiting": "waiting for one"}.items():
        us = [1e6 * median(record.values[account]) for record in (few, most)]
        lines.append(f"{meaning}: {us[0]:,.0f} µs a call, then {us[1]:,.0f}")
    return f"From {few.case} to {most.case}, a rank is " + "; ".join(lines) + "."


def faster(record: Record, way: str) -> list[float]:
    """Return, by round, how many times as fast as blocking calls another way is."""
    pairs = zip(record.values["blocking"], record.values[way], strict=True)
    return [blocking / other for blocking, other in pairs]


def agree(gains: Sequence[float]) -> bool:
    """Say whether rounds agree on a gain: none is more than twice another."""
    return max(gains) <= 2 * min(gains)


def ways_in_words(record: Record) -> str:
    """Say of each way its time for a tensor, what it gains in each round, and its switches."""
    lines = []
    for way in programs.WAYS:
        line = f"{way}: {1e6 * median(record.values[way]):.0f} µs a tensor"
        if switches := record.values.get(f"{way}, switches"):
            line += f", {median(switches):.1f} context switches a rank"
        if way != "blocking":
            line += f"; {' '.join(f'{x:.1f}' for x in faster(record, way))} times as fast"
        lines.append(line)
    return f"{record.case}, by rounds:\n" + "\n".join(lines)


def hold_all(board: Board, records: Sequence[Record], world: str) -> None:
    """Hold all suspects to what was recorded of a world."""
    for name in TESTS:
        if of_part := [r for r in in_world(records, world) if r.params["part"] == name]:
            hold(board, of_part)


INVESTIGATION = Investigation(
    key="01.cause",
    question="What do the pairs share, so that each slows down all others?",
    suspects={"a": "the network", "b": "the CPUs", "c": "the groups", "d": "torch's threads"},
    experiments={
        "A": Experiment("how full the network is", asks="a"),
        "B": Experiment("one CPU, or two", asks="b"),
        "C": Experiment("eight groups, one of them calls", asks="c"),
        "D": Experiment("eight threads, or one", asks="d"),
    },
    tests=hold_all,
    own="b",
    worlds="acd",
)
