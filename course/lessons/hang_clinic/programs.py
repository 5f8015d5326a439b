"""Sick programs: plain torch.distributed code with one fault each, as people really write it.

What a healthy version would return stands beside each, so that wrong values are found too. Nothing
here can outlive its launch: `launch` ends what hangs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

WORLD_SIZE = 3


@dataclass(frozen=True, slots=True)
class Patient:
    """A sick program and what a healthy one returns."""

    program: Callable[[], list[float]]
    healthy: Callable[[int], list[float]]
    """rank -> what the program should return there."""
    world_size: int = WORLD_SIZE


def two_in_a_dict() -> list[float]:
    """Sum gradients by name: the weight's are ones, the bias's are tens."""
    rank = dist.get_rank()
    names = ["weight", "bias"] if rank != 1 else ["bias", "weight"]
    gradients = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    for name in names:
        dist.all_reduce(gradients[name])
    return [gradients["weight"][0].item(), gradients["bias"][0].item()]


def pass_it_on() -> list[float]:
    """Pass a number around the ring."""
    rank = dist.get_rank()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    dist.send(mine, (rank + 1) % WORLD_SIZE)
    dist.recv(theirs, (rank - 1) % WORLD_SIZE)
    return [theirs.item()]


def best_effort() -> list[float]:
    """Sum a statistic per batch; a bad sample must not stop the training."""
    totals = []
    for batch in range(3):
        try:
            if dist.get_rank() == 1 and batch == 0:
                raise ValueError("bad sample")
            x = torch.tensor([float(batch + 1)])
            dist.all_reduce(x)
            totals.append(x.item())
        except ValueError:
            pass
    return totals


def double_buffer() -> list[float]:
    """Send ten numbers from rank 0 to rank 1, preparing the next while the last one travels."""
    rank, got = dist.get_rank(), []
    box = torch.zeros(1)
    if rank == 0:
        works = []
        for number in range(10):
            box.fill_(number)
            works.append(dist.isend(box, 1))
        for work in works:
            work.wait()
    if rank == 1:
        time.sleep(0.05)  # busy with something else
        for _ in range(10):
            dist.recv(box, 0)
            got.append(box.item())
    return got


def own_clock() -> list[float]:
    """Train; save a checkpoint, all together, whenever the last one is 0.4 seconds old."""
    time.sleep(0.25 if dist.get_rank() == 1 else 0.0)  # reads its data
    saved, seen = time.monotonic(), []
    for _ in range(10):
        time.sleep(0.1)  # trains
        x = torch.ones(1)
        dist.all_reduce(x)
        seen.append(x.item())
        if time.monotonic() - saved > 0.4:
            dist.barrier()  # everybody writes its part
            saved = time.monotonic()
    return seen


def items_4097() -> list[float]:
    """Count 4097 items in batches of 256, each rank its share, then meet at the epoch's end."""
    items = range(dist.get_rank(), 4097, dist.get_world_size())
    counts = []
    for start in range(0, len(items), 256):
        count = torch.tensor([float(len(items[start : start + 256]))])
        dist.all_reduce(count)
        counts.append(count.item())
    dist.barrier()
    return counts


PATIENTS = {
    "two in a dict": Patient(two_in_a_dict, lambda rank: [3.0, 30.0]),
    "pass it on": Patient(pass_it_on, lambda rank: [float((rank - 1) % WORLD_SIZE)]),
    "best effort": Patient(best_effort, lambda rank: [3.0, 6.0, 9.0]),
    "double buffer": Patient(
        double_buffer, lambda rank: [float(n) for n in range(10)] if rank == 1 else []
    ),
    "own clock": Patient(own_clock, lambda rank: [3.0] * 10),
    "4097 items": Patient(items_4097, lambda rank: [1024.0] * 4 + [1.0], world_size=4),
}
