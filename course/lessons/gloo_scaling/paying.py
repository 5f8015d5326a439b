"""Three programs for three ranks: exercise 1.6 measures who pays for which of them.

Fleets are programs that sleep by a script: there it is known who pays.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
import torch.distributed as dist

from labkit.measure import timing


def whole() -> None:
    """Sum one tensor of 256 KiB on all ranks."""
    dist.all_reduce(torch.zeros(2**16))


def pieces() -> None:
    """Sum 16 tensors of 400 bytes on all ranks, one after the other."""
    for _ in range(16):
        dist.all_reduce(torch.zeros(100))


def errand() -> None:
    """Pass one number from rank 0 to rank 1 and back, 50 times; the other ranks do nothing."""
    rank, number = dist.get_rank(), torch.zeros(1)
    for _ in range(50 if rank < 2 else 0):
        for src in (0, 1):
            if rank == src:
                dist.send(number, 1 - src)
            else:
                dist.recv(number, 1 - rank)


PROGRAMS = {"whole": whole, "pieces": pieces, "errand": errand}
NBYTES = {"whole": 350_000, "pieces": 8_500, "errand": 200}
"""What a rank sends: an all_reduce of S bytes among three sends 4/3 S."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Programs by name: bytes that a rank sends, ms that each of three ranks is busy, who pays."""

    name: str
    nbytes: dict[str, int]
    busy: dict[str, tuple[int, int, int]]
    pays: dict[str, list[int]]
    meets: bool = False  # whether each begins with an all_reduce, and so waits for a late rank


FLEETS = (
    Fleet(
        "one rank pays",
        {"thin": 4_000, "fat": 4_000_000, "thinner": 1_000},
        {"thin": (7, 7, 45), "fat": (15, 15, 15), "thinner": (2, 2, 2)},
        {"thin": [2]},
    ),
    Fleet(
        "a rank is late for the next run",
        {"fat": 4_000_000, "thin": 4_000},
        {"fat": (10, 10, 10), "thin": (35, 1, 1)},
        {"thin": [0]},
        meets=True,
    ),
    Fleet(
        "fewer bytes, less time",
        {"thinner": 1_000, "thin": 4_000, "fat": 4_000_000},
        {"thinner": (2, 2, 2), "thin": (12, 12, 12), "fat": (36, 36, 36)},
        {},
    ),
)


def ask(who_pays: Callable[..., object], fleet: Fleet | None) -> object:
    """Return what an answer says of a fleet, or, without one, of the exercise's own programs."""
    if fleet is None:
        return who_pays(dict(PROGRAMS), dict(NBYTES))

    def program(ms: int) -> None:
        if fleet.meets:
            dist.all_reduce(torch.ones(10, 10))
        time.sleep(ms / 1e3)

    ms = {name: busy[dist.get_rank()] for name, busy in fleet.busy.items()}
    programs = {name: partial(program, ms[name]) for name in fleet.nbytes}
    return who_pays(programs, dict(fleet.nbytes))


def measure() -> dict[str, list[float]]:
    """Return this rank's seconds of each program, in three rounds."""
    rounds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for program in PROGRAMS.values():
        program()
    for _, (name, program) in product(range(3), PROGRAMS.items()):
        rounds[name].append(timing.time_calls(program, warmup=0, iters=1)[0])
    return rounds
