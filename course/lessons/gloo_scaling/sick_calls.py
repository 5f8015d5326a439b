"""Calls whose true time is scripted, and so known: exercise 1.1 tries the stopwatch on them."""

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from labkit.measure import timing


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
    checks: bool = True
    """Whether torch compares the ranks' calls: then even an asynchronous one waits for all."""
    defaults: bool = False
    """Whether `warmup` and `iters` are left out: they are those of the signature."""

    def seconds(self, rank: int, call: int) -> float:
        """Return what a call takes on a rank once all are there."""
        script = self.script[rank]
        return script[min(call, len(script) - 1)] / 1e3

    @property
    def truth(self) -> float:
        """The median over the counted calls of the slowest rank's seconds."""
        return statistics.median(self._each(max))

    @property
    def together(self) -> float:
        """The same, with all ranks' seconds added up instead of the slowest rank's."""
        return statistics.median(self._each(sum))

    @property
    def fastest(self) -> float:
        """The slowest rank's seconds in the fastest of the counted calls."""
        return min(self._each(max))

    def _each(self, of: Callable[[list[float]], float]) -> list[float]:
        ranks, counted = range(len(self.script)), range(self.warmup, self.warmup + self.iters)
        return [of([self.seconds(rank, call) for rank in ranks]) for call in counted]


LATE_ONCE = SickCall(
    "a rank that is late for the only call that counts",
    script=((0, 2), (0, 80), (0, 2), (200, 2)),
    warmup=1,
    iters=1,
    if_long="not all ranks have met when the clock starts: there is no barrier before the first "
    "call that counts, or before the last; or it comes after the call; or it only begins "
    "(async_op=True) and nobody waits for it; or it is a call in which a rank need not wait for "
    "every other one",
    meets=True,
    checks=False,
)
LAST_TEN = (140, 7, 9, 6, 160, 125, 8, 7, 8, 8)
SICK_CALLS = (
    SickCall(
        "one rank is slower, and so are the first calls",
        script=((60,) * 6 + (2,), (60,) * 6 + (2,), (60,) * 6 + (25,)),
        warmup=6,
        iters=5,
        if_long="the first calls connect, allocate and load: make `warmup` calls before you count",
        if_short="neither an average over ranks nor one rank's own time: take the slowest rank's",
    ),
    SickCall(
        "calls that take between 9 and 400 ms",
        # neither the middle one in time is the middle one, nor that of all calls but one
        script=((10, 300, 80, 400, 200, 9, 11),) * 2,
        warmup=0,
        iters=7,
        if_long="a few slow calls must not decide: time every call, sort, take the middle one of "
        "all of them",
    ),
    SickCall(
        "ten calls of 6 to 9 ms, one of 20, and ten of 120 to 170",
        # in an order in which no mean and no part of them has its middle near 20
        script=((20, 150, 170, 130, 135, 6, 155, 7, 120, 145, 9, *LAST_TEN),) * 2,
        warmup=0,
        iters=21,
        if_long="the middle one of all 21, neither a mean of any kind nor the middle of a part",
        if_short="the middle one of all 21: none may be left out, neither slow nor fast ones",
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
        "a rank that is late for the next call",
        script=tuple(tuple(40 if i % 2 == rank else 0 for i in range(12)) for rank in range(2)),
        warmup=1,
        iters=6,  # even, so that a barrier in every second iteration shows
        meets=True,
        if_long="the clock starts while a rank is still on its way, so you time the wait for it. "
        "One barrier before the loop is not enough: meet before *every* call, then start the clock",
    ),
    LATE_ONCE,
    replace(
        LATE_ONCE,
        name="rank 0 is late for the first call that counts, rank 3 for the last",
        script=((200, 2, 2, 2), (0, 2, 2, 2), (0, 80, 2, 10), (0, 2, 200, 2)),
        iters=3,  # 80, 200 and 10 ms: one that also has a wait moves the middle
    ),
    replace(
        LATE_ONCE,
        name="rank 1 is late for the second call that counts",
        script=((0, 2, 80, 10), (0, 200, 2, 2), (0, 2, 2, 2), (0, 2, 2, 2)),
        iters=3,  # 200, 80 and 10 ms
    ),
)
APART = 1000
"""Seconds between the clocks of two ranks: each clock has a zero of its own."""
NOTHING = SickCall(
    "a call that does nothing", ((0,),) * 2, 5, 20, if_long="", checks=False, defaults=True
)


def examine(time_call: Callable[..., float], sick: SickCall) -> dict[str, Any]:
    """Let a stopwatch time a sick call; runs on every rank.

    Meanwhile the wall clock is set back by an hour whenever somebody reads it, and the other clocks
    of a rank are `APART` seconds ahead of those of the rank before, as on machines of their own.

    Returns:
        What it ``got``, how many ``calls`` it made, the seconds of a ``barrier``, and whether
        labkit's own stopwatch made a call (``borrowed``).
    """
    made, borrowed = itertools.count(), False
    idle = not sick.meets and not any(map(any, sick.script))

    def call() -> None:
        nonlocal borrowed
        borrowed = borrowed or timing.__file__ in callers()
        if sick.meets:
            dist.all_reduce(torch.ones(10, 10))
        seconds = sick.seconds(dist.get_rank(), next(made))
        if seconds:
            time.sleep(seconds)

    before = _barrier()
    options = {} if sick.defaults else {"warmup": sick.warmup, "iters": sick.iters}
    clocks = {"time": itertools.count(1e9, -3600).__next__}
    for name in ("perf_counter", "monotonic"):
        clocks[name] = _ahead(getattr(time, name), APART * dist.get_rank())
        clocks[f"{name}_ns"] = _ahead(getattr(time, f"{name}_ns"), 10**9 * APART * dist.get_rank())
    with mock.patch.multiple(time, **clocks):
        got = time_call((lambda: next(made)) if idle else call, **options)
    barrier = min(before, _barrier())  # one of the two may have met other programs
    return {"got": got, "calls": next(made), "barrier": barrier, "borrowed": borrowed}


def _barrier() -> float:
    return statistics.median(timing.time_calls(dist.barrier, warmup=0, iters=9))


def _ahead(clock: Callable[[], float], by: int) -> Callable[[], float]:
    return lambda: clock() + by


def callers() -> set[str]:
    """Return the files of all functions that are being called, in this thread."""
    files, frame = set(), sys._getframe(1)
    while frame is not None:
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    return files


def comes_through(time_call: Callable[..., float]) -> bool:
    """Time calls of which one fails, early or late; say whether each exception comes out."""
    kinds = ZeroDivisionError, RuntimeError, ValueError, TimeoutError, KeyError
    for kind, place in itertools.product(kinds, (0, 4, 9)):
        outcomes = [None] * place + [kind("a call that fails")] + [None] * 19
        try:
            time_call(mock.Mock(side_effect=outcomes), warmup=1, iters=9)
        except kind:
            continue
        return False
    return True


def counts_20(time_call: Callable[..., float]) -> bool:
    """Time 18 short calls and 7 long ones by the defaults; say whether most were short."""
    made = itertools.count()
    return float(time_call(lambda: time.sleep(0.002 if next(made) < 18 else 0.03))) < 0.015


def starts_anew(time_call: Callable[..., float]) -> bool:
    """Time a short call and a long one alike; say whether the second time is its own."""
    short, long = (time_call(lambda s=s: time.sleep(s), warmup=1, iters=3) for s in (0.01, 0.1))
    return float(long) > 2 * float(short)
