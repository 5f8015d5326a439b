"""What the ranks of lesson 6 run: every variant of a sum, a gather and a spread, and its costs.

The library's own collectives stand in `course.comm.collectives`. Here are the two-step forms of
all_reduce, the algorithms written by hand, and the programs that check, meter and time them. Equal
results, equal S; what differs is what goes over the wires.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.comm import algorithms
from course.comm.collectives import (
    COLLECTIVES,
    Buffers,
    Collective,
    Group,
    all_gather_single,
    my_device,
    pattern,
    reduce_scatter_single,
)
from labkit.measure import timing, wire

PIECES = 16
"""Chunks of the pipelined broadcast; `course.comm.costs.best_chunks` gives about this for 2 to
8 MiB on the fabrics of lesson 6."""


def reduce_then_broadcast(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum on rank 0, then copy from there."""
    dist.reduce(tensor, group_dst=0, group=group)
    dist.broadcast(tensor, group_src=0, group=group)


def scatter_then_gather(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum one part on each rank, then collect the parts; the length is a multiple of the ranks."""
    part = tensor.new_empty(tensor.numel() // dist.get_world_size(group))
    reduce_scatter_single(part, tensor, group=group)
    all_gather_single(tensor, part, group=group)


def scatter_then_gather_by_hand(tensor: torch.Tensor, *, group: Group = None) -> None:
    """As `scatter_then_gather`, with a reduce_scatter that moves no more than it must."""
    part = tensor.new_empty(tensor.numel() // dist.get_world_size(group))
    algorithms.ring_reduce_scatter(part, tensor, group=group)
    algorithms.ring_all_gather(tensor, part, group=group)


def two_level_all_reduce(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum inside each of two hosts, then between them; each host has half of the ranks."""
    within, across = _halves()
    algorithms.hierarchical_all_reduce(tensor, within=within, across=across)


@functools.cache  # making groups takes far longer than a small sum
def _halves() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    return algorithms.two_levels(dist.get_world_size() // 2)


def swap(buffers: Buffers, group: Group, *, receive_first: bool) -> None:
    """Exchange S with a neighbour (0 with 1, 2 with 3, ...), posting one of the two calls first."""
    partner = dist.get_rank(group) ^ 1
    calls = [
        (dist.isend, buffers.source, {"group_dst": partner}),
        (dist.irecv, buffers.target, {"group_src": partner}),
    ]
    if receive_first:
        calls.reverse()
    for work in [call(tensor, group=group, **peer) for call, tensor, peer in calls]:
        work.wait()


def _like(name: str, way: Callable[..., None], **options: Any) -> Collective:
    """Return a collective that has another's data and expected values, and runs `way`."""
    one_tensor = COLLECTIVES[name].in_place

    def run(b: Buffers, group: Group) -> None:
        way(*([b.target] if one_tensor else [b.target, b.source]), group=group, **options)

    return replace(COLLECTIVES[name], run=run)


THREE_WAYS: dict[str, Collective] = {
    "all_reduce": COLLECTIVES["all_reduce"],
    "reduce + broadcast": _like("all_reduce", reduce_then_broadcast),
    "reduce_scatter + all_gather": _like("all_reduce", scatter_then_gather),
}
"""The puzzle's three, as gloo does them."""

BY_HAND: dict[str, Collective] = {
    "ring all_reduce": _like("all_reduce", algorithms.ring_all_reduce),
    "ring reduce_scatter + all_gather": _like("all_reduce", scatter_then_gather_by_hand),
    "tree all_reduce": _like("all_reduce", algorithms.tree_all_reduce),
    "halving-doubling all_reduce": _like("all_reduce", algorithms.halving_doubling_all_reduce),
    "two-level all_reduce": _like("all_reduce", two_level_all_reduce),
    "ring reduce_scatter": _like("reduce_scatter", algorithms.ring_reduce_scatter),
    "ring all_gather": _like("all_gather", algorithms.ring_all_gather),
    "tree broadcast": _like("broadcast", algorithms.tree_broadcast),
    "tree broadcast, all at once": _like("broadcast", algorithms.tree_broadcast, in_turn=False),
    "pipelined broadcast": _like("broadcast", algorithms.pipelined_broadcast, chunks=PIECES),
}
"""The algorithms of `course.comm.algorithms` that the lesson measures."""

SWAPS: dict[str, Collective] = {
    f"swap, {first} posted first": replace(
        COLLECTIVES["send"],
        run=partial(swap, receive_first=first == "receive"),
        expected=lambda rank, n, numel: pattern(rank ^ 1, numel),
    )
    for first in ("send", "receive")
}
"""Two ranks exchange tensors; an even number of ranks."""

ALL: dict[str, Collective] = {**COLLECTIVES, **THREE_WAYS, **BY_HAND, **SWAPS}
"""Every case by its name."""


def measure(cases: Sequence[str], nbytes: int, iters: int) -> dict[str, dict[str, Any]]:
    """Check, meter and time each case; runs on every rank.

    Returns:
        By case: `samples`, seconds per call, and `report`, the wire meter's.
    """
    rank, n, numel = dist.get_rank(), dist.get_world_size(), nbytes // 4
    results = {}
    with my_device():
        for name in cases:
            case = ALL[name]
            case.run(case.prepare(n, rank=rank, world_size=n), None)  # opens connections
            buffers = case.prepare(numel, rank=rank, world_size=n)
            with wire.meter() as m:
                case.run(buffers, None)
            case.check(buffers, numel=numel, rank=rank, world_size=n)
            buffers.source.zero_()
            samples = timing.time_calls(partial(case.run, buffers, None), warmup=0, iters=iters)
            results[name] = {"samples": samples, "report": m.report}
    return results
