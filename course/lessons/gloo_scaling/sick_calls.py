"""Calls whose true time is scripted, and so known: exercise 1.1 tries the stopwatch on them."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from unittest import mock

import torch
import torch.distributed as dist

from labkit.measure import timing


@dataclass(frozen=True, slots=True)
class SickCall:
    """A call that is hard to time."""

    name: str
    script: tuple[tuple[int, int, int], ...]
    """Milliseconds of each call on the three ranks."""
    warmup: int = 0
    meets: bool = False
    """Whether each call begins with an all_reduce, so that it waits for a late rank."""

    @property
    def counted(self) -> tuple[tuple[int, int, int], ...]:
        """The script of the calls that count."""
        return self.script[self.warmup :]

    @property
    def ms(self) -> float:
        """The true time."""
        return median(map(max, self.counted))


SICK_CALLS = (
    SickCall(
        "the first calls are slow, and so is one rank",
        ((90, 90, 90),) * 4 + ((10, 10, 40),) * 3,
        warmup=4,
    ),
    SickCall(
        "two calls are far slower than the others, and two far faster",
        ((40, 40, 40), (4, 4, 4), (150, 150, 150), (300, 300, 300), (8, 8, 8)),
    ),
    SickCall("ranks take turns in being slow", ((75, 15, 15), (15, 75, 15), (15, 15, 75))),
    SickCall(
        "a rank is late for the next call", ((40, 0, 0), (0, 40, 0)) * 3, warmup=1, meets=True
    ),
)


def examine(time_call: Callable[..., float], sick: SickCall) -> tuple[float, int]:
    """Time a sick call, while the wall clock is set back by an hour at each look; on every rank.

    Returns:
        What the stopwatch returned, and how many calls it made.
    """
    script, numbers = [calls[dist.get_rank()] for calls in sick.script], itertools.count()

    def call() -> None:
        if sick.meets:
            dist.all_reduce(torch.ones(10, 10))
        time.sleep(script[min(next(numbers), len(script) - 1)] / 1e3)

    with mock.patch.object(time, "time", itertools.count(1e9, -3600).__next__):
        seconds = time_call(call, warmup=sick.warmup, iters=len(sick.counted))
    return seconds, next(numbers)


def own_cost(time_call: Callable[..., float]) -> tuple[float, int]:
    """Time a call that does nothing, by the stopwatch's defaults; runs on every rank.

    Returns:
        What it reports, in barriers, and how many calls it made.
    """
    numbers = itertools.count()
    seconds = time_call(lambda: next(numbers))
    return seconds / median(timing.time_calls(dist.barrier, warmup=1, iters=9)), next(numbers)


def comes_out(time_call: Callable[..., float]) -> bool:
    """Say whether the exception of a call that fails comes out of the stopwatch."""
    outcomes = [None, None, ZeroDivisionError("a call that fails"), *[None] * 9]
    try:
        time_call(mock.Mock(side_effect=outcomes), warmup=1, iters=5)
    except ZeroDivisionError:
        return True
    return False
