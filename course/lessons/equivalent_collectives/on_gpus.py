"""A row of `python -m course gpus`: whether three ways to sum take the same time."""

from functools import partial

import torch
import torch.distributed as dist

from course.gpu_row import Row, Samples, Sizes, in_turn, in_words, timed
from course.lessons.equivalent_collectives import model
from course.lessons.equivalent_collectives.programs import WAYS
from course.place import Place
from labkit import device
from labkit.measure.records import Record


def in_each_way(sizes: Sizes) -> Samples:
    """Sum a tensor, whose length the ranks divide, in each way; no group is made meanwhile."""
    ranks = dist.get_world_size()
    x = torch.zeros(sizes.summed // 4 // ranks * ranks, device=device())
    return in_turn({name: partial(way, x) for name, way in WAYS.items()}, sizes.rounds)


def three_ways(place: Place, sizes: Sizes) -> list[Record]:
    """Time the puzzle's three ways."""
    return timed(place, in_each_way, sizes, nbytes=sizes.summed)


def puzzle_times() -> dict[str, str]:
    """Return the puzzle's times for 1 GB by a ring, each way's steps added up."""
    steps = [step for step in model.steps() if (step.algorithm, step.nbytes) == ("Ring", 1e9)]
    whole = {way: sum(step.seconds for step in steps if step.way == way) for way in WAYS}
    first = whole["all_reduce"]
    times = {w: f"{in_words(s, 'ms')}, {s / first:.2f} times" for w, s in whole.items()}
    return times | {"all_reduce": f"{in_words(first, 'ms')} (16 GPUs, 1 GB)"}


THREE_WAYS = Row(
    "Do three ways to sum take the same time? (lesson 06)",
    three_ways,
    theirs=puzzle_times(),
    recorded_as={
        "all_reduce": ("algorithms", "nothing asked for, all_reduce"),
        "reduce + broadcast": ("algorithms", "nothing asked for, reduce and broadcast"),
        "reduce_scatter + all_gather": ("algorithms", "nothing asked for, two steps"),
    },
)
