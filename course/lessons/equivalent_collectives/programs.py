"""What the ranks of lesson 6 run: ways to sum a tensor, the steps of two of them, and their costs.

A way takes a rank's tensor and leaves the sum of all ranks' tensors in it. Equal results, equal S;
what differs is what goes over the wires.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.comm import algorithms
from course.comm.collectives import (
    all_gather_single,
    my_device,
    pattern,
    reduce_scatter_single,
    total,
)
from labkit.measure import timing, wire

Way = Callable[[torch.Tensor], Any]


def reduce_then_broadcast(x: torch.Tensor) -> None:
    """Sum on rank 0, then copy from there."""
    dist.reduce(x, 0)
    dist.broadcast(x, 0)


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """Sum one part on each rank, and return it; the length is a multiple of the ranks."""
    part = x.new_empty(x.numel() // dist.get_world_size())
    reduce_scatter_single(part, x)
    return part


def ring_reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """As `reduce_scatter`, but move no more than it must."""
    part = x.new_empty(x.numel() // dist.get_world_size())
    algorithms.ring_reduce_scatter(part, x)
    return part


def scatter_then_gather(x: torch.Tensor) -> None:
    """Sum one part on each rank, then collect the parts."""
    all_gather_single(x, reduce_scatter(x))


def ring_then_gather(x: torch.Tensor) -> None:
    """As `scatter_then_gather`, with the ring's reduce_scatter."""
    all_gather_single(x, ring_reduce_scatter(x))


def all_gather(x: torch.Tensor) -> None:
    """The second step of `scatter_then_gather`, of this rank's part."""
    all_gather_single(x, x.view(dist.get_world_size(), -1)[dist.get_rank()].clone())


WAYS: dict[str, Way] = {
    "all_reduce": dist.all_reduce,
    "reduce + broadcast": reduce_then_broadcast,
    "reduce_scatter + all_gather": scatter_then_gather,
}
"""The puzzle's three."""
STEPS: dict[str, Way] = {
    "reduce": partial(dist.reduce, dst=0),
    "broadcast": partial(dist.broadcast, src=0),
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
}
"""What two of them are made of."""
CONTROL: dict[str, Way] = {
    "my ring": ring_reduce_scatter,
    "my ring + all_gather": ring_then_gather,
    "ring all_reduce": algorithms.ring_all_reduce,
}
"""The ring, in two steps and in one."""


def measure(ways: Mapping[str, Way], nbytes: int, iters: int) -> dict[str, dict[str, Any]]:
    """Check, meter and time each way, in turn within each iteration; runs on every rank.

    Returns:
        By name: `right`, whether the sum is; `report`, the wire meter's; `samples`, seconds.
    """
    rank, n, numel = dist.get_rank(), dist.get_world_size(), nbytes // 4
    results = {}
    with my_device():
        for name, way in ways.items():
            way(pattern(rank, n))  # opens connections
            x = pattern(rank, numel)
            with wire.meter() as meter:
                way(x)
            right = torch.equal(x, total(n, numel))
            results[name] = {"right": right, "report": meter.report, "samples": []}
        x = torch.zeros(numel)
        for _ in range(iters):
            for name, way in ways.items():
                results[name]["samples"] += timing.time_calls(partial(way, x), warmup=0, iters=1)
    return results


def ring_rule(rank: int, step: int, n: int) -> int:
    """Return the chunk that a rank of a ring reduce_scatter passes on in a round."""
    return (rank - 1 - step) % n
