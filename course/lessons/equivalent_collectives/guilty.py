"""Four worlds, in each of which another suspect of lesson 06 is guilty; run for real.

The experiments and their tests are the lesson's, and its own world is c's. In the others the first
step is a ring, which sends no byte too many, and what takes the time is something else.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist

from course.lessons.equivalent_collectives import experiment as problem
from course.lessons.equivalent_collectives import programs
from course.lessons.equivalent_collectives.evidence import FIRST, ONE, SECOND, TWO
from course.lessons.equivalent_collectives.programs import Way, ring_reduce_scatter
from labkit.measure.records import Record

WAIT = problem.NBYTES / (200e6 / 8)  # seconds that S takes over a link: two thirds of an all_reduce


def waiting(x: torch.Tensor) -> torch.Tensor:
    """Wait after a ring's reduce_scatter, as if the next step could not be launched before."""
    part = ring_reduce_scatter(x)
    time.sleep(WAIT * x.nbytes / problem.NBYTES)
    return part


def in_slow_rounds(x: torch.Tensor) -> torch.Tensor:
    """Do a ring's reduce_scatter, in which each round begins with a pause, as of a latency."""
    time.sleep(WAIT)  # three rounds' pauses
    return ring_reduce_scatter(x)


def by_a_busy_cpu(x: torch.Tensor) -> torch.Tensor:
    """Do a ring's reduce_scatter by a CPU that adds up eighty times."""
    add_up(x)
    return ring_reduce_scatter(x)


def add_up(x: torch.Tensor) -> None:
    """Add a tensor to a new one, eighty times."""
    for _ in range(80):
        extra = torch.zeros_like(x)
        extra += x


def all_sums(tensors: Sequence[torch.Tensor]) -> None:
    """Do what the ranks' busy CPUs do, in one process."""
    programs.every_sum(tensors)
    for x in tensors:
        add_up(x)


WORLDS: dict[str, tuple[Way, Way, Callable]] = {
    "a": (ring_reduce_scatter, waiting, programs.every_sum),
    "b": (in_slow_rounds, in_slow_rounds, programs.every_sum),
    "c": (programs.reduce_scatter, programs.reduce_scatter, programs.every_sum),
    "d": (by_a_busy_cpu, by_a_busy_cpu, all_sums),
}
"""By the letter of who is guilty: the first step alone, as one of two, and the sums of all CPUs."""


def measure(guilty: str) -> list[Record]:
    """Make all experiments in the world of this suspect; `FabricUnavailable` without links."""
    alone, first, sums = WORLDS[guilty]
    ways: dict[str, Way] = {ONE: dist.all_reduce, TWO: partial(programs.then_gather, first=first)}
    ways |= {name + programs.QUARTER: way for name, way in ways.items()}
    ways |= {FIRST: alone, SECOND: programs.all_gather}
    seconds = problem.without_a_wire(sums)
    measured = partial(problem.measured, ways=ways, nbytes=problem.NBYTES, iters=5, sums=seconds)
    return problem.FOUR.watched(measured)
