"""Two rows of `python -m course gpus`: what a sum costs, and what many small ones do."""

import itertools
from collections.abc import Callable

import torch
import torch.distributed as dist

from course import published
from course.gpu_row import MIB, NAME, TIMEOUT, Row, Samples, Sizes, in_turn, timed
from course.lessons.gradient_all_reduce import programs
from course.place import Place
from labkit import device
from labkit.measure.records import Record

FIGURES = published.load("gradient_all_reduce")


def in_groups(nbytes: int) -> dict[int, dict[int, list[float]]]:
    """Sum one number, and so many bytes, among the first two ranks, ... all; by bytes and ranks."""
    samples: dict[int, dict[int, list[float]]] = {4: {}, nbytes: {}}
    for count in range(2, dist.get_world_size() + 1):
        group = dist.new_group(range(count))
        for size, by_ranks in samples.items():
            by_ranks[count] = programs.time_in_a_row(size, group)
    return samples


def sums(place: Place, sizes: Sizes) -> list[Record]:
    """Time all_reduces by more and more ranks, as the lesson times its benchmark."""
    ranks = place.launch(in_groups, sizes.copied, timeout=TIMEOUT)
    return [
        place.record(
            f"{count} ranks" + (", one number" if size == 4 else ""),
            [rank[size][count] for rank in ranks[:count]],
            experiment=NAME,
            collective=None if size == 4 else "all_reduce",  # of one number no rate is told
            nbytes=size,
        )
        for size, count in itertools.product(ranks[0], ranks[0][4])
    ]


def in_calls(sizes: Sizes) -> Samples:
    """Sum as many bytes as VGG11's gradients have: in 22 calls, in one, in buckets like DDP's."""

    def sums_of(cap: int | None) -> Callable[[], None]:
        planned = programs.vgg11_buckets(sizes.width, cap)
        flats = [torch.ones(bucket.nbytes // 4, device=device()) for bucket in planned]

        def call() -> None:
            for flat in flats:
                dist.all_reduce(flat)

        return call

    caps = {"a call each, 22": 0, "one flat tensor": None, "buckets of 25 MiB": 25 * MIB}
    return in_turn({name: sums_of(cap) for name, cap in caps.items()}, sizes.rounds)


def gradients(place: Place, sizes: Sizes) -> list[Record]:
    """Time the ways to sum VGG11's gradients."""
    return timed(place, in_calls, sizes, nbytes=programs.vgg11_bytes(sizes.width))


SUMS = Row(
    "What does a sum cost, with two ranks to all? (lessons 02 and 06)",
    sums,
    theirs={"8 ranks": "367 GB/s by a ring, 480 where the switch adds (8 H200)"},
    unit="µs",
)
GRADIENTS = Row(
    "Do many calls cost what the benchmark's one does not? (lesson 02)",
    gradients,
    theirs={
        "a call each, 22": f"{FIGURES['in_training'].value:.0f} ms in training",
        "one flat tensor": f"{FIGURES['benchmark'].value:.0f} ms (16 V100)",
    },
    recorded_as={
        "a call each, 22": ("step", "VGG11's 22, a call each"),
        "one flat tensor": ("step", "VGG11's 22, flat"),
    },
    differences={"so a further call takes": ("a call each, 22", "one flat tensor", 21)},
    holds=lambda width: 3 * programs.vgg11_bytes(width),  # for each way a network's gradients
)
