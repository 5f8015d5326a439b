"""Recursive doubling and halving: in round k, each rank exchanges with the one 2**k away.

Both need a power of two. Others are folded first: with p the largest power of two below n, each of
the n-p ranks too many hands its tensor to a partner, sits out, and gets the result back at the end.

Source: Thakur, Rabenseifner, Gropp (2005), sections 4.3 and 4.5; the halving and doubling pair is
Rabenseifner's algorithm.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

from labkit.comm.algorithms.exchange import exchange


def recursive_doubling_all_reduce(
    tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> None:
    """Sum `tensor` over all ranks, in place, in log2(n) rounds of the whole tensor.

    The fewest rounds of all; the one to take when S is so small that only alpha counts.
    """
    received = torch.empty_like(tensor)

    def double(me: int, p: int, rank_of: Callable[[int], int]) -> None:
        distance = 1
        while distance < p:
            partner = rank_of(me ^ distance)
            exchange(tensor, received, dst=partner, src=partner, group=group)
            tensor.add_(received)
            distance *= 2

    _on_a_power_of_two(tensor, double, group)


def halving_doubling_all_reduce(
    tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> None:
    """Sum `tensor` over all ranks, in place: the ring's bytes in the tree's number of rounds.

    Halving: swap halves with the farthest rank, quarters with the next, ..., until each rank holds
    the sum of S/p. Doubling runs the same way back. 2(p-1)/p S per rank in 2 log2(p) rounds.
    """

    def halve_and_double(me: int, p: int, rank_of: Callable[[int], int]) -> None:
        mine, way_back = tensor, []
        distance = p // 2
        while distance:
            partner = rank_of(me ^ distance)
            low, high = mine.tensor_split(2)
            mine, theirs = (high, low) if me & distance else (low, high)
            received = torch.empty_like(mine)
            exchange(theirs, received, dst=partner, src=partner, group=group)
            mine += received
            way_back.append((partner, mine, theirs))
            distance //= 2
        for partner, summed, missing in reversed(way_back):
            exchange(summed, missing, dst=partner, src=partner, group=group)

    _on_a_power_of_two(tensor, halve_and_double, group)


def _on_a_power_of_two(
    tensor: torch.Tensor,
    algorithm: Callable[[int, int, Callable[[int], int]], None],
    group: dist.ProcessGroup | None,
) -> None:
    """Fold n ranks onto p, run `algorithm(me, p, rank_of)` on those, hand the result to the others.

    Of the first 2(n-p) ranks the odd ones take part for both; `me` numbers those who take part, and
    `rank_of` turns such a number back into a rank of the group.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    p = 1 << n.bit_length() - 1
    folded = n - p
    if rank < 2 * folded and rank % 2 == 0:
        dist.send(tensor, group_dst=rank + 1, group=group)
        dist.recv(tensor, group_src=rank + 1, group=group)
        return
    if rank < 2 * folded:
        received = torch.empty_like(tensor)
        dist.recv(received, group_src=rank - 1, group=group)
        tensor += received
    me = rank // 2 if rank < 2 * folded else rank - folded
    algorithm(me, p, lambda number: 2 * number + 1 if number < folded else number + folded)
    if rank < 2 * folded:
        dist.send(tensor, group_dst=rank - 1, group=group)
