"""Two levels: inside a host links are fast and rounds cheap, between hosts neither.

Each host sums its ranks' tensors so that every rank holds one part; ranks with the same part on
different hosts sum those; then every host puts the parts together again. The slow links carry
2(hosts-1)/hosts S per host, in 2(hosts-1) rounds instead of the flat ring's 2(n-1).

Source: Jia et al., "Highly scalable deep learning training system with mixed-precision: training
ImageNet in four minutes" (2018), section 4.2, in the variant that scatters inside the host.
"""

import torch
import torch.distributed as dist

from labkit.comm.algorithms.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter


def hierarchical_all_reduce(
    tensor: torch.Tensor, *, within: dist.ProcessGroup, across: dist.ProcessGroup
) -> None:
    """Sum `tensor` over all ranks, in place.

    Args:
        tensor: shape (S,), S a multiple of the ranks in `within`.
        within: the ranks of this rank's host.
        across: the ranks that have this rank's number on every host.
    """
    part = tensor.new_empty(tensor.numel() // dist.get_world_size(within))
    ring_reduce_scatter(part, tensor, group=within)
    ring_all_reduce(part, group=across)
    ring_all_gather(tensor, part, group=within)


def two_levels(ranks_per_host: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Return this rank's (within, across) groups, for hosts that hold consecutive ranks.

    All ranks must call it. With 4 ranks and 2 per host: within is {0, 1} or {2, 3}, across is
    {0, 2} or {1, 3}.

    Raises:
        ValueError: the ranks do not fill the hosts evenly.
    """
    n = dist.get_world_size()
    if n % ranks_per_host:
        raise ValueError(f"world_size {n} % ranks_per_host {ranks_per_host} != 0")
    hosts = [list(range(start, start + ranks_per_host)) for start in range(0, n, ranks_per_host)]
    within, _ = dist.new_subgroups_by_enumeration(hosts)
    across, _ = dist.new_subgroups_by_enumeration(
        [list(ranks) for ranks in zip(*hosts, strict=True)]
    )
    return within, across
