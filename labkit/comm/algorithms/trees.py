"""Binomial trees: in round k, 2**k ranks pass the whole tensor on to 2**k others.

Few rounds (log2 n), but the whole tensor in each: good when it is small.

A finished `send` means that the bytes are in the kernel's buffer, not that they have arrived. A
rank that serves its children one after another without a receipt (a message without content, the
other way) has several of them on its link at once; and one that serves all at once, as gloo does,
certainly. They share the link, all arrive late, and so do those behind them: k children cost k S
each time, and a tree of depth d takes d (d+1)/2 S instead of d S.

Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and
experience", Concurrency and Computation 19 (2007), section 4 (minimum spanning tree).
"""

import torch
import torch.distributed as dist


def tree_broadcast(
    tensor: torch.Tensor,
    *,
    src: int = 0,
    in_turn: bool = True,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Copy rank `src`'s tensor to every rank, along a binomial tree.

    Args:
        tensor: what to send on rank `src`, what to fill elsewhere.
        src: the root's rank in the group.
        in_turn: whether a rank waits for each child's receipt before it serves the next one, or
            serves all at once.
        group: the ranks that take part.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    place = (rank - src) % n  # the tree's root is at place 0
    receipt, sending = tensor.new_empty(0), []
    step = _top(n)
    while step:  # the longest hops first
        if place % (2 * step) == 0 and place + step < n:
            child = (rank + step) % n
            sending.append(dist.isend(tensor, group_dst=child, group=group))
            if in_turn and step > 1:  # another child is to follow
                dist.recv(receipt, group_src=child, group=group)
        elif place % (2 * step) == step:
            parent = (rank - step) % n
            dist.recv(tensor, group_src=parent, group=group)
            if in_turn and step > 1:
                dist.send(receipt, group_dst=parent, group=group)
        step //= 2
    for work in sending:
        work.wait()


def tree_reduce(
    tensor: torch.Tensor, *, dst: int = 0, group: dist.ProcessGroup | None = None
) -> None:
    """Sum `tensor` over all ranks on rank `dst`: the broadcast's tree, run backwards.

    The other ranks' tensors are left with partial sums, as torch.distributed.reduce may.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    place = (rank - dst) % n
    received = torch.empty_like(tensor)
    step = 1
    while step < n:  # the shortest hops first
        if place % (2 * step) == step:
            dist.send(tensor, group_dst=(rank - step) % n, group=group)
            return  # this rank's share is in its parent's sum
        if place + step < n:
            dist.recv(received, group_src=(rank + step) % n, group=group)
            tensor += received
        step *= 2


def tree_all_reduce(tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> None:
    """Sum `tensor` over all ranks, in place: reduce to rank 0, then broadcast from it."""
    tree_reduce(tensor, dst=0, group=group)
    tree_broadcast(tensor, src=0, group=group)


def _top(n: int) -> int:
    """Return the largest power of two below n, 0 for n = 1: the length of the longest hop."""
    return 1 << (n - 1).bit_length() - 1 if n > 1 else 0
