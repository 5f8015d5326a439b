"""What the ranks of exercise 4.2's check do. Imports little: every rank pays for it."""

from __future__ import annotations

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.measure import timing, wire


def values(relay, length: int, chunk: int, way: list[int]):
    """Relay; return this rank's tensor as it is after and was before."""
    rank = dist.get_rank()
    tensor = checking.rank_data(length, rank=rank)
    before = tensor.clone()
    relay(tensor, way, chunk)  # no barrier after it: torch's checks count sends per rank
    return tensor, before


def bytes_sent(relay, nbytes: int, chunk: int):
    """Relay twice from rank 0 over 1 to 2; return the wire meter's report of the second time."""
    tensor = torch.ones(nbytes // 4)
    relay(tensor, [0, 1, 2], chunk)
    with wire.meter() as meter:
        relay(tensor, [0, 1, 2], chunk)
    return meter.report


def times(relay, way: list[int], nbytes: int, chunk: int, iters: int) -> list[float]:
    """Relay over and over; return the seconds of each time."""
    tensor = torch.ones(nbytes // 4)
    return timing.time_calls(lambda: relay(tensor, way, chunk), warmup=1, iters=iters)
