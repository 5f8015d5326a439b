"""One source, two destinations: the thread's 97 ms against 75 ms, on shaped links.

Without peer access, a copy from GPU to GPU goes through the host's memory: first down from the
source (leg 1), then up to the destination (leg 2). Here the GPUs are hosts with slow network cards
and the host's memory is a host with a fast one; rank 1 is that memory and drives the copies, as
the streams of the thread's program do.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist

from labkit.comm.sharing import Job, Span, play

__all__ = ["MODES", "Copies", "model", "relay"]

SOURCE, MEMORY, DESTINATIONS = 0, 1, (2, 3)
DONE = 1000  # a tag that no copy has
MODES = {
    "interleaved": "one stream: each copy starts when the one before has ended",
    "overlapped": "a stream per destination: the first legs share the source's link",
    "in turn": "a stream per destination, and one first leg at a time",
}


@dataclass(frozen=True, slots=True)
class Copies:
    """What is copied."""

    mode: str
    """One of MODES."""
    each: int = 5
    """Copies per destination."""
    nbytes: int = 2 << 20
    """Bytes of a copy."""


def relay(copies: Copies) -> tuple[float, list[tuple[int, int, int, float, float]]]:
    """Run the copies on 4 ranks; return this rank's seconds and, on rank 1, each leg's times.

    A leg is (destination, number, leg 1 or 2, begin, end), in seconds from the start.
    """
    rank = dist.get_rank()
    block = torch.ones(copies.nbytes // 4)
    # A group per destination has its own connections: so two copies share a link, not a queue.
    streams = {dst: dist.new_group([SOURCE, MEMORY, dst]) for dst in DESTINATIONS}
    dist.barrier()
    begin = time.perf_counter()
    legs = []
    if rank == MEMORY:
        legs = _drive(copies, streams, begin)
    elif rank == SOURCE:  # nothing moves before rank 1 posts the receive
        works = [
            dist.isend(block, MEMORY, group=streams[dst], tag=k)
            for k in range(copies.each)
            for dst in DESTINATIONS
        ]
        for work in works:
            work.wait()
    else:
        for k in range(copies.each):
            dist.recv(block, MEMORY, group=streams[rank], tag=k)
            dist.send(block[:1], MEMORY, group=streams[rank], tag=DONE)
    dist.barrier()
    return time.perf_counter() - begin, legs


def _drive(copies: Copies, streams: dict, start: float) -> list[tuple[int, int, int, float, float]]:
    turn = threading.Lock() if copies.mode == "in turn" else nullcontext()
    legs = []

    def copy(dst: int, k: int) -> None:
        buffer, group = torch.empty(copies.nbytes // 4), streams[dst]
        with turn:
            began = time.perf_counter()
            dist.recv(buffer, SOURCE, group=group, tag=k)
            legs.append((dst, k, 1, began - start, time.perf_counter() - start))
        began = time.perf_counter()
        dist.send(buffer, dst, group=group, tag=k)
        dist.recv(buffer[:1], dst, group=group, tag=DONE)  # a send ends when the kernel has it
        legs.append((dst, k, 2, began - start, time.perf_counter() - start))

    def stream(dst: int) -> None:
        for k in range(copies.each):
            copy(dst, k)

    if copies.mode == "interleaved":
        for k in range(copies.each):
            for dst in DESTINATIONS:
                copy(dst, k)
    else:
        with ThreadPoolExecutor(len(DESTINATIONS)) as workers:
            list(workers.map(stream, DESTINATIONS))
    return legs


def model(copies: Copies, *, seconds: float) -> dict[tuple[int, int, int], Span]:
    """Play the copies as jobs on links; a leg alone takes `seconds`.

    Returns:
        When each (destination, number, leg) ran.
    """
    jobs, after = {}, {}
    order = [(dst, k) for k in range(copies.each) for dst in DESTINATIONS]
    for place, (dst, k) in enumerate(order):
        source, up = (dst, k, 1), (dst, k, 2)
        in_turn = "source" if copies.mode == "in turn" else None
        jobs[source] = Job(nbytes=seconds, links=("source",), queue=in_turn)
        jobs[up] = Job(nbytes=seconds, links=(("to", dst),))
        after[up] = [source]
        before = order[place - 1] if copies.mode == "interleaved" else (dst, k - 1)
        after[source] = [(*before, 2)] if place and before[1] >= 0 else []
    rates = dict.fromkeys(["source", *(("to", dst) for dst in DESTINATIONS)], 1.0)
    return play(jobs, after=after, rates=rates)
