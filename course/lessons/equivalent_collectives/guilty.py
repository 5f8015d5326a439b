"""Four worlds, in each of which another suspect of lesson 06 is guilty; run for real.

The experiments and their tests are the lesson's, and its own world is c's. In the others the first
step is a ring, which sends no byte too many, and what takes the time is something else.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist

from course import runs
from course.lessons.equivalent_collectives import experiment as problem
from course.lessons.equivalent_collectives import programs
from course.lessons.equivalent_collectives.programs import STEPS, WAYS, Way
from labkit.measure.records import Record

WORLDS = {
    "a": "a wait between the steps",
    "b": "a pause in each round",
    "c": "the lesson's own",
    "d": "a CPU that adds up eighty times",
}
"""By the letter of who is guilty."""
BUSY = 80
"""How often the CPU of world d adds up."""


def world(guilty: str) -> tuple[dict[str, Way], Callable]:
    """Return the ways of a world, and its sums."""
    if guilty == "c":
        return {**WAYS, **STEPS}, programs.every_sum
    pause = problem.NBYTES / (problem.FOUR_RATE / 8) / 3  # three are two thirds of an all_reduce
    first: Way = programs.ring_reduce_scatter
    sums = programs.every_sum
    if guilty == "b":
        first = partial(programs.slow_rounds, pause=pause)
    elif guilty == "d":
        first = partial(programs.busy_sums, times=BUSY)

        def sums(tensors: Sequence[torch.Tensor]) -> None:
            programs.every_sum(tensors)
            for x in tensors:  # what the ranks do, all in one process
                programs.add_up(x, BUSY)

    both: Way = partial(programs.then_gather, first=first)
    if guilty == "a":
        both = partial(programs.waiting_between, seconds_per_byte=3 * pause / problem.NBYTES)
    steps = {"reduce_scatter": first, "all_gather": programs.all_gather}
    return {"all_reduce": dist.all_reduce, "reduce_scatter + all_gather": both, **steps}, sums


def measure(guilty: str, *, iters: int = 5) -> list[Record]:
    """Make all the lesson's experiments in the world in which this suspect is guilty.

    Raises:
        FabricUnavailable: No hosts can be made here.
    """
    ways, sums = world(guilty)
    shares = {name + problem.QUARTER: 0.25 for name in WAYS.keys() & ways.keys()}
    ways = ways | {name: ways[name.removesuffix(problem.QUARTER)] for name in shares}
    with problem.FOUR.up() as here:

        def sum_up() -> list[Record]:
            seconds = problem.without_a_wire(sums)
            named = {"named": f"world {guilty}: ", "sums": seconds}
            return problem.measured(here, ways, problem.NBYTES, iters, shares, **named)

        return runs.watched(sum_up)
