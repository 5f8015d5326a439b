"""The programs of the cases that need links of chosen rates; otherwise as in `programs`."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.casebook.observe import Watch
from course.lessons.casebook.readings import total

# --- gradients of every micro-batch

MICRO_BATCHES = 4
WIDTH = 180
"""Rows and columns of the model's one matrix: 130 kB of gradient."""


def every_time(model: Any, micro_batch: int) -> Any:
    """Return the context in which a micro-batch runs forward and backward."""
    return contextlib.nullcontext()


def last_time(model: Any, micro_batch: int) -> Any:
    """Let DDP sum the gradients after the last micro-batch only."""
    last = micro_batch == MICRO_BATCHES - 1
    return contextlib.nullcontext() if last else model.no_sync()


def accumulation(watch: Watch, context: Callable) -> float:
    """Train two batches of four micro-batches each, on two nodes."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(2):
        for i in range(MICRO_BATCHES):
            micro_batch = torch.randn(8, WIDTH)
            with context(model, i):
                with watch.phase("forward"):
                    loss = model(micro_batch).square().mean()
                with watch.phase("backward"):
                    loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return round(sum(p.abs().sum().item() for p in model.parameters()), 2)


# --- the wrong interface

NAMED = "eth1"
"""The interface that a host's name stands for, in its /etc/hosts."""


def as_it_is() -> dict[str, str]:
    """Set nothing, as the case did: gloo takes the interface that the host's name stands for."""
    return {}


def fast_interface() -> dict[str, str]:
    """Name the interface."""
    return {"GLOO_SOCKET_IFNAME": "eth0"}


def interface(watch: Watch, environment: Callable) -> float:
    """Exchange 96 KiB with every other rank, in a group made in the environment that a fix sets.

    What the host's name stands for is looked up here, not by gloo: hosts of a fabric share the
    machine's /etc/hosts.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    chosen = environment()
    os.environ.update({"GLOO_SOCKET_IFNAME": NAMED} | chosen)
    group = dist.new_group()  # gloo reads the variable now
    if "GLOO_SOCKET_IFNAME" not in chosen:
        del os.environ["GLOO_SOCKET_IFNAME"]
    mine = torch.arange(n * 24 * 1024, dtype=torch.float32) + rank
    received = torch.empty_like(mine)
    dist.barrier(group)
    with watch.phase("alltoall"):
        dist.all_to_all_single(received, mine, group=group)
    return received.double().sum().item()


# --- four pairs on one wire

WIRE = 400e6
"""Bits per second of the wire that all pairs share."""
PAIRS = 4
LENGTH = 250_000
"""Elements of a message: 1 MB."""


def at_once() -> None:
    """Do what comes between the warm-up and the clock, on each rank."""


def all_ready() -> None:
    """Start every clock when the last rank has warmed up."""
    dist.barrier()


def pairs(watch: Watch, before_clock: Callable) -> float:
    """Send from each rank of one host to its partner on the other; warm up first, then time it.

    A pair's warm-up has one message more than that of the pair before: some are ready sooner.
    """
    rank = dist.get_rank()
    pair, sends = rank % PAIRS, rank < PAIRS
    tensor = torch.full((LENGTH,), float(pair))

    def move() -> None:
        if sends:
            dist.send(tensor, rank + PAIRS)
        else:
            dist.recv(tensor, rank - PAIRS)

    for _ in range(1 + pair):
        move()
    before_clock()
    with watch.phase("timed"):
        move()
    dist.barrier()
    return tensor.mean().item()


def aggregate(seen: list) -> float:
    """Return the sum of what the pairs call their bandwidth, as a multiple of the wire's.

    A pair's time is its receiver's: a sender is done when the socket's buffer has the bytes.
    """
    receivers = [one for one in seen if one["rank"] >= PAIRS]
    return sum(8 * 4 * LENGTH / total(one, "timed") for one in receivers) / WIRE
