"""Rings: every rank talks to its two neighbours only, and all links work all the time.

The tensor is cut into n chunks. Going once around, each chunk collects its sum (reduce_scatter);
going around again, each sum reaches everybody (all_gather). Each rank sends (n-1)/n S per turn, the
least that is possible, in n-1 rounds, which is many when n is large and S small.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
Journal of Parallel and Distributed Computing 69 (2009).
"""

import torch
import torch.distributed as dist

from labkit.comm.algorithms.exchange import exchange


def ring_all_reduce(tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> None:
    """Sum `tensor` over all ranks, in place. Any length: the first chunks may be one longer.

    Each rank sends about 2(n-1)/n S in 2(n-1) rounds and needs S/n of scratch memory.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks = tensor.tensor_split(n)  # views: writing to a chunk writes to the tensor
    scratch = torch.empty_like(chunks[0])
    for step in range(n - 1):  # after this turn, rank r holds the sum of chunk r
        outgoing, target = chunks[(rank - 1 - step) % n], chunks[(rank - 2 - step) % n]
        incoming = scratch[: target.numel()]
        exchange(outgoing, incoming, dst=right, src=left, group=group)
        target += incoming
    for step in range(n - 1):
        outgoing, target = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        exchange(outgoing, target, dst=right, src=left, group=group)


def ring_reduce_scatter(
    output: torch.Tensor, tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> None:
    """Sum `tensor` over all ranks and keep chunk r of the result on rank r.

    `tensor` is left as it is. The sums travel; what arrives gets this rank's share added and goes
    on.

    Args:
        output: shape (S/n,), filled with this rank's chunk of the sum.
        tensor: shape (S,), S a multiple of n.
        group: the ranks that take part.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    _demand_multiple(tensor, output, n)
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks = tensor.tensor_split(n)
    outgoing, incoming = chunks[(rank - 1) % n].clone(), output
    for step in range(n - 1):
        exchange(outgoing, incoming, dst=right, src=left, group=group)
        incoming += chunks[(rank - 2 - step) % n]
        outgoing, incoming = incoming, outgoing
    if outgoing is not output:
        output.copy_(outgoing)


def ring_all_gather(
    output: torch.Tensor, tensor: torch.Tensor, *, group: dist.ProcessGroup | None = None
) -> None:
    """Collect every rank's `tensor`, in the order of the ranks, on every rank.

    Args:
        output: shape (n * len(tensor),).
        tensor: this rank's part.
        group: the ranks that take part.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    _demand_multiple(output, tensor, n)
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks = output.tensor_split(n)
    chunks[rank].copy_(tensor)
    for step in range(n - 1):
        outgoing, target = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        exchange(outgoing, target, dst=right, src=left, group=group)


def _demand_multiple(whole: torch.Tensor, part: torch.Tensor, n: int) -> None:
    if whole.numel() != n * part.numel():
        raise ValueError(
            f"world_size {n} * {part.numel()} elements in the part != {whole.numel()} in the "
            "whole; "
            f"pad the whole to a multiple of {n}"
        )
