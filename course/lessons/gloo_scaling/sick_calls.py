"""Calls whose true time is scripted, and so known: exercise 1.1 tries the stopwatch on them."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest import mock

import torch
import torch.distributed as dist

from labkit.measure import timing

BACK = 3600
"""Seconds by which the wall clock is set back at each look: time.time() is for dates."""


@dataclass(frozen=True, slots=True)
class SickCall:
    """A call that is hard to time."""

    name: str
    script: tuple[tuple[int, ...], ...]
    """Milliseconds of each call, on each of three ranks."""
    warmup: int
    iters: int
    meets: bool = False
    """Whether each call begins with an all_reduce, so that it waits for a late rank."""

    @property
    def middle(self) -> list[float]:
        """The true time, in seconds: of an even number of calls the two in the middle."""
        slowest = self.each(max)
        return [statistics.median_low(slowest), statistics.median_high(slowest)]

    def each(self, of: Callable[..., float], *, first: int | None = None) -> list[float]:
        """Return the ranks' seconds, put together, of each call from the first that counts."""
        columns = zip(*self.script, strict=True)
        every = [of(ms / 1e3 for ms in column) for column in columns]
        return every[self.warmup if first is None else first :]


SICK_CALLS = (
    SickCall(
        "one rank is slower, and so are the first calls",
        script=((90,) * 6 + (15,) * 5, (90,) * 6 + (15,) * 5, (90,) * 6 + (25,) * 5),
        warmup=6,
        iters=5,
    ),
    SickCall(
        "two calls are far slower than the others, and two far faster",
        script=((40, 4, 200, 400, 8, 45),) * 3,
        warmup=0,
        iters=6,
    ),
    SickCall(
        "ranks take turns in being slow",
        script=tuple(tuple(75 if i % 3 == rank else 15 for i in range(8)) for rank in range(3)),
        warmup=1,
        iters=7,
    ),
    SickCall(
        "a rank is late for the next call",
        script=tuple(tuple(40 if i % 2 == rank else 0 for i in range(8)) for rank in range(3)),
        warmup=1,
        iters=7,
        meets=True,
    ),
)


def examine(time_call: Callable[..., float], sick_calls: Sequence[SickCall]) -> list[tuple]:
    """Time sick calls, with a wall clock that runs backwards; runs on every rank.

    Returns:
        For each of them what the stopwatch returned, and how many calls it made.
    """
    seen = []
    for sick in sick_calls:
        script, numbers = sick.script[dist.get_rank()], itertools.count()

        def call(sick=sick, script=script, numbers=numbers) -> None:
            if sick.meets:
                dist.all_reduce(torch.ones(10, 10))
            time.sleep(script[min(next(numbers), len(script) - 1)] / 1e3)

        with mock.patch.object(time, "time", itertools.count(1e9, -BACK).__next__):
            seconds = time_call(call, warmup=sick.warmup, iters=sick.iters)
        seen.append((seconds, next(numbers)))
    return seen


def own_cost(time_call: Callable[..., float]) -> tuple[float, int, float]:
    """Time a call that does nothing, by the stopwatch's defaults; runs on every rank.

    Returns:
        What it returned, how many calls it made, and a barrier's seconds.
    """
    numbers = itertools.count()
    seconds = time_call(lambda: next(numbers))
    barrier = statistics.median(timing.time_calls(dist.barrier, warmup=1, iters=9))
    return seconds, next(numbers), barrier


def comes_out(time_call: Callable[..., float]) -> bool:
    """Say whether the exception of a call that fails comes out of the stopwatch."""
    outcomes = [None, None, ZeroDivisionError("a call that fails"), *[None] * 9]
    try:
        time_call(mock.Mock(side_effect=outcomes), warmup=1, iters=5)
    except ZeroDivisionError:
        return True
    return False
