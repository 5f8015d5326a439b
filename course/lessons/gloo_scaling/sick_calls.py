"""Calls whose true time is scripted, and so known: exercise 1.1 tries the stopwatch on them."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from course.checking import CheckFailed


@dataclass(frozen=True, slots=True)
class SickCall:
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

    def slowest(self, calls: list[list[tuple[float, float]]]) -> list[float]:
        """Return the true time of each counted iteration, from the ranks' logs of begin and end.

        Of calls that meet: from the last rank's begin to the last rank's end, for waiting for a
        late one is no part of it. Of others: the slowest rank's.
        """
        counted = zip(*(rank[self.warmup :] for rank in calls), strict=True)
        if self.meets:
            return [max(e for _, e in one) - max(b for b, _ in one) for one in counted]
        return [max(end - begin for begin, end in one) for one in counted]


SICK_CALLS = (
    SickCall(
        "one rank is slower",
        script=((2,), (25,)),
        warmup=1,
        iters=5,
        if_long="seconds are asked for, per call: not milliseconds, not the sum of all calls",
        if_short="neither an average over ranks nor one rank's own time: take the slowest rank's",
    ),
    SickCall(
        "slow first calls",
        script=((60,) * 6 + (10,),) * 2,
        warmup=6,
        iters=5,
        if_long="the first calls connect, allocate and load: make `warmup` calls before you count",
    ),
    SickCall(
        "calls that take between 3 and 300 ms",
        script=((4, 250, 3, 20, 300, 5, 200),) * 2,
        warmup=0,
        iters=7,
        if_long="a few slow calls must not decide: time every call, sort, take the middle one",
        if_short="a few fast calls must not decide: time every call, sort, take the middle one",
    ),
    SickCall(
        "ranks take turns in being slow",
        script=tuple(tuple(25 if i % 3 == rank else 2 for i in range(12)) for rank in range(3)),
        warmup=1,
        iters=7,
        if_long="a barrier stands between start and stop: you time the wait for the rank that was "
        "slow in the call before",
        if_short="first the slowest rank of each iteration, then the median over iterations: each "
        "rank's median hides that every single call was slow for somebody",
    ),
    SickCall(
        "a rank that arrives late",
        script=((40,),) * 2,
        warmup=0,
        iters=1,
        meets=True,
        late=0.15,
        if_long="the clock starts while a rank is still on its way, so you time the wait for it: "
        "meet in a barrier first, and start the clock after it",
    ),
    SickCall(
        "a rank that is late for the next call",
        script=tuple(tuple(40 if i % 2 == rank else 0 for i in range(12)) for rank in range(2)),
        warmup=1,
        iters=6,  # even, so that a barrier in every second iteration shows
        meets=True,
        if_long="one barrier before the loop is not enough: what a rank does late in one call is "
        "waited for in the next. Meet before *every* call",
    ),
    SickCall(
        "a group that not all ranks belong to",
        script=((0,), (10,), (30,), (10,)),
        warmup=1,
        iters=5,
        outsiders=1,
        if_long="the default group's ranks are timed too: pass group=group to every collective",
    ),
)
NOTHING = SickCall("a call that does nothing", ((0,),) * 2, warmup=5, iters=21, if_long="")


@dataclass(slots=True)
class ScriptedCall:
    """What a sick call does on one rank; keeps a log of how long it really took."""

    script: tuple[int, ...]
    group: Any = None
    meets: bool = False
    log: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each call, on a clock that all ranks of a machine share."""

    def __call__(self) -> None:
        """Meet the others, if so scripted, then take the scripted time."""
        begin = time.monotonic()
        if self.meets:
            dist.all_reduce(torch.ones(10, 10), group=self.group)
        milliseconds = self.script[min(len(self.log), len(self.script) - 1)]
        if milliseconds:
            time.sleep(milliseconds / 1e3)
        self.log.append((begin, time.monotonic()))


def examine(time_call: Callable[..., float], sick: SickCall) -> dict[str, Any] | None:
    """Let a stopwatch time a sick call; runs on every rank.

    Returns:
        What it ``got``, begin and end of the ``calls`` and the time of a ``barrier``; None on ranks
        outside the group.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    group = None
    if sick.outsiders:
        group = dist.new_group(list(range(sick.outsiders, world_size)))
        if rank < sick.outsiders:
            return None
    call = ScriptedCall(sick.script[rank], group, sick.meets)
    barriers = []
    for _ in range(9):
        start = time.perf_counter()
        dist.barrier(group=group)
        barriers.append(time.perf_counter() - start)
    if rank == world_size - 1:
        time.sleep(sick.late)
    try:
        got = time_call(call, warmup=sick.warmup, iters=sick.iters, group=group)
    except ValueError as error:
        if "is not part of group" not in str(error):
            raise
        raise CheckFailed(
            f"{sick.name}: ranks of the group",
            str(error),
            "a rank's number in a group is another than in the default group: exchange with "
            "all_reduce or all_gather, which need no number, or use dist.get_global_rank",
        ) from None
    return {"got": got, "calls": call.log, "barrier": statistics.median(barriers)}


def comes_through(time_call: Callable[..., float]) -> bool:
    """Time a call that fails; say whether its exception comes out."""

    def fails() -> None:
        raise ZeroDivisionError("a call that fails")

    for warmup in (1, 0):  # in the warm-up, and in a call that counts
        try:
            time_call(fails, warmup=warmup, iters=3, group=None)
        except ZeroDivisionError:
            continue
        return False
    return True
