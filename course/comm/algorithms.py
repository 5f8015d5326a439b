"""Collectives written by hand from send and receive, to be read.

Each sums or copies a contiguous one-dimensional tensor of the same length on every rank, in place
where it can.

Sources: [PY] P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", JPDC 69 (2009); [Jia] X. Jia et al., "Highly scalable deep learning training system
with mixed-precision: training ImageNet in four minutes" (2018).
"""

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None


def exchange(
    outgoing: torch.Tensor, incoming: torch.Tensor, *, dst: int, src: int, group: Group = None
) -> None:
    """Send `outgoing` to rank `dst` of the group while `incoming` is filled from rank `src`.

    Neither call may block: if every rank of a circle first waited for its send to end, nobody would
    receive. And the receive comes first: gloo tells the sender that a receive is posted by a notice
    on the same connection. Posted after the send, that notice queues behind the outgoing bytes, the
    partner cannot start until they are through, and two ranks that swap tensors take turns: on a
    shaped link 1.9 times as long. The two tensors must not share memory.
    """
    receiving = dist.irecv(incoming, group_src=src, group=group)
    sending = dist.isend(outgoing, group_dst=dst, group=group)
    receiving.wait()
    sending.wait()


# Rings [PY]: every rank talks to its two neighbours only, and all links work all the time. Going
# once around, each of n chunks collects its sum (reduce_scatter); going around again, each sum
# reaches every rank (all_gather). (n-1)/n S per turn is the least possible; n-1 rounds are many
# when n is large and S small.


def ring_all_reduce(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` over all ranks. Any length: the first chunks may be one element longer.

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


def ring_reduce_scatter(output: torch.Tensor, tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` over all ranks and keep chunk r of the result on rank r.

    The sums travel; what arrives gets this rank's share added and goes on. `tensor`, shape (S,),
    stays as it is; `output`, shape (S/n,), is filled with this rank's chunk of the sum.

    Raises:
        ValueError: `tensor` is not n times as long as `output`.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    _demand_multiple(tensor, output, n)
    chunks = tensor.tensor_split(n)
    outgoing, incoming = chunks[(rank - 1) % n].clone(), output
    for step in range(n - 1):
        exchange(outgoing, incoming, dst=(rank + 1) % n, src=(rank - 1) % n, group=group)
        incoming += chunks[(rank - 2 - step) % n]
        outgoing, incoming = incoming, outgoing
    if outgoing is not output:
        output.copy_(outgoing)


def ring_all_gather(output: torch.Tensor, tensor: torch.Tensor, *, group: Group = None) -> None:
    """Collect every rank's `tensor`, in the order of the ranks, in every rank's `output`.

    Raises:
        ValueError: `output` is not n times as long as `tensor`.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    _demand_multiple(output, tensor, n)
    chunks = output.tensor_split(n)
    chunks[rank].copy_(tensor)
    for step in range(n - 1):
        outgoing, target = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        exchange(outgoing, target, dst=(rank + 1) % n, src=(rank - 1) % n, group=group)


def _demand_multiple(whole: torch.Tensor, part: torch.Tensor, n: int) -> None:
    if whole.numel() != n * part.numel():
        raise ValueError(
            f"world_size {n} * {part.numel()} elements in the part != {whole.numel()} in the "
            f"whole; pad the whole to a multiple of {n}"
        )


# Two levels [Jia, section 4.2, scattering inside the host]: inside a host links are fast and rounds
# cheap, between hosts neither.


def hierarchical_all_reduce(
    tensor: torch.Tensor, *, within: dist.ProcessGroup, across: dist.ProcessGroup
) -> None:
    """Sum `tensor` over all ranks: reduce_scatter in the host, all_reduce across, all_gather.

    The slow links carry 2(hosts-1)/hosts S per host, in 2(hosts-1) rounds instead of the flat
    ring's 2(n-1).

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
    hosts = [list(range(start, start + ranks_per_host)) for start in range(0, n, ranks_per_host)]
    within, _ = dist.new_subgroups_by_enumeration(hosts)
    across, _ = dist.new_subgroups_by_enumeration(list(map(list, zip(*hosts, strict=True))))
    return within, across
