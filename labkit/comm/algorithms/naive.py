"""What one writes first. Right values, at a price that grows with the number of ranks."""

import torch
import torch.distributed as dist

from labkit.comm.algorithms.exchange import exchange


def all_reduce_via_root(tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> None:
    """Sum `tensor` over all ranks, in place: all send it to rank 0, which adds and sends it back.

    Rank 0's link carries (n-1) S in and (n-1) S out; everybody else's is idle most of the time.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank != 0:
        dist.send(tensor, group_dst=0, group=group)
        dist.recv(tensor, group_src=0, group=group)
        return
    received = torch.empty_like(tensor)
    for src in range(1, n):
        dist.recv(received, group_src=src, group=group)
        tensor += received
    for dst in range(1, n):
        dist.send(tensor, group_dst=dst, group=group)


def all_reduce_by_exchange(tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> None:
    """Sum `tensor` over all ranks, in place: everybody sends the whole tensor to everybody.

    n-1 rounds; in round k each rank sends to the k-th rank after it, so that no link is used
    twice at a time. Every rank sends (n-1) S.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    mine, received = tensor.clone(), torch.empty_like(tensor)
    for k in range(1, n):
        exchange(mine, received, dst=(rank + k) % n, src=(rank - k) % n, group=group)
        tensor += received
