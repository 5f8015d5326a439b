"""What the ranks of lesson 07 do: an all_reduce along several rings, and what its cards carried."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.comm import algorithms
from labkit import device
from labkit.measure import timing, wire

CASES = ONE, EACH, LEVELS, ALL = (
    "one ring, one card",
    "a ring over each card",
    "inside, across, inside",
    "all_to_all",
)
METERED = 4
"""One part in so many of the bytes goes first: it opens connections, and is metered, since a meter
takes time that would count."""


def ring_order(ring: int, *, servers: int, cards: int) -> list[int]:
    """Return the ranks of one ring in order: it leaves every server by the card number `ring`."""
    first = (ring + 1) % cards
    return [server * cards + (first + i) % cards for server in range(servers) for i in range(cards)]


def all_reduce_along_rings(tensor: torch.Tensor, *, cards: int) -> None:
    """Sum `tensor` over all ranks, in place: a ring for each card sums a share, all at once.

    Its shape is (S,), S a multiple of cards x world_size.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    orders = [ring_order(j, servers=n // cards, cards=cards) for j in range(cards)]
    chunks = [share.tensor_split(n) for share in tensor.tensor_split(cards)]
    scratch = [torch.empty_like(share[0]) for share in chunks]
    for step in range(2 * (n - 1)):
        adding, works = step < n - 1, []
        for j, order in enumerate(orders):
            at = order.index(rank)
            turn = at - 1 - step if adding else at - (step - n + 1)
            target = scratch[j] if adding else chunks[j][(turn - 1) % n]
            works.append(dist.isend(chunks[j][turn % n], order[(at + 1) % n], tag=j))
            works.append(dist.irecv(target, order[at - 1], tag=j))
        for work in works:
            work.wait()
        if adding:
            for j, order in enumerate(orders):
                chunks[j][(order.index(rank) - 2 - step) % n].add_(scratch[j])


def all_reduce_perf(
    nbytes: int, way: Callable[[torch.Tensor], None] = dist.all_reduce, calls: int = 2
) -> list[float]:
    """Time the calls of nccl-tests' all_reduce_perf: the seconds of each on this rank."""
    x = torch.zeros(nbytes // 4, device=device())
    return timing.time_calls(lambda: way(x), warmup=0, iters=calls)


def program(case: str, nbytes: int, cards: int, perf: Callable[..., list[float]]) -> dict[str, Any]:
    """Meter a call of one of `CASES`, for a part of the bytes; then let `perf` time all of them.

    Returns ``samples``, this rank's seconds; ``report``, the wire meter's; ``right``, whether the
    sum was right (None for all_to_all, which sums nothing).
    """
    n = dist.get_world_size()
    ways = {ONE: dist.all_reduce, EACH: partial(all_reduce_along_rings, cards=cards)}
    ways[ALL] = lambda tensor: dist.all_to_all_single(torch.empty_like(tensor), tensor)
    if case == LEVELS:
        within, across = algorithms.two_levels(cards)
        ways[LEVELS] = partial(algorithms.hierarchical_all_reduce, within=within, across=across)
    part = torch.full([nbytes // 4 // METERED], dist.get_rank() + 1.0)
    with wire.meter() as meter:
        ways[case](part)
    right = None if case == ALL else bool((part == n * (n + 1) / 2).all())
    return {"samples": perf(nbytes, ways[case]), "report": meter.report, "right": right}
