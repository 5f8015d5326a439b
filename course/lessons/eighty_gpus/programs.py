"""What the ranks of lesson 07 do: an all_reduce along several rings, and what its cards carried."""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.comm import algorithms
from labkit.measure import timing, wire


def ring_order(ring: int, *, servers: int, cards: int, rings: int) -> list[int]:
    """Return the ranks of one ring in order: it leaves every server by the card number `ring`.

    The only ring of one leaves by the last card and comes in by the first.
    """
    first = (ring + 1) % cards if rings > 1 else 0
    return [server * cards + (first + i) % cards for server in range(servers) for i in range(cards)]


def all_reduce_along_rings(tensor: torch.Tensor, *, cards: int, rings: int) -> None:
    """Sum `tensor` over all ranks, in place: each ring sums its share, all rings at once.

    Its shape is (S,), S a multiple of rings x world_size; there is one ring, or one for each card.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    orders = [ring_order(j, servers=n // cards, cards=cards, rings=rings) for j in range(rings)]
    chunks = [share.tensor_split(n) for share in tensor.tensor_split(rings)]
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


def program(case: str, nbytes: int, cards: int, iters: int) -> dict[str, Any]:
    """Call one of `experiment.CASES` between servers with several cards, metered; then time it.

    Returns:
        ``samples``, this rank's seconds; ``report``, the wire meter's; ``right``, whether the sum
        was right (None for all_to_all, which sums nothing).
    """
    n, right = dist.get_world_size(), None
    tensor = torch.full([nbytes // 4], dist.get_rank() + 1.0)
    if case == "all_to_all":
        output = torch.empty_like(tensor)
        call = partial(dist.all_to_all_single, output, tensor)
    elif case == "inside, across, inside":
        within, across = algorithms.two_levels(cards)
        call = partial(algorithms.hierarchical_all_reduce, tensor, within=within, across=across)
    else:
        rings = cards if case == "a ring over each card" else 1
        call = partial(all_reduce_along_rings, tensor, cards=cards, rings=rings)
    with wire.meter() as meter:
        call()
    if case != "all_to_all":
        right = bool((tensor == n * (n + 1) / 2).all())
        tensor.zero_()
    samples = timing.time_calls(call, warmup=0, iters=iters)
    return {"samples": samples, "report": meter.report, "right": right}
