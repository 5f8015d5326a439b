"""What the ranks of lesson 4 do. Imports little: every rank of every launch pays for it."""

import threading
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from labkit.lessons.p2p_topology.relay import carry
from labkit.measure import timing


def copies(src: int, dsts: Sequence[int], nbytes: int, iters: int) -> list[float] | None:
    """Send the same bytes to several ranks at once; runs on every rank.

    Returns:
        On a destination: the seconds until it had everything, for each repetition. Else None.
    """
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


def relayed(
    ways: Sequence[Sequence[int]],
    shares: Sequence[float] | None,
    nbytes: int,
    chunk: int,
    iters: int,
) -> list[float] | None:
    """Carry bytes along ways, chunk by chunk; runs on every rank. Checks what arrives, once.

    Returns:
        On the destination: seconds for each repetition. Else None.
    """
    rank, src, dst = dist.get_rank(), ways[0][0], ways[0][-1]
    sent = torch.arange(nbytes // 4, dtype=torch.float32)
    tensor = sent.clone() if rank == src else torch.zeros_like(sent)
    carry(tensor, ways, chunk=max(1, chunk // 4), shares=shares)
    if rank == dst and not torch.equal(tensor, sent):
        raise AssertionError(f"what arrived over {ways} is not what was sent")
    samples = timing.time_calls(
        lambda: carry(tensor, ways, chunk=max(1, chunk // 4), shares=shares), warmup=0, iters=iters
    )
    return samples if rank == dst else None


def at_once(
    ways: Sequence[Sequence[int]], nbytes: int, chunk: int, iters: int
) -> list[list[float]]:
    """Start several transfers together, each over connections of its own; runs on every rank.

    Returns:
        For each way: seconds for each repetition, on its destination; empty on other ranks.
    """
    rank, everyone = dist.get_rank(), list(range(dist.get_world_size()))
    groups = [dist.new_group(everyone) for _ in ways]
    tensors = [torch.ones(nbytes // 4) for _ in ways]
    samples: list[list[float]] = [[] for _ in ways]

    def transfer(number: int, begin: float) -> None:
        carry(tensors[number], [ways[number]], chunk=chunk // 4, group=groups[number])
        if rank == ways[number][-1]:
            samples[number].append(time.perf_counter() - begin)

    mine = [number for number, way in enumerate(ways) if rank in way]
    for _ in range(iters + 1):
        dist.barrier()
        begin = time.perf_counter()
        threads = [threading.Thread(target=transfer, args=(number, begin)) for number in mine]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [row[1:] for row in samples]


def in_turns(way: Sequence[int], nbytes: int, chunk: int, iters: int) -> list[float] | None:
    """Hand chunks along a way with plain send and recv; runs on every rank.

    Returns:
        On the destination: seconds for each repetition. Else None.
    """
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
