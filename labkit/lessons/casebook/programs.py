"""The cases' programs, each with its fault inside, and what a fix replaces.

Every program takes a `Watch`, tells it its phases, and returns what must stay the same when the
fault is mended.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from labkit.measure import calls, sched, wire

HANDSHAKE = 0.01
"""Seconds that two ranks need to set up a connection, in the case of the connections."""


@dataclass(slots=True)
class Watch:
    """One rank's stopwatch: which phase, from when to when, on this host's clock."""

    spans: list[tuple[str, float, float]] = field(default_factory=list)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note how long the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spans.append((name, start, time.perf_counter()))


def observed(program: Callable, fix: Callable, instrument: str) -> dict[str, Any]:
    """Run a case's program on this rank under one instrument; runs on every rank."""
    watch = Watch()
    seen: dict[str, Any] = {"rank": dist.get_rank()}
    dist.barrier()
    with contextlib.ExitStack() as stack:
        if instrument == "wire meter":
            meter = stack.enter_context(wire.meter())
        elif instrument == "scheduler":
            usage = stack.enter_context(sched.watch())
        elif instrument == "call counts":
            log = stack.enter_context(calls.CallLog())
        start = time.perf_counter()
        seen["result"] = program(watch, fix)
        seen["seconds"] = time.perf_counter() - start
    seen["spans"] = watch.spans
    seen["cpus"] = sorted(os.sched_getaffinity(0))
    if instrument == "wire meter":
        seen["report"] = meter.report
    elif instrument == "scheduler":
        seen["usage"] = (usage.wall, usage.on_cpu, usage.waiting, usage.involuntary)
    elif instrument == "call counts":
        seen["calls"] = [(call.kind, call.nbytes) for call in log.calls]
    return seen


# --- connections in rank order


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
    """Order the peers to connect to: by rank, as the case had it."""
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


# --- making groups


def barrier_each(members: list[list[int]]) -> list[Any]:
    """Make every group and hold a barrier of all ranks after each, as the case had it."""
    groups = []
    for ranks in members:
        groups.append(dist.new_group(ranks))
        dist.barrier()
    return [g for g, ranks in zip(groups, members, strict=True) if dist.get_rank() in ranks]


def local_groups(members: list[list[int]]) -> list[Any]:
    """Make only the groups that this rank is in, and let only their members wait."""
    mine = [ranks for ranks in members if dist.get_rank() in ranks]
    return [dist.new_group(ranks, use_local_synchronization=True) for ranks in mine]


def groups(watch: Watch, make: Callable) -> float:
    """Make a group for every pair of neighbours, as tensor and pipeline parallelism do."""
    rank, n = dist.get_rank(), dist.get_world_size()
    pairs = [[i, i + 1] for i in range(0, n - 1, 2)] + [[i, i + 1] for i in range(1, n - 1, 2)]
    with watch.phase("make groups"):
        mine = make(pairs)
    total = torch.tensor(float(rank))
    with watch.phase("all_reduce"):
        for group in mine:
            dist.all_reduce(total, group=group)
    return total.item()


# --- gathering metrics


def gather_objects(metrics: dict[str, float]) -> dict[str, float]:
    """Average each metric over the ranks: every rank gets everybody's dictionary."""
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


# --- one mask for all ranks


def inherit(cpus: list[int]) -> None:
    """Stay where the launcher's process was: all ranks get its mask."""
    os.sched_setaffinity(0, cpus[:1])


def spread(cpus: list[int]) -> None:
    """Take a CPU of one's own, by local rank."""
    os.sched_setaffinity(0, [cpus[dist.get_rank() % len(cpus)]])


def masks(watch: Watch, place: Callable) -> float:
    """Compute and sum in turns, on the CPUs that the rank may use."""
    place(sorted(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    matrix = torch.randn(256, 256)
    for _ in range(12):
        with watch.phase("compute"):
            for _ in range(4):
                matrix = torch.nn.functional.normalize(matrix @ matrix)
        with watch.phase("all_reduce"):
            dist.all_reduce(matrix)
    return round(matrix.abs().mean().item(), 4)


# --- the first call


def start_at_once(group: Any) -> None:
    """Do nothing before the clock starts, as the case did."""


def warm_up(group: Any) -> None:
    """Use every connection once before anything is timed."""
    dist.all_reduce(torch.zeros(1024), group=group)


def first_call(watch: Watch, prepare: Callable) -> float:
    """Time three sums in a new group; `prepare` comes before the clock."""
    group = dist.new_group()
    tensor = torch.full((1024,), float(dist.get_rank()))
    prepare(group)
    for i in range(3):
        with watch.phase(f"call {i + 1}"):
            dist.all_reduce(tensor, group=group)
        tensor /= dist.get_world_size()
    return tensor[0].item()


# --- shares on unequal paths


def equal_shares(rates: list[float]) -> list[float]:
    """Cut a message into equal shares, one for each path."""
    return [1 / len(rates)] * len(rates)


def shares_by_rate(rates: list[float]) -> list[float]:
    """Cut it so that all paths finish at the same time."""
    return [rate / sum(rates) for rate in rates]


RATES = (10e6, 10e6, 40e6)
"""Bits per second of the paths from rank 0 to ranks 1, 2 and 3."""


def streams(watch: Watch, shares: Callable) -> float:
    """Send 2 MB over three paths of different speed; done when the last share has arrived."""
    rank, length = dist.get_rank(), 500_000
    cuts = [round(share * length) for share in shares(list(RATES))]
    cuts[-1] = length - sum(cuts[:-1])
    tensor = torch.arange(length, dtype=torch.float32)
    parts = tensor.split(cuts)
    for _ in range(2):
        with watch.phase("send"):
            if rank == 0:
                works = [dist.isend(part.contiguous(), i + 1) for i, part in enumerate(parts)]
                for work in works:
                    work.wait()
            else:
                dist.recv(parts[rank - 1].clone(), 0)
            dist.barrier()
    return float(sum(cuts))


# --- garbage collection


def each_at_its_time(step: int) -> None:
    """Collect every eighth step, counted from the rank: as automatic collection falls out."""
    if (step + 2 * dist.get_rank()) % 8 == 0:
        gc.collect()


def together(step: int) -> None:
    """Collect at the same steps on every rank."""
    if step % 8 == 0:
        gc.collect()


def collector(watch: Watch, collect: Callable) -> float:
    """Train 16 short steps beside a heap of many objects."""
    heap = [[number] for number in range(400_000)]
    total = torch.zeros(1)
    gc.disable()
    try:
        for step in range(16):
            with watch.phase("step"):
                time.sleep(0.002)
                collect(step)
                one = torch.ones(1)
                dist.all_reduce(one)
                total += one
    finally:
        gc.enable()
    return total.item() + len(heap)


# --- buffers before every forward


def default_options() -> dict[str, Any]:
    """Leave DDP's options as they are, as the case did."""
    return {}


def without_buffers() -> dict[str, Any]:
    """Let every rank keep its own buffers: right where batches are drawn alike."""
    return {"broadcast_buffers": False}


def buffers(watch: Watch, options: Callable) -> float:
    """Train three steps of a small model with large buffers, over a slow link."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    model.register_buffer("statistics", torch.zeros(200_000))
    with warnings.catch_warnings():  # torch 2.13 announces another name for the option
        warnings.simplefilter("ignore", FutureWarning)
        parallel = torch.nn.parallel.DistributedDataParallel(model, **options())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        batch = torch.randn(16, 8)
        with watch.phase("forward"):
            loss = parallel(batch).square().mean()
        with watch.phase("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return round(sum(p.abs().sum().item() for p in model.parameters()), 4)
