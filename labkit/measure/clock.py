"""One clock for all ranks, and how far it can be trusted.

Ranks under one Linux kernel share it already: ``time.perf_counter`` reads CLOCK_MONOTONIC, which
is one clock for all CPUs and for all processes of a time namespace. Ranks under different kernels
do not, and there the offset is estimated as NTP does it: rank 0 sends its time, the other answers
with its own, and the answer lies somewhere inside the round trip.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Clock:
    """How to read this rank's ``time.perf_counter()`` on rank 0's clock."""

    offset: float
    """Seconds to add to this rank's reading."""
    error: float
    """The true offset lies within plus or minus this many seconds."""
    source: str
    """``"one kernel"`` or ``"round trips"``."""

    def now(self) -> float:
        """Return the present time in seconds on rank 0's clock."""
        return time.perf_counter() + self.offset


def agree(*, group=None, rounds: int = 20, trust_kernel: bool = True) -> Clock:
    """Agree on rank 0's clock. A collective: every rank of ``group`` calls it.

    Args:
        group: the process group; None is the default group.
        rounds: round trips per rank where clocks differ; the fastest one counts.
        trust_kernel: use the kernel's clock as it is where all ranks share it. False measures
            round trips in any case, which shows how good that estimate is.

    Returns:
        This rank's clock. Under one kernel its error is the timer's resolution; over a network
        it is half of the fastest round trip (D. Mills, RFC 5905, section 8).
    """
    identities = [None] * dist.get_world_size(group)
    dist.all_gather_object(identities, _kernel_identity(), group=group)
    if trust_kernel and identities[0] is not None and len(set(identities)) == 1:
        return Clock(0.0, time.get_clock_info("perf_counter").resolution, "one kernel")
    return _by_round_trips(group, rounds)


def _kernel_identity() -> str | None:
    """Name the clock that this process reads; None where it cannot be named (not Linux)."""
    boot, offsets = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/timens_offsets")
    try:
        return boot.read_text() + (offsets.read_text() if offsets.exists() else "")
    except OSError:
        return None


def _by_round_trips(group, rounds: int) -> Clock:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    stamp = torch.zeros(2, dtype=torch.float64, device=device)
    clock = Clock(0.0, 0.0, "round trips")
    for other in range(1, world_size):  # one pair at a time: the others must not disturb it
        if rank == 0:
            _answer(other, group, rounds, stamp)
        elif rank == other:
            clock = _ask(group, rounds, stamp)
        dist.barrier(group)
    return clock


def _ask(group, rounds: int, stamp: torch.Tensor) -> Clock:
    best = None
    for _ in range(rounds + 1):  # the first round trip opens the connection
        begin = time.perf_counter()
        dist.send(stamp, group=group, group_dst=0)
        dist.recv(stamp, group=group, group_src=0)
        end = time.perf_counter()
        theirs = float(stamp[0])
        trip = Clock(theirs - (begin + end) / 2, (end - begin) / 2, "round trips")
        best = trip if best is None or trip.error < best.error else best
    return best


def _answer(other: int, group, rounds: int, stamp: torch.Tensor) -> None:
    for _ in range(rounds + 1):
        dist.recv(stamp, group=group, group_src=other)
        stamp[0] = time.perf_counter()
        dist.send(stamp, group=group, group_dst=other)
