"""What the ranks of lesson 6 run: ways to sum a tensor, the steps of two of them, and their costs.

A way takes a rank's tensor and leaves the sum of all ranks' tensors in it. Equal results, equal S;
what differs is what goes over the wires.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from course.comm import algorithms, collectives
from course.comm.collectives import (
    all_gather_single,
    free_bytes,
    pattern,
    reduce_scatter_single,
    total,
)
from labkit.measure import timing, wire
from labkit.ranks.devices import device

Way = Callable[[torch.Tensor], Any]
QUARTER = ", S/4"  # what the name of a way ends with that gets a quarter of the tensor


def reduce_then_broadcast(x: torch.Tensor) -> None:
    """Sum on rank 0, then copy from there."""
    dist.reduce(x, 0)
    dist.broadcast(x, 0)


def reduce_scatter(x: torch.Tensor, scatter: Callable = reduce_scatter_single) -> torch.Tensor:
    """Sum one part on each rank, and return it; the length is a multiple of the ranks."""
    part = x.new_empty(x.numel() // dist.get_world_size())
    scatter(part, x)
    return part


ring_reduce_scatter = partial(reduce_scatter, scatter=algorithms.ring_reduce_scatter)
"""As `reduce_scatter`, but move no more than it must."""


def then_gather(x: torch.Tensor, first: Way = reduce_scatter) -> None:
    """Sum one part on each rank by a first step, then collect the parts."""
    all_gather_single(x, first(x))


def all_gather(x: torch.Tensor) -> None:
    """The second step of `then_gather`, of this rank's part."""
    all_gather_single(x, x.view(dist.get_world_size(), -1)[dist.get_rank()].clone())


def broadcast_in_turn(x: torch.Tensor) -> None:
    """Copy rank 0's tensor to four ranks by gloo's tree, one of the root's two sends at a time."""
    rank, receipt = dist.get_rank(), torch.zeros(1)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(receipt, 1)
        dist.send(x, 2)
    elif rank == 1:
        dist.recv(x, 0)
        dist.send(receipt, 0)
        dist.send(x, 3)
    else:
        dist.recv(x, 0 if rank == 2 else 1)


WAYS: dict[str, Way] = {
    "all_reduce": dist.all_reduce,
    "reduce + broadcast": reduce_then_broadcast,
    "reduce_scatter + all_gather": then_gather,
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
    "my ring + all_gather": partial(then_gather, first=ring_reduce_scatter),
    "ring all_reduce": algorithms.ring_all_reduce,
}
"""The ring, in two steps and in one."""
TREES: dict[str, Way] = {"gloo's broadcast": STEPS["broadcast"], "in turn": broadcast_in_turn}
"""One tree, in which the root's two sends share its link, or take turns."""


def given(name: str, nbytes: int) -> int:
    """Return how many of the tensor's bytes a way gets."""
    return nbytes // 4 if name.endswith(QUARTER) else nbytes


def measure(ways: Mapping[str, Way], nbytes: int, iters: int) -> dict[str, dict[str, Any]]:
    """Check, meter and time each way, in turn within each iteration; runs on every rank.

    Returns:
        By name: `right` and `copied`, whether the sum is there, or rank 0's tensor; `report`, the
        wire meter's; `samples`, seconds.
    """
    rank, n, results = dist.get_rank(), dist.get_world_size(), {}
    numels = {name: given(name, nbytes) // 4 for name in ways}
    with device():
        for name, way in ways.items():
            way(pattern(rank, n))  # opens connections
            x = pattern(rank, numels[name])
            with wire.meter() as meter:
                way(x)
            wanted = {"right": total(n, numels[name]), "copied": pattern(0, numels[name])}
            equal = {kind: torch.equal(x, values) for kind, values in wanted.items()}
            results[name] = equal | {"report": meter.report}
        whole = torch.zeros(nbytes // 4)
        calls = [partial(way, whole[: numels[name]]) for name, way in ways.items()]
        for name, samples in zip(ways, collectives.take_turns(calls, iters), strict=True):
            results[name]["samples"] = samples
    return results


def metered(third: Callable, repairs: Mapping[str, Any], numel: int) -> dict[str, wire.Report]:
    """Run the puzzle's third function with each repair's lengths; return what the wire met."""
    reports = {}
    for repair, lengths in repairs.items():
        third(lengths, 64)  # opens connections
        with wire.meter() as meter:
            third(lengths, numel)
        reports[repair] = meter.report
    return reports


def timed(function: Callable, *args: Any) -> list[float]:
    """Time three calls of a printed function; its group is made before the clock starts."""
    group = dist.new_group()
    with mock.patch.object(dist, "new_group", lambda ranks: group):
        return timing.time_calls(partial(function, *args), warmup=1, iters=3)


def most_floats(wanted: int) -> int:
    """Return how many floats S may have on this rank: n divides them, and memory has room.

    The long repair has tensors of n, 1 and n times S. On a GPU they fill at most 80 % of what is
    free.
    """
    n = dist.get_world_size()
    if device().type == "cuda":
        wanted = min(wanted, int(0.8 * free_bytes()) // (4 * (2 * n + 1)))
    return wanted // n * n


def every_sum(tensors: Sequence[torch.Tensor]) -> None:
    """Do what the ranks' CPUs do for a sum, in one process: add up all, and copy for each."""
    summed = sum(tensors)
    for _ in tensors:
        summed.clone()


def swap(x: torch.Tensor) -> None:
    """Swap a tensor: rank 0 with 1, 2 with 3."""
    partner = dist.get_rank() ^ 1
    algorithms.exchange(x, torch.empty_like(x), dst=partner, src=partner)


def in_turn(ways: Sequence[Way], sizes: Sequence[int]) -> dict[int, list[list[float]]]:
    """Time ways on float32 tensors of each size in bytes, five times in turn; by size, then way."""
    calls = [partial(way, torch.zeros(max(1, size // 4))) for size in sizes for way in ways]
    collectives.take_turns(calls, 1)  # warms up
    times, count = collectives.take_turns(calls, 5), len(ways)
    return {size: times[k * count : (k + 1) * count] for k, size in enumerate(sizes)}
