"""What the ranks of lesson 04 do. Imports little: every rank of every launch pays for it.

What is timed returns, on each destination, the seconds of each repetition; on other ranks None.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist

from labkit.measure import timing


def carry(
    tensor: torch.Tensor,
    ways: Sequence[Sequence[int]],
    *,
    chunk: int,
    shares: Sequence[float] | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Copy a tensor from the first rank of the ways to their last, over the ranks between.

    A bucket brigade: nobody waits for the whole tensor. While a relay hands on one chunk, the next
    one is on its way to it, so all links of a way are busy at the same time.

    Every rank of the group calls this with a tensor of the same shape: the source's is sent, the
    destination's is overwritten, a relay's is its buffer, and the rest are left alone.

    Args:
        tensor: One-dimensional and contiguous.
        ways: The ranks of each way in order, such as `[[0, 5, 2], [0, 7, 2]]`. A rank may be on
            several ways.
        chunk: Elements that travel together.
        shares: How much of the tensor takes each way, in any unit; equal shares if not given.
        group: The group whose connections are used; the default group if not given.
    """
    rank, legs, leaving = dist.get_rank(), [], []
    parts = split(tensor, shares or [1] * len(ways))
    for tag, (part, way) in enumerate(zip(parts, ways, strict=True)):
        if rank in way:
            here, pieces = list(way).index(rank), part.split(chunk)
            after = way[here + 1] if rank != way[-1] else None
            # All receives are posted before anything is sent: no sender waits for readiness.
            arriving = [
                dist.irecv(piece, way[here - 1], group=group, tag=tag)
                for piece in pieces
                if here > 0
            ]
            legs.append((pieces, arriving, after, tag))
    for turn in range(max((len(pieces) for pieces, *_ in legs), default=0)):
        for pieces, arriving, after, tag in legs:
            if arriving and turn < len(pieces):
                arriving[turn].wait()
            if after is not None and turn < len(pieces):
                leaving.append(dist.isend(pieces[turn], after, group=group, tag=tag))
    for work in leaving:
        work.wait()


def split(tensor: torch.Tensor, shares: Sequence[float]) -> Sequence[torch.Tensor]:
    """Cut a tensor into parts in proportion to the shares; nothing is lost."""
    *cuts, whole = itertools.accumulate(shares)
    return tensor.tensor_split([round(len(tensor) * cut / whole) for cut in cuts])


def copies(src: int, dsts: Sequence[int], nbytes: int, iters: int) -> list[float] | None:
    """Send the same bytes to several ranks at once."""
    rank, tensor, samples = dist.get_rank(), torch.ones(nbytes // 4), []
    for repetition in range(iters + 1):
        message = tensor if repetition else tensor[:1]  # the first only opens the connections
        dist.barrier()
        begin = time.perf_counter()
        if rank == src:
            for work in [dist.isend(message, dst) for dst in dsts]:
                work.wait()
        elif rank in dsts:
            dist.recv(message, src)
        samples.append(time.perf_counter() - begin)
    return samples[1:] if rank in dsts else None


def every_pair(
    src: int, dsts: Sequence[int], nbytes: int, alone: Sequence[Sequence[int]], rounds: int
) -> list[dict] | None:
    """Time a copy of each ordered pair alone, then those from `src` to `dsts` together.

    Args:
        src: Where the copies begin that are made together.
        dsts: Where they go.
        nbytes: What each of them carries.
        alone: What the copy of a pair carries, `alone[src][dst]`.
        rounds: Of all copies.

    Returns:
        On rank 0, for each round: ``alone[src][dst]``, bytes per second, and ``together[dst]``, the
        seconds; both by the receiver's clock.
    """
    rank, n, found = dist.get_rank(), dist.get_world_size(), []
    tensor = torch.ones(max(nbytes, *map(max, alone)) // 4)

    def copies(pairs: Sequence[tuple[int, int]], message: torch.Tensor) -> float:
        dist.barrier()
        begin = time.perf_counter()
        leaving = [dist.isend(message, b) for a, b in pairs if a == rank]
        for a, b in pairs:
            if b == rank:
                dist.recv(message, a)
        for work in leaving:
            work.wait()
        return time.perf_counter() - begin

    everyone = list(itertools.permutations(range(n), 2))
    for pair in everyone:
        copies([pair], tensor[:1])  # opens the connection
    for _ in range(rounds):
        mine = {}
        for a, b in everyone:
            took = copies([(a, b)], tensor[: alone[a][b] // 4])
            if b == rank:
                mine[a] = alone[a][b] / took
        seconds = copies([(src, dst) for dst in dsts], tensor[: nbytes // 4])
        gathered: list = [None] * n
        dist.all_gather_object(gathered, (mine, seconds))
        rates = [[0.0 if a == b else gathered[b][0][a] for b in range(n)] for a in range(n)]
        found.append({"alone": rates, "together": {str(dst): gathered[dst][1] for dst in dsts}})
    return found if rank == 0 else None


def in_turns(way: Sequence[int], nbytes: int, chunk: int, iters: int) -> list[float] | None:
    """Hand chunks along a way with plain send and recv."""
    rank, tensor = dist.get_rank(), torch.ones(nbytes // 4)

    def hand_on() -> None:
        if rank not in way:
            return
        here = way.index(rank)
        for piece in tensor.split(max(1, chunk // 4)):
            if here > 0:
                dist.recv(piece, way[here - 1])
            if rank != way[-1]:
                dist.send(piece, way[here + 1])

    samples = timing.time_calls(hand_on, warmup=1, iters=iters)
    return samples if rank == way[-1] else None


def by_turns(
    program: Callable[..., list[float] | None],
    way: Sequence[int],
    nbytes: int,
    chunks: Sequence[int],
    iters: int,
) -> list[list[float]]:
    """Run a program like `in_turns` with each size of chunk in turn; return samples by size."""
    samples: list[list[float]] = [[] for _ in chunks]
    program(way, nbytes, max(chunks), 1)  # opens the connections
    for _ in range(iters):
        for row, chunk in zip(samples, chunks, strict=True):
            row += program(way, nbytes, chunk, 1) or []
    return samples


def relayed(
    ways: Sequence[Sequence[int]],
    shares: Sequence[float] | None,
    nbytes: int,
    chunk: int,
    iters: int,
) -> list[float] | None:
    """Carry bytes along ways, chunk by chunk. Checks what arrives, once."""
    rank, src, dst = dist.get_rank(), ways[0][0], ways[0][-1]
    sent = torch.arange(nbytes // 4, dtype=torch.float32)
    tensor = sent.clone() if rank == src else torch.zeros_like(sent)

    def run() -> None:
        carry(tensor, ways, chunk=max(1, chunk // 4), shares=shares)

    run()
    if rank == dst and not torch.equal(tensor, sent):
        raise AssertionError(f"what arrived over {ways} is not what was sent")
    samples = timing.time_calls(run, warmup=0, iters=iters)
    return samples if rank == dst else None


def at_once(
    ways: Sequence[Sequence[int]], nbytes: int, chunk: int, iters: int
) -> list[list[float]]:
    """Start several transfers together, each over connections of its own.

    Returns:
        For each way: seconds for each repetition, on its destination; empty on other ranks.
    """
    rank, everyone = dist.get_rank(), list(range(dist.get_world_size()))
    groups = [dist.new_group(everyone) for _ in ways]
    tensors = [torch.ones(nbytes // 4) for _ in ways]
    samples: list[list[float]] = [[] for _ in ways]

    def transfer(begin: float, number: int) -> None:
        carry(tensors[number], [ways[number]], chunk=chunk // 4, group=groups[number])
        if rank == ways[number][-1]:
            samples[number].append(time.perf_counter() - begin)

    mine = [number for number, way in enumerate(ways) if rank in way]
    with ThreadPoolExecutor(len(ways)) as pool:
        for _ in range(iters + 1):
            dist.barrier()
            list(pool.map(partial(transfer, time.perf_counter()), mine))
    return [row[1:] for row in samples]
