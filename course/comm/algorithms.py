"""Collectives written by hand from send and receive, to be read.

Each sums or copies a contiguous one-dimensional tensor of the same length on every rank, in place
where it can, and moves exactly the bytes that the function of the same name in `course.comm.costs`
says.

Sources, by their short names: [PY] P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms
for clusters of workstations", JPDC 69 (2009); [TRG] R. Thakur, R. Rabenseifner, W. Gropp,
"Optimization of collective communication operations in MPICH", IJHPCA 19 (2005); [Chan] E. Chan,
M. Heimlich, A. Purkayastha, R. van de Geijn, "Collective communication: theory, practice, and
experience", Concurrency and Computation 19 (2007); [Jia] X. Jia et al., "Highly scalable deep
learning training system with mixed-precision: training ImageNet in four minutes" (2018).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

__all__ = [
    "all_reduce_by_exchange",
    "exchange",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "pipelined_broadcast",
    "recursive_doubling_all_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_reduce",
    "two_levels",
]

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


def all_reduce_by_exchange(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` over all ranks: every rank sends its whole tensor to every other one.

    What one writes first: right values, at a price that grows with the number of ranks. n-1 rounds;
    in round k each rank sends to the k-th rank after it, so that no link is used twice at a time.
    Every rank sends (n-1) S.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    mine, received = tensor.clone(), torch.empty_like(tensor)
    for k in range(1, n):
        exchange(mine, received, dst=(rank + k) % n, src=(rank - k) % n, group=group)
        tensor += received


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


# Binomial trees [Chan, section 4, minimum spanning tree]: in round k, 2**k ranks pass the whole
# tensor on to 2**k others. Few rounds, log2(n), but the whole tensor in each: good when S is small.


def tree_broadcast(
    tensor: torch.Tensor, *, src: int = 0, in_turn: bool = True, group: Group = None
) -> None:
    """Copy rank `src`'s tensor to every rank, along a binomial tree.

    A finished `send` means that the bytes are in the kernel's buffer, not that they have arrived.
    A rank that does not wait for a receipt (a message without content, the other way) therefore
    has several children on its link at once, and so has one that serves them all at once, as gloo
    does. They share the link: k children cost k S each, and a tree of depth d takes d (d+1)/2 S
    instead of d S. `in_turn` a rank waits for each child's receipt before it serves the next one.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    place = (rank - src) % n  # the tree's root is at place 0
    receipt, sending = tensor.new_empty(0), []
    step = 1 << (n - 1).bit_length() - 1 if n > 1 else 0  # the longest hops first
    while step:
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


def tree_reduce(tensor: torch.Tensor, *, dst: int = 0, group: Group = None) -> None:
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


def tree_all_reduce(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` over all ranks: reduce to rank 0, then broadcast from it."""
    tree_reduce(tensor, dst=0, group=group)
    tree_broadcast(tensor, src=0, group=group)


def pipelined_broadcast(
    tensor: torch.Tensor, *, chunks: int, src: int = 0, group: Group = None
) -> None:
    """Copy rank `src`'s tensor along the chain src, src+1, ..., in `chunks` pieces [TRG, Chan].

    Each rank passes a piece on while the next one arrives. Once the chain is full, all links work
    at once, and the time comes near S beta, whatever the number of ranks: the tree needs log2(n)
    times as long. The price is rounds: chunks + n - 2. More pieces fill the chain sooner, but each
    pays alpha once more; `course.comm.costs.best_chunks` weighs the two.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    place = (rank - src) % n
    passed_on = []
    for piece in tensor.tensor_split(chunks):
        if piece.numel() == 0:
            continue  # more chunks than elements
        if place > 0:
            dist.recv(piece, group_src=(rank - 1) % n, group=group)
        if place < n - 1:
            passed_on.append(dist.isend(piece, group_dst=(rank + 1) % n, group=group))
    for sending in passed_on:
        sending.wait()


# Recursive doubling and halving [TRG, sections 4.3 and 4.5]: in round k, each rank exchanges with
# the one 2**k away. For powers of two; other numbers of ranks are folded onto one first.


def recursive_doubling_all_reduce(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` over all ranks, in log2(n) rounds of the whole tensor.

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


def halving_doubling_all_reduce(tensor: torch.Tensor, *, group: Group = None) -> None:
    """Sum `tensor` over all ranks: the ring's bytes in the tree's number of rounds (Rabenseifner).

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
    group: Group,
) -> None:
    """Fold n ranks onto p, run `algorithm(me, p, rank_of)` on those, hand the result to the others.

    p is the largest power of two that is not above n. Of the first 2(n-p) ranks the odd ones take
    part for both; `me` numbers those who take part, and `rank_of` turns such a number back into a
    rank of the group.
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
    if n % ranks_per_host:
        raise ValueError(f"world_size {n} % ranks_per_host {ranks_per_host} != 0")
    hosts = [list(range(start, start + ranks_per_host)) for start in range(0, n, ranks_per_host)]
    within, _ = dist.new_subgroups_by_enumeration(hosts)
    across, _ = dist.new_subgroups_by_enumeration(list(map(list, zip(*hosts, strict=True))))
    return within, across
