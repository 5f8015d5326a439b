"""The cases' programs, each with its fault inside, and what a fix replaces.

Every program takes a `Watch`, tells it its phases, and returns what must stay the same when the
fault is mended. Where a rank of the real job computes on a GPU of its own, it sleeps here: ranks
of a lesson share a few CPUs. The fault itself never sleeps.
"""

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.casebook.observe import Watch

# --- connections, one after the other

HANDSHAKE = 0.01
"""Seconds that two ranks need to set up a connection, once both are at it."""


def connect(peer: int) -> None:
    """Set up the connection to a peer: a rendezvous, so both must be here at the same time."""
    token = torch.ones(1)
    if dist.get_rank() < peer:
        dist.send(token, peer)
        dist.recv(token, peer)
    else:
        dist.recv(token, peer)
        dist.send(token, peer)
    time.sleep(HANDSHAKE)


def by_rank(peers: list[int]) -> list[int]:
    """Order the peers to connect to."""
    return sorted(peers)


def by_xor(peers: list[int]) -> list[int]:
    """Order them by XOR distance: both ends agree, and pairs do not queue behind each other."""
    me = dist.get_rank()
    return sorted(peers, key=lambda peer: me ^ peer)


def connections(watch: Watch, order: Callable) -> float:
    """Connect to both neighbours of a ring at first use, then sum once."""
    rank, n = dist.get_rank(), dist.get_world_size()
    for peer in order([(rank - 1) % n, (rank + 1) % n]):
        with watch.phase("connect"):
            connect(peer)
    total = torch.tensor(float(rank))
    with watch.phase("all_reduce"):
        dist.all_reduce(total)
    return total.item()


# --- averaging metrics


def gather(metrics: dict[str, float]) -> dict[str, float]:
    """Average each metric over the ranks."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, metrics)
    return {name: sum(one[name] for one in gathered) / len(gathered) for name in metrics}


def reduce_tensor(metrics: dict[str, float]) -> dict[str, float]:
    """Average them as one tensor of fixed layout: the names stay at home."""
    names = sorted(metrics)
    values = torch.tensor([metrics[name] for name in names], dtype=torch.float64)
    dist.all_reduce(values)
    return dict(zip(names, (values / dist.get_world_size()).tolist(), strict=True))


def metrics(watch: Watch, average: Callable) -> dict[str, float]:
    """Train three steps and average 3000 metrics after each."""
    rank = dist.get_rank()
    mine = {f"layer_{i // 30}/expert_{i % 30}/load": float(7919 * i + rank) for i in range(3000)}
    for _ in range(3):
        with watch.phase("compute"):
            time.sleep(0.005)
        with watch.phase("metrics"):
            averaged = average(mine)
    return {name: averaged[name] for name in sorted(averaged)[::60]}


# --- threads


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def as_found(ranks: int) -> int:
    """Say how many threads each of the ranks on this host computes with."""
    return max(2, cpus())


def shared_out(ranks: int) -> int:
    """Share the CPUs out among the ranks of the host."""
    return max(1, cpus() // ranks)


def threads(watch: Watch, count: Callable) -> float:
    """Compute and sum in turns, with the threads that `count` gives each rank."""
    torch.set_num_threads(count(dist.get_world_size()))
    torch.manual_seed(0)
    matrix = torch.randn(256, 256)
    for _ in range(8):
        with watch.phase("compute"):
            for _ in range(6):
                matrix = torch.nn.functional.normalize(matrix @ matrix)
        with watch.phase("all_reduce"):
            dist.all_reduce(matrix)
    return round(matrix.abs().mean().item(), 3)


# --- garbage collection

OBJECTS = 250_000
"""Python objects that live through the whole job, on every rank."""


def when_full(step: int) -> bool:
    """Say whether to collect garbage after this step: every eighth, as this rank counts."""
    return (step + 4 * (dist.get_rank() % 2)) % 8 == 7


def together(step: int) -> bool:
    """Say whether to collect: after the same steps on every rank."""
    return step % 8 == 7


def collector(watch: Watch, due: Callable) -> list[float]:
    """Train 24 short steps beside a large heap of Python objects, and collect where it is due."""
    heap = [[i] for i in range(OBJECTS)]
    total, passes = torch.zeros(1), 0
    gc.collect()
    gc.disable()
    try:
        dist.barrier()
        for step in range(24):
            with watch.phase("step"):
                time.sleep(0.001)
                one = torch.ones(1)
                with watch.phase("all_reduce"):
                    dist.all_reduce(one)
                total += one
            if due(step):
                gc.collect()
                passes += 1
    finally:
        gc.enable()
    return [total.item(), passes, len(heap)]


# --- a late rank

LENGTHS = (1, 1, 1, 2, 2, 2, 3, 3, 3, 9, 9, 9)
"""How long the samples of a step are; each unit costs its rank two milliseconds."""


def by_count(lengths: list[int], ranks: int) -> list[list[int]]:
    """Deal a step's samples out: for each rank the places of its samples in `lengths`."""
    share = len(lengths) // ranks
    return [list(range(rank * share, (rank + 1) * share)) for rank in range(ranks)]


def by_length(lengths: list[int], ranks: int) -> list[list[int]]:
    """Deal them so that ranks finish together: the longest first, to whom has the least."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for sample in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        min(dealt, key=lambda own: sum(lengths[i] for i in own)).append(sample)
    return dealt


def late_rank(watch: Watch, deal: Callable) -> list[float]:
    """Train six steps on samples of unequal length; sum a gradient of 228 bytes after each."""
    total = torch.zeros(57)
    for _ in range(6):
        gradient = torch.zeros(57)
        with watch.phase("compute"):
            mine = deal(list(LENGTHS), dist.get_world_size())[dist.get_rank()]
            time.sleep(sum(LENGTHS[sample] for sample in mine) * 0.002)
            for sample in mine:
                gradient[sample] += LENGTHS[sample]
        with watch.phase("all_reduce"):
            dist.all_reduce(gradient)
        total += gradient
    return total.tolist()


# --- the final: a step with one of four faults


def hidden(watch: Watch, plan: dict[str, Any]) -> float:
    """Train ten steps as a plan says: its fault is one of four, and only the plan knows which."""
    rank = dist.get_rank()
    torch.set_num_threads(plan["threads"])
    matrix = torch.ones(128, 128)
    gradients = torch.ones(plan["length"]).chunk(plan["calls"])
    for _ in range(10):
        with watch.phase("input"):
            time.sleep(0.002 + (plan["late"] if rank == plan["rank"] else 0.0))
        with watch.phase("compute"):
            for _ in range(4):
                matrix = torch.nn.functional.normalize(matrix @ matrix)
        with watch.phase("all_reduce"):
            for gradient in gradients:
                dist.all_reduce(gradient)
    return float(dist.get_world_size())
