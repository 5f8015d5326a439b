"""Six jobs of exercise 5b.7, whose case files the learner reads without having met the programs.

`python -m course.lessons.hang_clinic.unseen` runs each of them under `launch`, once or twice with
another limit, and keeps what `launch` says in `unseen.json`. Frames of PyTorch are left out, and
file and function have another name, which tells nothing.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from course.place import launch
from labkit.ranks.errors import LaunchTimeout

KEPT = Path(__file__).with_name("unseen.json")


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
    says: str  # what its owner says that it does
    looks: tuple[float, ...]  # after how many seconds it was looked at, started anew each time


JOBS = {
    "A": Job(log_from_rank_0, 3, "trains, and prints the accuracy after every fourth step", (2.0,)),
    "B": Job(save_on_rank_1, 3, "trains, and writes a checkpoint now and then", (2.5, 4.4)),
    "C": Job(four_stages, 4, "four stages, one a rank: each hands its output to the next", (2.0,)),
    "D": Job(stop_early, 3, "trains on each rank's data until the loss gets no better", (2.0, 4.0)),
    "E": Job(many_steps, 3, "trains for 100,000 steps", (2.0, 4.0)),
    "F": Job(two_pairs, 4, "rank 0 sums with 1, and 2 with 3, three times", (2.0,)),
}
"""By letter."""


MENDS = {
    "all call": "every rank makes the call; what follows may depend on the rank",
    "decide together": "one rank decides, or all by a sum, and all are told",
    "other peer": "the call names another rank",
    "same group": "the call is made in the group in which its partners make theirs",
    "same order": "all ranks make the same calls in one order",
    "zeros": "a rank that has no data left goes on, and adds zeros",
    "less work": "nothing hangs: one rank has too much to do beside the calls",
    "nothing": "nothing hangs, and all ranks get on alike: wait longer",
}
"""What can be done about a job of exercise 5b.7."""


class Truth(NamedTuple):
    """What is right of a job, and what else is answered -> what to look at."""

    rank: int | None
    call: str
    mend: str
    ranks: dict[str, str]
    calls: dict[str, str]
    mends: dict[str, str]


def truths() -> dict[str, Truth]:
    """Return what is right of each job of exercise 5b.7, by letter."""
    text = Path(__file__).with_name("unseen_truth.json").read_text(encoding="utf-8")
    return {letter: Truth(**fields) for letter, fields in json.loads(text).items()}


def show(letter: str) -> None:
    """Print what is known of a job: what it does, and the kept case files."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    print(f"Job {letter}: {JOBS[letter].says}.\n\n" + "\n\n".join(kept[letter]))


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
