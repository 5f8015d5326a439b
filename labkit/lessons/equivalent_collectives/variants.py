"""Every way to sum, gather and spread that lesson 6 compares, as `Collective`s to run and check.

The library's own stand in `labkit.comm.collectives`. Here are the two-step forms of all_reduce,
and the algorithms written by hand. Equal results, equal S; what differs is what goes over the
wires.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist

from labkit.comm import algorithms
from labkit.comm.collectives import COLLECTIVES, Buffers, Collective, Group, pattern

PIECES = 16
"""Chunks of the pipelined broadcast; `labkit.comm.costs.best_chunks` gives about this for 2 to
8 MiB on the fabrics of lesson 6."""


def reduce_then_broadcast(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum on rank 0, then copy from there."""
    dist.reduce(tensor, group_dst=0, group=group)
    dist.broadcast(tensor, group_src=0, group=group)


def scatter_then_gather(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum one part on each rank, then collect the parts; the length is a multiple of the ranks."""
    part = tensor.new_empty(tensor.numel() // dist.get_world_size(group))
    dist.reduce_scatter_single(part, tensor, group=group)
    dist.all_gather_single(tensor, part, group=group)


def scatter_then_gather_by_hand(tensor: torch.Tensor, *, group: Group = None) -> None:
    """As `scatter_then_gather`, with a reduce_scatter that moves no more than it must."""
    part = tensor.new_empty(tensor.numel() // dist.get_world_size(group))
    algorithms.ring_reduce_scatter(part, tensor, group=group)
    algorithms.ring_all_gather(tensor, part, group=group)


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


def _all_reduce(way) -> Collective:
    return replace(COLLECTIVES["all_reduce"], run=lambda b, group: way(b.target, group=group))


THREE_WAYS: dict[str, Collective] = {
    "all_reduce": COLLECTIVES["all_reduce"],
    "reduce + broadcast": _all_reduce(reduce_then_broadcast),
    "reduce_scatter + all_gather": _all_reduce(scatter_then_gather),
}
"""The puzzle's three, as gloo does them."""

BY_HAND: dict[str, Collective] = {
    "ring all_reduce": _all_reduce(algorithms.ring_all_reduce),
    "ring reduce_scatter + all_gather": _all_reduce(scatter_then_gather_by_hand),
    "tree all_reduce": _all_reduce(algorithms.tree_all_reduce),
    "halving-doubling all_reduce": _all_reduce(algorithms.halving_doubling_all_reduce),
    "ring reduce_scatter": replace(
        COLLECTIVES["reduce_scatter"],
        run=lambda b, group: algorithms.ring_reduce_scatter(b.target, b.source, group=group),
    ),
    "ring all_gather": replace(
        COLLECTIVES["all_gather"],
        run=lambda b, group: algorithms.ring_all_gather(b.target, b.source, group=group),
    ),
    "tree broadcast": replace(
        COLLECTIVES["broadcast"],
        run=lambda b, group: algorithms.tree_broadcast(b.target, group=group),
    ),
    "tree broadcast, all at once": replace(
        COLLECTIVES["broadcast"],
        run=lambda b, group: algorithms.tree_broadcast(b.target, in_turn=False, group=group),
    ),
    "pipelined broadcast": replace(
        COLLECTIVES["broadcast"],
        run=lambda b, group: algorithms.pipelined_broadcast(b.target, chunks=PIECES, group=group),
    ),
}
"""The algorithms of `labkit.comm.algorithms` that the lesson measures."""

SWAPS: dict[str, Collective] = {
    f"swap, {first} posted first": replace(
        COLLECTIVES["send"],
        run=lambda b, group, receive_first=first == "receive": swap(
            b, group, receive_first=receive_first
        ),
        expected=lambda rank, n, numel: pattern(rank ^ 1, numel),
    )
    for first in ("send", "receive")
}
"""Two ranks exchange tensors; an even number of ranks."""

ALL: dict[str, Collective] = {**COLLECTIVES, **THREE_WAYS, **BY_HAND, **SWAPS}
"""Every case by its name."""


def as_posted(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Try the third way as the puzzle's script has it: the part as long as the whole.

    Raises:
        Exception: always, on more than one rank; gloo says which sizes do not fit.
    """
    part = torch.empty_like(tensor)
    dist.reduce_scatter_single(part, tensor, group=group)


def whole_tensor_ring(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` in place, as several published "ring all_reduce" scripts do.

    Whole tensors go around: after n-1 steps each rank has seen, and added, everybody's. The values
    are right.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    travelling, arriving = tensor.clone(), torch.empty_like(tensor)
    for _ in range(n - 1):
        algorithms.exchange(
            travelling, arriving, dst=(rank + 1) % n, src=(rank - 1) % n, group=group
        )
        tensor += arriving
        travelling, arriving = arriving, travelling


__all__ = [
    "ALL",
    "BY_HAND",
    "PIECES",
    "SWAPS",
    "THREE_WAYS",
    "as_posted",
    "reduce_then_broadcast",
    "scatter_then_gather",
    "scatter_then_gather_by_hand",
    "swap",
    "whole_tensor_ring",
]
