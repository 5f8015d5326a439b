"""What programs on ranks share: data whose sum is known, marks in time, turns, memory, a ping-pong.

The data are whole numbers that differ by rank and by place, so that a float sum is exact and a
wrong chunk, a rank counted twice or a result in the wrong place cannot go unnoticed. The expected
sum is computed without communication.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from labkit.measure import timing
from labkit.ranks import torchrun
from labkit.ranks.devices import device

# torch 2.13 renamed these two and warns of the old names; labkit and the lessons call these.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def pattern(rank: int, numel: int) -> torch.Tensor:
    """Return rank-dependent whole numbers from -499 to 499, whose sums float32 holds exactly."""
    place = torch.arange(numel, dtype=torch.int64)
    return ((place * 7919 + (rank + 1) * (place % 97 + 13) * 31) % 999 - 499).float()


def total(n: int, numel: int) -> torch.Tensor:
    """Return the sum of all ranks' patterns, added up here and now."""
    return torch.stack([pattern(rank, numel) for rank in range(n)]).sum(0)


class CpuEvent:
    """A mark in time where there is no CUDA event: Python's clock, when it is recorded."""

    def record(self) -> None:
        """Note the time."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, later: "CpuEvent") -> float:
        """Return the ms from this mark to a later one."""
        return 1e3 * (later.seconds - self.seconds)


def event() -> Any:
    """Make a mark for this rank's device, as ``torch.cuda.Event(enable_timing=True)`` is one."""
    return torch.cuda.Event(enable_timing=True) if device().type == "cuda" else CpuEvent()


def synchronize() -> None:
    """Wait for this rank's GPU, where it has one."""
    if device().type == "cuda":
        torch.cuda.synchronize()


def free_bytes() -> float:
    """Return how many bytes of its GPU this rank may count on; who shares it gets a share.

    All ranks call it together.
    """
    dist.all_reduce(torch.ones(1, device=device()))  # CUDA and NCCL take theirs first
    synchronize()
    rank, everybody = dist.get_rank(), range(dist.get_world_size())
    neighbours = next((node for node in torchrun.nodes() if rank in node), everybody)
    return torch.cuda.mem_get_info()[0] / math.ceil(len(neighbours) / torch.cuda.device_count())


def take_turns(calls: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Time each call once a round, on every rank, so that a disturbance meets all; by call."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for mine, call in zip(samples, calls, strict=True):
            mine += timing.time_calls(call, warmup=0, iters=1)
    return samples


def shared_memory(
    shape: Sequence[int], *, pipes: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, list[int]]:
    """Map float32 memory that all ranks of a group see, and open pipes; all of them call it.

    Whoever has read a byte from a pipe sees what was written into the memory before that byte: no
    spinning, no memory fences of our own.
    """
    with tempfile.TemporaryDirectory() as own:
        folders = [own]
        dist.broadcast_object_list(folders, group_src=0, group=group)
        names = [f"{folders[0]}/{number}" for number in range(pipes)]
        if dist.get_rank(group) == 0:
            for name in names:
                os.mkfifo(name)
        dist.barrier(group=group)
        memory = torch.from_file(f"{folders[0]}/memory", shared=True, size=math.prod(shape))
        ends = [os.open(name, os.O_RDWR) for name in names]
        dist.barrier(group=group)  # all have opened everything: the names may go
    return memory.view(shape), ends


def ping_pong(nbytes: int, *, iters: int = 24) -> list[float]:
    """Send a tensor to and fro between ranks 0 and 1; runs on every rank, further ones look on.

    Returns:
        Seconds *one way*, half of each round trip. Rank 0's are the ones to use: the others cannot
        know when it sent.
    """
    rank, ball = dist.get_rank(), torch.zeros(nbytes, dtype=torch.uint8, device=device())

    def round_trip() -> None:
        if rank == 0:
            dist.send(ball, dst=1)
            dist.recv(ball, src=1)
        elif rank == 1:
            dist.recv(ball, src=0)
            dist.send(ball, dst=0)

    return [t / 2 for t in timing.time_calls(round_trip, warmup=3, iters=iters)]
