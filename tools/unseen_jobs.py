"""The jobs of exercise 5b.7: run each of them, and keep what `launch` says.

    python -m tools.unseen_jobs

writes `unseen.json` in the lesson's folder: each job runs once, or twice with another limit. Frames
of PyTorch are left out, and file and function have another name, which tells nothing. The programs
stand on the lines that the kept case files name.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist

from course.lessons.hang_clinic.unseen import KEPT
from course.place import launch
from labkit.ranks.errors import LaunchTimeout


def step(loss: float = 1.0) -> float:
    """Do what every step does: compute, then sum."""
    total = torch.tensor([loss])
    time.sleep(0.01)
    dist.all_reduce(total)
    return total.item()


def log_from_rank_0() -> None:
    """Make a call that stands under a question about the rank."""
    for number in range(8):
        step()
        if number % 4 == 3 and dist.get_rank() == 0:
            accuracy = torch.ones(1)
            dist.reduce(accuracy, 0)
            print(f"accuracy {accuracy.item()}")
        dist.barrier()


def stop_early() -> None:
    """Stop by a loss that is each rank's own."""
    best, loss = 9.0, 8.0
    for _ in range(12):
        step()
        loss -= 1.0 if dist.get_rank() != 2 else 0.25
        if loss > 0.9 * best:
            return  # no better: stop
        best = loss


def four_stages() -> None:
    """Receive from the stage before, but for one that names another."""
    rank, x = dist.get_rank(), torch.zeros(4)
    before = {1: 0, 2: 0, 3: 2}
    if rank > 0:
        dist.recv(x, before[rank])
    if rank < 3:
        dist.send(x, rank + 1)


def two_pairs() -> None:
    """Sum in pairs; one rank makes its third call in the default group."""
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[rank // 2]
    groups = [mine, mine, None if rank == 3 else mine]
    for group in groups:
        part = torch.ones(1)
        dist.all_reduce(part, group=group)


def save_on_rank_1() -> None:
    """Train; rank 1 writes for 0.9 s after every second step."""
    for number in range(200):
        step()
        if dist.get_rank() == 1 and number % 2 == 1:
            write_checkpoint()


def write_checkpoint() -> None:
    """Take as long as a slow disk."""
    time.sleep(0.9)


def many_steps() -> None:
    """Train for 100,000 steps, which takes long; nothing is wrong."""
    for _ in range(100_000):
        step()


class Job(NamedTuple):
    """A job that is looked at."""

    program: Callable[[], None]
    ranks: int
    looks: tuple[float, ...]  # after how many seconds it was looked at, started anew each time


JOBS = {
    "A": Job(log_from_rank_0, 3, (2.0,)),
    "B": Job(save_on_rank_1, 3, (2.5, 4.4)),
    "C": Job(four_stages, 4, (2.0,)),
    "D": Job(stop_early, 3, (2.0, 4.0)),
    "E": Job(many_steps, 3, (2.0, 4.0)),
    "F": Job(two_pairs, 4, (2.0,)),
}
"""By letter."""


def record_of(letter: str) -> Iterator[str]:
    """Run a job, once for each look at it, and yield its case files."""
    job = JOBS[letter]
    for limit in job.looks:
        try:
            launch(job.program, world_size=job.ranks, timeout=limit)
        except LaunchTimeout as hang:
            text = re.sub(r'    File "[^"]+/torch/.+\n.+\n', "", str(hang))
            text = re.sub(r'File "[^"]+"', 'File "train.py"', text)
            yield text.replace(f"in {job.program.__name__}\n", "in train\n")


if __name__ == "__main__":
    seen = {letter: [*record_of(letter)] for letter in JOBS}
    KEPT.write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
