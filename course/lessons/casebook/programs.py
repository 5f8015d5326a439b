"""The cases' programs, each with its fault inside, and what a fix replaces.

Every program notes its phases, ``with phase("compute")``, and returns what must stay the same when
the fault is mended. Where a rank of the real job computes on a GPU of its own, it sleeps here:
ranks of a lesson share a few CPUs. The fault itself never sleeps.

`cases.json` names these functions, and `cases.py` takes them from here by their names.
"""

import contextlib
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.casebook import readings
from labkit.ranks.machine import usable_cpus as cpus

Phase = Callable[[str], contextlib.AbstractContextManager]
"""Notes how long its block takes, under a name."""

# --- connections, one after the other


def connect(peer: int) -> None:
    """Set up the connection to a peer: a rendezvous, so both must be here at the same time."""
    token, both = torch.ones(1), (dist.send, dist.recv)
    for move in both if dist.get_rank() < peer else reversed(both):
        move(token, peer)
    time.sleep(0.025)  # what the network cards need, once both are at it


def by_rank(peers: list[int]) -> list[int]:
    """Order the peers to connect to."""
    return sorted(peers)


def by_xor(peers: list[int]) -> list[int]:
    """Order them by XOR distance: both ends agree, and pairs do not queue behind each other."""
    me = dist.get_rank()
    return sorted(peers, key=lambda peer: me ^ peer)


def connections(phase: Phase, order: Callable) -> dict[str, Any]:
    """Connect to both neighbours of a ring at first use, then sum once."""
    rank, n = dist.get_rank(), dist.get_world_size()
    connected = []
    for peer in order([(rank - 1) % n, (rank + 1) % n]):
        with phase("connect"):
            connect(peer)
        connected.append(peer)
    total = torch.tensor(float(rank))
    with phase("all_reduce"):
        dist.all_reduce(total)
    return {"connected to": sorted(connected), "sum": total.item()}


# --- averaging metrics


def gather(metrics: dict[str, float]) -> dict[str, float]:
    """Average each metric over the ranks."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, metrics)
    return {name: sum(theirs[name] for theirs in gathered) / len(gathered) for name in metrics}


def reduce_tensor(metrics: dict[str, float]) -> dict[str, float]:
    """Average them as one tensor of fixed layout: the names stay at home."""
    names = sorted(metrics)
    values = torch.tensor([metrics[name] for name in names], dtype=torch.float64)
    dist.all_reduce(values)
    return dict(zip(names, (values / dist.get_world_size()).tolist(), strict=True))


def metrics(phase: Phase, average: Callable) -> dict[str, float]:
    """Train three steps and average 6000 metrics after each."""
    rank = dist.get_rank()
    mine = {f"layer_{i // 30}/expert_{i % 30}/load": float(7919 * i + rank) for i in range(6000)}
    for _ in range(3):
        with phase("compute"):
            time.sleep(0.015)
        with phase("metrics"):
            averaged = average(mine)
    return {name: averaged[name] for name in sorted(averaged)[::60]}


# --- threads


def as_found(ranks: int) -> int:
    """Say how many threads each of the ranks on this host computes with."""
    return max(2, cpus())


def shared_out(ranks: int) -> int:
    """Share the CPUs out among the ranks of the host."""
    return max(1, cpus() // ranks)


def threads(phase: Phase, count: Callable) -> float:
    """Compute and sum in turns, with the threads that `count` gives each rank.

    Threads that outnumber the CPUs cost by chance: in many turns nobody is always lucky.
    """
    torch.set_num_threads(count(dist.get_world_size()))
    torch.manual_seed(0)
    matrix = torch.randn(256, 256)
    for _ in range(24):
        with phase("compute"):
            for _ in range(12):
                matrix = torch.nn.functional.normalize(matrix @ matrix)
        with phase("all_reduce"):
            dist.all_reduce(matrix)
    return round(matrix.abs().mean().item(), 3)


# --- garbage collection


def when_full(step: int) -> bool:
    """Say whether to collect garbage after this step: every eighth, as this rank counts."""
    return (step + 4 * (dist.get_rank() % 2)) % 8 == 7


def together(step: int) -> bool:
    """Say whether to collect: after the same steps on every rank."""
    return step % 8 == 7


def collector(phase: Phase, due: Callable) -> dict[str, float]:
    """Train 24 short steps beside 500,000 objects of Python's, and collect where it is due."""
    heap = [[i] for i in range(500_000)]
    total, passes = torch.zeros(1), 0
    gc.collect()
    gc.disable()
    dist.barrier()
    for step in range(24):
        with phase("step"):
            time.sleep(0.001)
            ones = torch.ones(1)
            with phase("all_reduce"):
                dist.all_reduce(ones)
            total += ones
        if due(step):
            gc.collect()
            passes += 1
    gc.enable()
    return {"sum": total.item(), "collections": passes, "objects": len(heap)}


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


def late_rank(phase: Phase, deal: Callable) -> list[float]:
    """Train twelve steps on samples of unequal length; sum a gradient of 228 bytes after each."""
    total = torch.zeros(57)
    for _ in range(12):
        gradient = torch.zeros(57)
        with phase("compute"):
            mine = deal(list(LENGTHS), dist.get_world_size())[dist.get_rank()]
            time.sleep(sum(LENGTHS[sample] for sample in mine) * 0.002)
            for sample in mine:
                gradient[sample] += LENGTHS[sample]
        with phase("all_reduce"):
            dist.all_reduce(gradient)
        total += gradient
    return total.tolist()


# --- gradients of every micro-batch

MICRO_BATCHES = 4


def every_time(model: Any, micro_batch: int) -> Any:
    """Return the context in which a micro-batch runs forward and backward."""
    return contextlib.nullcontext()


def last_time(model: Any, micro_batch: int) -> Any:
    """Let DDP sum the gradients after the last micro-batch only."""
    last = micro_batch == MICRO_BATCHES - 1
    return contextlib.nullcontext() if last else model.no_sync()


def accumulation(phase: Phase, context: Callable) -> float:
    """Train two batches of four micro-batches each, on two nodes."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(180, 180))  # 130 kB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(2):
        for i in range(MICRO_BATCHES):
            micro_batch = torch.randn(8, 180)
            with context(model, i):
                with phase("forward"):
                    loss = model(micro_batch).square().mean()
                with phase("backward"):
                    loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return round(sum(p.abs().sum().item() for p in model.parameters()), 2)


# --- the wrong interface


def as_it_is() -> dict[str, str]:
    """Set nothing, as the case did: gloo takes the interface that the host's name stands for."""
    return {}


def fast_interface() -> dict[str, str]:
    """Name the interface."""
    return {"GLOO_SOCKET_IFNAME": "eth0"}


def interface(phase: Phase, environment: Callable) -> float:
    """Exchange 96 KiB with every other rank, in a group made in the environment that a fix sets.

    That a host's name stands for eth1 is said here, not looked up by gloo: hosts of a fabric share
    the machine's /etc/hosts.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    chosen = environment()
    os.environ.update({"GLOO_SOCKET_IFNAME": "eth1"} | chosen)
    group = dist.new_group()  # gloo reads the variable now
    if "GLOO_SOCKET_IFNAME" not in chosen:
        del os.environ["GLOO_SOCKET_IFNAME"]
    mine = torch.arange(n * 24 * 1024, dtype=torch.float32) + rank
    received = torch.empty_like(mine)
    dist.barrier(group)
    with phase("alltoall"):
        dist.all_to_all_single(received, mine, group=group)
    return received.double().sum().item()


# --- four pairs on one wire

WIRE = 400e6  # bits per second, of the wire that all pairs share
PAIRS = 4
ELEMENTS = 500_000  # of a message: 2 MB


def at_once() -> None:
    """Do what comes between the warm-up and the clock, on each rank."""


def all_ready() -> None:
    """Start every clock when the last rank has warmed up."""
    dist.barrier()


def pairs(phase: Phase, before_clock: Callable) -> float:
    """Send from each rank of one host to its partner on the other; warm up first, then time it.

    A pair's warm-up has two messages more than that of the pair before: some are ready sooner.
    """
    rank = dist.get_rank()
    pair, partner = rank % PAIRS, (rank + PAIRS) % (2 * PAIRS)
    move = dist.send if rank < PAIRS else dist.recv
    tensor = torch.full((ELEMENTS,), float(pair))
    with phase("warm-up"):
        for _ in range(1 + 2 * pair):
            move(tensor, partner)
    before_clock()
    with phase("timed"):
        move(tensor, partner)
    dist.barrier()
    return tensor.mean().item()


def aggregate(seen: list) -> float:
    """Return the sum of what the pairs call their bandwidth, as a multiple of the wire's.

    A pair's time is its receiver's: a sender is done when the socket's buffer has the bytes.
    """
    receivers = [rank for rank in seen if rank["rank"] >= PAIRS]
    return sum(8 * 4 * ELEMENTS / readings.total(rank, "timed") for rank in receivers) / WIRE


# --- the final: a step with one of four faults


def hidden(phase: Phase, plan: dict[str, Any]) -> float:
    """Train ten steps as a plan says: its fault is one of four, and only the plan knows which."""
    rank = dist.get_rank()
    torch.set_num_threads(plan["threads"])
    matrix = torch.ones(128, 128)
    gradients = torch.ones(plan["length"]).chunk(plan["calls"])
    for _ in range(10):
        with phase("input"):
            time.sleep(0.002 + (plan["late"] if rank == plan["rank"] else 0.0))
        with phase("compute"):
            for _ in range(4):
                matrix = torch.nn.functional.normalize(matrix @ matrix)
        with phase("all_reduce"):
            for gradient in gradients:
                dist.all_reduce(gradient)
    return float(dist.get_world_size())
