"""Sick programs: plain torch.distributed code with one fault each, as people really write it.

What a healthy version would return stands beside each, so that wrong values are found too. Nothing
here can outlive its launch: `launch` ends what hangs. Patients have numbers: what a patient is
`known_as` would give its fault away, and is told when it has been diagnosed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Patient:
    """A sick program and what a healthy one returns."""

    program: Callable[[], list[float]]
    healthy: Callable[[int, int], list[float]]
    """(rank, world_size) -> what the program should return there."""
    known_as: str  # its name, for whoever knows the cause
    world_size: int = 3


def sum_gradients() -> list[float]:
    """Sum gradients by name: the weight's are ones, the bias's are tens."""
    rank = dist.get_rank()
    names = ["weight", "bias"] if rank != 1 else ["bias", "weight"]
    gradients = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    for name in names:
        dist.all_reduce(gradients[name])
    return [gradients["weight"][0].item(), gradients["bias"][0].item()]


def pass_on() -> list[float]:
    """Pass a number around the ring."""
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    dist.send(mine, (rank + 1) % world_size)
    dist.recv(theirs, (rank - 1) % world_size)
    return [theirs.item()]


def sum_statistics() -> list[float]:
    """Sum a statistic per batch; a rank whose sample is bad adds nothing to that batch."""
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


def send_ten() -> list[float]:
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


def train_and_save() -> list[float]:
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


def count_items() -> list[float]:
    """Count 4097 items in batches of 256, each rank its share, then meet at the epoch's end."""
    items = range(dist.get_rank(), 4097, dist.get_world_size())
    counts = []
    for start in range(0, len(items), 256):
        count = torch.tensor([float(len(items[start : start + 256]))])
        dist.all_reduce(count)
        counts.append(count.item())
    dist.barrier()
    return counts


def _counts(world_size: int) -> list[float]:
    """Return how many items are in each batch, all ranks together."""
    shares = [range(rank, 4097, world_size) for rank in range(world_size)]
    starts = range(0, len(shares[0]), 256)
    return [float(sum(len(share[start : start + 256]) for share in shares)) for start in starts]


PATIENTS = {
    1: Patient(sum_gradients, lambda rank, n: [1.0 * n, 10.0 * n], "two in a dict"),
    2: Patient(pass_on, lambda rank, n: [float((rank - 1) % n)], "pass it on"),
    3: Patient(sum_statistics, lambda rank, n: [n - 1.0, 2.0 * n, 3.0 * n], "best effort"),
    4: Patient(
        send_ten, lambda rank, n: [float(k) for k in range(10)] if rank == 1 else [],
        "double buffer",
    ),
    5: Patient(train_and_save, lambda rank, n: [float(n)] * 10, "own clock"),
    6: Patient(count_items, lambda rank, n: _counts(n), "4097 items", world_size=4),
}  # fmt: skip
"""By number."""


def patient(number: int) -> Patient:
    """Return the patient of this number; a `ValueError` lists those that there are."""
    if number not in PATIENTS:
        raise ValueError(f"no patient {number!r}; there are: {', '.join(map(str, PATIENTS))}.")
    return PATIENTS[number]
