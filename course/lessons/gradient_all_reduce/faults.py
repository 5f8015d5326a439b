"""One rank of a job is late, and nobody says which one, or why.

A `Fault` is drawn at random and handed to every rank; one of them it strikes. All four causes are
real: nothing pretends to be slow but the storage, which sleeps.
"""

import gc
import os
import random
import subprocess
import sys
import time

import torch.distributed as dist
from torch import nn

CAUSES = {
    "slow input": "its storage takes 0.2 s longer for every batch",
    "slow compute": "it computes for 0.2 s more in every forward, as a throttled processor would",
    "garbage collection": "every third forward Python collects a heap of a million objects",
    "a neighbour on its CPU": "five other processes want the CPU to which the rank is bound",
}
SECONDS = 0.2
"""How much a slow rank is late per step, as far as that can be said beforehand."""
_NEIGHBOUR = (
    "import os, time; parent, end = os.getppid(), time.time() + 60\n"
    "while os.getppid() == parent and time.time() < end: sum(range(10_000))"
)
"""Keeps a CPU busy, and ends with the process that started it."""


class Fault:
    """A secret: which rank of `world_size` is late, and why: at random, unless given."""

    def __init__(self, world_size: int, *, rank: int | None = None, cause: str | None = None):
        can_bind = hasattr(os, "sched_setaffinity")
        possible = [name for name in CAUSES if "CPU" not in name or can_bind]
        self._rank = random.randrange(world_size) if rank is None else rank
        self._cause = random.choice(possible) if cause is None else cause

    def __repr__(self) -> str:
        return "a fault on one rank; .reveal() tells which, and what"

    def strike(self, storage: object, model: nn.Module) -> None:
        """Let it happen to a rank's storage (its `delay`) or model; every rank calls this once."""
        if dist.get_rank() != self._rank:
            return
        if self._cause == "slow input":
            storage.delay += SECONDS
        elif self._cause == "slow compute":
            model.register_forward_pre_hook(lambda *_: _compute(SECONDS))
        elif self._cause == "garbage collection":
            model.heap, model.forwards = [[place] for place in range(1_000_000)], 0
            model.register_forward_pre_hook(_collect_every_third_time)
        else:
            _invite_neighbours(5)

    def is_on(self, rank: int) -> bool:
        """Say whether it is this rank."""
        return rank == self._rank

    def reveal(self, rank: int | None = None, cause: str | None = None) -> str:
        """Say what it was, and whether a guess was right."""
        truth = f"It was rank {self._rank}, {self._cause}: {CAUSES[self._cause]}."
        if rank is None or cause is None:
            return truth
        hits = {"the rank": rank == self._rank, "the cause": cause == self._cause}
        said = ", ".join(f"{what} {'right' if hit else 'wrong'}" for what, hit in hits.items())
        return f"{truth} You had {said}."


def _compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def _collect_every_third_time(model: nn.Module, _: object) -> None:
    model.forwards += 1
    if model.forwards % 3 == 0:
        until = time.thread_time() + 2 * SECONDS
        while time.thread_time() < until:
            gc.collect()


def _invite_neighbours(count: int) -> None:
    """Bind this thread, not those of the network, to one CPU, and start programs that want it."""
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    for _ in range(count):
        subprocess.Popen([sys.executable, "-S", "-E", "-c", _NEIGHBOUR])
