"""Sick programs: plain torch.distributed code with one fault each, as people really write it.

What a healthy version would return stands beside each, so that wrong values are found too. Nothing
here can outlive its launch: `launch` ends what hangs.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    seen: str = ""
    """Where somebody met it."""


def uneven_batches() -> list[float]:
    """Average a loss per batch; the shards of the data set are not equally long."""
    rank = dist.get_rank()
    batches = [1.0, 2.0, 3.0] if rank != 2 else [1.0, 2.0]
    losses = []
    for batch in batches:
        loss = torch.tensor([batch])
        dist.all_reduce(loss)
        losses.append(loss.item() / WORLD_SIZE)
    return losses


def two_in_a_dict() -> list[float]:
    """Sum gradients by name; rank 1 got its names from somewhere that had another order."""
    rank = dist.get_rank()
    names = ["weight", "bias"] if rank != 1 else ["bias", "weight"]
    gradients = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    for name in names:
        dist.all_reduce(gradients[name])
    return [gradients["weight"][0].item(), gradients["bias"][0].item()]


def last_batch() -> list[float]:
    """Sum a vector with one entry per sample; rank 1's last batch is smaller."""
    x = torch.ones(1000 if dist.get_rank() != 1 else 900)
    dist.all_reduce(x)
    return [x.sum().item()]


def count_samples() -> list[float]:
    """Count samples over all ranks; rank 0 took its count from a library that gives integers."""
    samples = torch.tensor([100], dtype=torch.int32 if dist.get_rank() == 0 else torch.float32)
    dist.all_reduce(samples)
    return [samples.item()]


def pass_it_on() -> list[float]:
    """Pass a number around the ring."""
    rank = dist.get_rank()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    dist.send(mine, (rank + 1) % WORLD_SIZE)
    dist.recv(theirs, (rank - 1) % WORLD_SIZE)
    return [theirs.item()]


def checkpoint() -> list[float]:
    """Let rank 0 write a file while nobody runs ahead of it, then sum."""
    x = torch.ones(1)
    if dist.get_rank() == 0:
        time.sleep(0.01)  # writes the file
        dist.barrier()
    dist.all_reduce(x)
    return [x.item()]


def subgroup() -> list[float]:
    """Sum over ranks 0 and 1 in their own group, then over all."""
    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    x = torch.ones(1)
    if rank == 0:
        dist.all_reduce(x, group=pair)
    if rank == 1:
        dist.all_reduce(x)
    total = torch.ones(1)
    dist.all_reduce(total)
    return [x.item() if rank != 2 else 1.0, total.item()]


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


def slow_reader() -> list[float]:
    """Sum after reading the data; rank 2's disk is slow."""
    time.sleep(3.0 if dist.get_rank() == 2 else 0.01)
    x = torch.ones(1)
    dist.all_reduce(x)
    return [x.item()]


def own_clock() -> list[float]:
    """Train; save a checkpoint, all together, whenever the last one is 0.4 seconds old."""
    time.sleep(0.3 if dist.get_rank() == 1 else 0.0)  # reads its data
    saved, seen = time.monotonic(), []
    for _ in range(10):
        time.sleep(0.05)  # trains
        x = torch.ones(1)
        dist.all_reduce(x)
        seen.append(x.item())
        if time.monotonic() - saved > 0.4:
            dist.barrier()  # everybody writes its part
            saved = time.monotonic()
    return seen


def save_and_load() -> list[float]:
    """Let rank 0 write a checkpoint that all ranks then load; 0 where they find none."""
    path = Path(tempfile.gettempdir(), f"checkpoint-{os.environ['MASTER_PORT']}")
    if dist.get_rank() == 0:
        path.unlink(missing_ok=True)
        dist.barrier()  # nobody runs ahead
        time.sleep(0.1)
        path.write_text("1.0")
    dist.barrier()
    loaded = float(path.read_text()) if path.exists() else 0.0
    dist.barrier()
    return [loaded]


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
    "uneven batches": Patient(uneven_batches, lambda rank: [1.0, 2.0, 3.0]),
    "two in a dict": Patient(two_in_a_dict, lambda rank: [3.0, 30.0]),
    "last batch": Patient(last_batch, lambda rank: [2900.0]),
    "count samples": Patient(count_samples, lambda rank: [300.0]),
    "pass it on": Patient(pass_it_on, lambda rank: [float((rank - 1) % WORLD_SIZE)]),
    "checkpoint": Patient(checkpoint, lambda rank: [3.0]),
    "subgroup": Patient(subgroup, lambda rank: [2.0 if rank != 2 else 1.0, 3.0]),
    "best effort": Patient(best_effort, lambda rank: [3.0, 6.0, 9.0]),
    "double buffer": Patient(
        double_buffer, lambda rank: [float(n) for n in range(10)] if rank == 1 else []
    ),
    "slow reader": Patient(slow_reader, lambda rank: [3.0]),
    "own clock": Patient(
        own_clock,
        lambda rank: [3.0] * 10,
        seen="https://github.com/speechbrain/speechbrain/issues/1166",
    ),
    "save and load": Patient(
        save_and_load,
        lambda rank: [1.0],
        seen="https://github.com/alan-turing-institute/autocast/pull/386",
    ),
    "4097 items": Patient(
        items_4097,
        lambda rank: [1024.0] * 4 + [1.0],
        world_size=4,
        seen="https://github.com/pytorch/pytorch/issues/33148",
    ),
}
