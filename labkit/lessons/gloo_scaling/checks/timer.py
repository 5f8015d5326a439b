"""Exercise 1.1: a stopwatch, tried on calls whose true time is known because it is scripted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from labkit.course import checking

LOW, HIGH = 0.7, 1.4
"""Accepted ratio of what was measured to the truth. The usual mistakes are off by 2 or more."""
OWN_COST = 0.05
"""What a stopwatch may add to a call, in barriers. Reading a clock costs a thousandth of one."""
ATTEMPTS = 3
"""A busy machine can spoil a reading, hardly three in a row; a mistake spoils all of them."""


@dataclass(frozen=True, slots=True)
class Patient:
    """A call that is hard to time, and the mistakes that it brings to light."""

    name: str
    script: tuple[tuple[int, ...], ...]
    """Milliseconds that each call takes on each rank; the last one holds for all further calls."""
    warmup: int
    iters: int
    if_long: str
    """What a time above the truth usually means."""
    if_short: str = "the wrong samples are counted; see the statement"
    meets: bool = False
    """Whether each call begins with an all_reduce, so that it waits for a late rank."""
    late: float = 0.0
    """Seconds by which the last rank comes late to the stopwatch."""
    outsiders: int = 0
    """Ranks before the first one of the group, which take no part."""

    def truth(self, durations: list[list[float]]) -> float:
        """Return the median over iterations of the slowest rank's time, from the calls' own log."""
        counted = [calls[self.warmup :] for calls in durations]
        return statistics.median(max(times) for times in zip(*counted, strict=True))


_OWN = (
    "each rank reports its own time. A collective is done when its slowest rank is: exchange the "
    "times (all_reduce with ReduceOp.MAX) before you take the median"
)
PATIENTS = (
    Patient(
        "one rank is slower",
        script=((2,), (25,)),
        warmup=1,
        iters=5,
        if_long="seconds are asked for, per call: not milliseconds, not the sum of all calls",
        if_short="the average over ranks is a time that no rank had: take the slowest rank's",
    ),
    Patient(
        "slow first calls",
        script=((60,) * 6 + (10,),) * 2,
        warmup=6,
        iters=5,
        if_long="the first calls connect, allocate and load: make `warmup` calls before you count",
    ),
    Patient(
        "a rare hiccup",
        script=((3, 3, 20, 20, 300, 20),) * 2,
        warmup=0,
        iters=7,
        if_long="a mean (or a maximum) lets one hiccup decide: time every call, take the median",
        if_short="the fastest call is the luckiest one: take the median",
    ),
    Patient(
        "ranks take turns in being slow",
        script=tuple(tuple(25 if i % 3 == rank else 1 for i in range(12)) for rank in range(3)),
        warmup=1,
        iters=7,
        if_long="a barrier stands between start and stop: you time the wait for the rank that was "
        "slow in the call before",
        if_short="first the slowest rank of each iteration, then the median over iterations: each "
        "rank's median hides that every single call was slow for somebody",
    ),
    Patient(
        "a rank that arrives late",
        script=((40,),) * 2,
        warmup=0,
        iters=1,
        meets=True,
        late=0.15,
        if_long="the clock starts while a rank is still on its way, so you time the wait for it: "
        "meet in a barrier first, and start the clock after it",
    ),
    Patient(
        "a rank that is late for the next call",
        script=tuple(tuple(40 if i % 2 == rank else 0 for i in range(12)) for rank in range(2)),
        warmup=1,
        iters=5,
        meets=True,
        if_long="one barrier before the loop is not enough: what a rank does late in one call is "
        "waited for in the next. Meet before *every* call",
    ),
    Patient(
        "a group that not all belong to",
        script=((0,), (10,), (30,), (10,)),
        warmup=1,
        iters=5,
        outsiders=1,
        if_long="the default group's ranks are timed too: pass group=group to every collective",
    ),
)
NOTHING = Patient("a call that does nothing", ((0,),) * 2, warmup=5, iters=21, if_long="")


@dataclass(slots=True)
class Call:
    """What a patient does on one rank; keeps a log of how long it really took."""

    script: tuple[int, ...]
    group: Any = None
    meets: bool = False
    durations: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        """Meet the others, if so scripted, then take the scripted time."""
        if self.meets:
            dist.all_reduce(torch.ones(10, 10), group=self.group)
        milliseconds = self.script[min(len(self.durations), len(self.script) - 1)]
        start = time.perf_counter()
        if milliseconds:
            time.sleep(milliseconds / 1e3)
        self.durations.append(time.perf_counter() - start)


def check_time_call(time_call: Callable[..., float]) -> None:
    """Judge a stopwatch.

    Args:
        time_call: Called on every rank of a group as ``time_call(call, warmup=, iters=, group=)``;
            returns, on each of them, the median over iterations of the slowest rank's seconds.

    Raises:
        CheckFailed: Says which patient it misjudged.
    """
    with checking.exercise("1.1", par="within 40 %, at 5 % of a barrier") as verdict:
        first, *others = PATIENTS
        errors = [abs(_judged(time_call, first) - 1)]
        own = _own_cost(time_call)
        errors += [abs(_judged(time_call, patient) - 1) for patient in others]
        reached = f"{len(PATIENTS)} sick calls within {max(errors):.0%}"
        verdict.reached = f"{reached}, at {own:.2%} of a barrier"


def examine(time_call: Callable[..., float], patient: Patient) -> list[dict[str, Any] | None]:
    """Run a patient under a stopwatch on real ranks; return what each rank of the group saw."""
    size = len(patient.script)
    try:
        return checking.on_ranks(_examine, time_call, patient, world_size=size, timeout=5.0)
    except checking.CheckFailed as hang:
        hang.meaning = (
            "not all ranks make the same calls. If ranks outside the group are waited for, a "
            f"collective lacks group=group. In general: {hang.meaning}"
        )
        raise


def _examine(time_call: Callable[..., float], patient: Patient) -> dict[str, Any] | None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    group = None
    if patient.outsiders:
        group = dist.new_group(list(range(patient.outsiders, world_size)))
        if rank < patient.outsiders:
            return None
    call = Call(patient.script[rank], group, patient.meets)
    barriers = []
    for _ in range(9):
        start = time.perf_counter()
        dist.barrier(group=group)
        barriers.append(time.perf_counter() - start)
    if rank == world_size - 1:
        time.sleep(patient.late)
    got = time_call(call, warmup=patient.warmup, iters=patient.iters, group=group)
    return {"got": got, "durations": call.durations, "barrier": statistics.median(barriers)}


def _judged(time_call: Callable[..., float], patient: Patient) -> float:
    """Return what was measured, divided by the truth."""
    for attempt in range(1, ATTEMPTS + 1):
        seen = [one for one in examine(time_call, patient) if one is not None]
        _same_on_all(seen, patient)
        got = float(seen[0]["got"])
        truth = patient.truth([one["durations"] for one in seen])
        if LOW <= got / truth <= HIGH:
            break
        if attempt == ATTEMPTS:
            raise checking.CheckFailed(
                f"{patient.name}: {truth * 1e3:.1f} ms per call (0.7 to 1.4 times that)",
                f"{got * 1e3:.1f} ms",
                patient.if_long if got > truth else patient.if_short,
            )
    return got / truth


def _same_on_all(seen: list[dict[str, Any]], patient: Patient) -> None:
    """Hold the stopwatch to have made all calls, and to answer the same on every rank."""
    for one in seen:
        made, asked = len(one["durations"]), patient.warmup + patient.iters
        if made != asked:
            raise checking.CheckFailed(
                f"{patient.name}: {patient.warmup} calls to warm up and {patient.iters} that count",
                f"{made} calls",
                "there is no warm-up: the first `warmup` calls must not be counted"
                if made == patient.iters
                else "a call too many or too few: some call is made outside the two loops",
            )
        if one["got"] is None:
            raise checking.CheckFailed(
                "seconds, on every rank", "None", "a `return` is missing, or only one rank returns"
            )
    answers = [float(one["got"]) for one in seen]
    if max(answers) > 1.001 * min(answers):
        shown = ", ".join(f"{answer * 1e3:.2f}" for answer in answers)
        raise checking.CheckFailed(
            f"{patient.name}: the same answer on every rank", f"{shown} ms on the ranks", _OWN
        )


def _own_cost(time_call: Callable[..., float]) -> float:
    """Return what the stopwatch adds to a call, in barriers."""
    for _ in range(ATTEMPTS):
        seen = examine(time_call, NOTHING)
        _same_on_all(seen, NOTHING)
        own = float(seen[0]["got"]) / seen[0]["barrier"]
        if own <= OWN_COST:
            return own
    raise checking.CheckFailed(
        f"a call that does nothing: at most {OWN_COST:.0%} of a barrier's time",
        f"{own:.2f} barriers",
        "the stopwatch times itself: a barrier or another collective runs between start and stop",
    )
