"""Calls that are hard to time, and sleep by a script: exercise 1.1's stopwatch is tried on them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from statistics import median
from unittest import mock

import torch
import torch.distributed as dist

from labkit.measure import timing


@dataclass(frozen=True, slots=True)
class SickCall:
    """A call that is hard to time: how many ms it takes on each of three ranks, call by call."""

    name: str
    calls: tuple[tuple[int, int, int], ...]  # those that count
    first: tuple[tuple[int, int, int], ...] = ()  # those to warm up
    meets: bool = False  # whether each begins with an all_reduce, and so waits for a late rank


SICK_CALLS = (
    SickCall(
        "the first calls are slow, and so is one rank", ((10, 10, 40),) * 3, ((150, 150, 150),) * 4
    ),
    SickCall(
        "two calls are far slower than the others, and two far faster",
        ((40, 40, 40), (4, 4, 4), (150, 150, 150), (300, 300, 300), (8, 8, 8)),
    ),
    SickCall(
        "an even number of calls", ((10, 10, 10), (48, 48, 48), (300, 300, 300), (52, 52, 52))
    ),
    SickCall("ranks take turns in being slow", ((75, 15, 15), (15, 75, 15), (15, 15, 75))),
    SickCall(
        "a rank is late for the next call",
        ((40, 0, 0), (0, 40, 0), (40, 0, 0), (0, 40, 0), (40, 0, 0)),
        meets=True,
    ),
)


def examine(time_call: Callable[..., float], sick: SickCall) -> tuple[float, int]:
    """Time a sick call on a rank, while the wall clock is set back by an hour at each look.

    Returns what the stopwatch returned, and how many calls it made.
    """
    script, numbers = [ms[dist.get_rank()] for ms in sick.first + sick.calls], count()

    def call() -> None:
        if sick.meets:
            dist.all_reduce(torch.ones(10, 10))
        time.sleep(script[min(next(numbers), len(script) - 1)] / 1e3)

    with mock.patch.object(time, "time", count(1e9, -3600).__next__):
        seconds = time_call(call, warmup=len(sick.first), iters=len(sick.calls))
    return seconds, next(numbers)


def examine_well(time_call: Callable[..., float]) -> tuple[float, int, bool, bool]:
    """Time a call that does nothing, by the stopwatch's defaults, and one that fails; on all ranks.

    Returns what it reports of the first, in barriers, how many calls it made, whether it swallowed
    the other's exception, and whether it printed between start and stop.
    """
    numbers, barrier = count(), timing.time_calls(dist.barrier, warmup=1, iters=9)
    cost, calls = time_call(lambda: next(numbers)) / median(barrier), next(numbers)
    printed = prints_inside(time_call)
    fails = [None, ZeroDivisionError("a call that fails"), *[None] * 9]
    try:
        time_call(mock.Mock(side_effect=fails), warmup=0, iters=3)
    except ZeroDivisionError:
        return cost, calls, False, printed
    return cost, calls, True, printed


def prints_inside(time_call: Callable[..., float]) -> bool:
    """Say whether a stopwatch prints between start and stop: here a print takes an hour."""
    hours: list[float] = []

    def print_for_an_hour(*_: object, **__: object) -> None:
        hours.append(3600.0)

    clocks = dict.fromkeys(("perf_counter", "monotonic", "time"), lambda: sum(hours))
    with mock.patch.multiple(time, **clocks), mock.patch("builtins.print", print_for_an_hour):
        return time_call(lambda: None, warmup=0, iters=2) > 60
