"""What two settings change in lesson 1: when gloo connects, and torch's threads per rank.

Each function launches one small rank program per case and returns records of the experiment
``gloo-scaling``, told apart by ``params["part"]``.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.launch.launcher import launch
from labkit.launch.machine import usable_cpus
from labkit.lessons.gloo_scaling import pairwise
from labkit.lessons.gloo_scaling.gloo_pairs import NAME, SHAPE
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.timing import slowest, time_calls

MATRIX = (512, 512)


def connections(world_size: int = 8, *, iters: int = 5) -> list[Record]:
    """Create groups of all ranks: connected at once, or on first use (TORCH_GLOO_LAZY_INIT=1).

    Returns:
        Two records, ``eager`` and ``lazy``, in seconds per group creation. In ``values``, each the
        median over the groups on the rank where it is largest: ``descriptors`` and ``threads`` that
        creating a group adds; ``on_first_use``, the descriptors that its first all_reduce adds; and
        ``first_call`` and ``later_call``, the seconds of its first and second all_reduce.
    """
    records = []
    for case in ("eager", "lazy"):
        results = launch(connections_program, case == "lazy", iters, world_size=world_size)
        values = {
            key: statistics.median(slowest([result[key] for result in results]))
            for key in results[0]
            if key != "create"
        }
        params = {"part": "connections", "world_size": world_size}
        samples = [result["create"] for result in results]
        records.append(
            Record(NAME, case, params, samples, Tier.MEASURED, Provenance.here(), values=values)
        )
    return records


def connections_program(lazy: bool, iters: int) -> dict[str, list[float]]:
    """Create groups of all ranks and sum twice on each; runs on every rank.

    Returns:
        ``create`` and the names in `connections`, each with one value per group.
    """
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1" if lazy else "0"  # read when a group is created
    tensor = torch.ones(SHAPE)
    groups: list[Any] = []  # kept: a group that is dropped closes its connections
    figures: dict[str, list[float]] = defaultdict(list)

    def create() -> None:
        groups.append(dist.new_group(list(range(dist.get_world_size()))))

    for _ in range(iters):
        before = _entries("fd"), _entries("task")
        figures["create"] += time_calls(create, warmup=0, iters=1)
        created = _entries("fd"), _entries("task")
        first, later = time_calls(
            lambda: dist.all_reduce(tensor, group=groups[-1]), warmup=0, iters=2
        )
        figures["descriptors"].append(created[0] - before[0])
        figures["threads"].append(created[1] - before[1])
        figures["on_first_use"].append(_entries("fd") - created[0])
        figures["first_call"].append(first)
        figures["later_call"].append(later)
    return dict(figures)


def threads(
    settings: Sequence[int] | None = None, *, pairs: int = 1, calls: int = 20, iters: int = 7
) -> list[Record]:
    """Compute beside the calls with different numbers of intra-op threads per rank.

    Every step multiplies two 512 x 512 matrices and then sums ``calls`` tensors with the partner,
    one by one. Ranks that each start as many threads as there are CPUs take them from each other.

    Args:
        settings: Numbers of threads; 1 and torch's default, the number of usable CPUs, if not
            given.
        pairs: Number of pairs; two ranks each.
        calls: Sums per step.
        iters: Samples per setting.

    Returns:
        A record per setting, in seconds per step. In ``values``, medians of the slowest rank:
        ``matmul``, seconds of the product, and ``per_call``, seconds of one sum.
    """
    records = []
    for setting in settings or sorted({1, usable_cpus()}):
        results = launch(threads_program, calls, iters, world_size=2 * pairs, threads=setting)
        matmul, sums = (
            slowest([result[part] for result in results]) for part in ("matmul", "sums")
        )
        values = {
            "matmul": statistics.median(matmul),
            "per_call": statistics.median(sums) / calls,
        }
        params = {"part": "threads", "pairs": pairs, "threads": setting}
        case = "1 thread" if setting == 1 else f"{setting} threads"
        samples = [result["step"] for result in results]
        records.append(
            Record(NAME, case, params, samples, Tier.MEASURED, Provenance.here(), values=values)
        )
    return records


def threads_program(calls: int, iters: int) -> dict[str, list[float]]:
    """Multiply, then sum with the partner; runs on every rank.

    Returns:
        Seconds per iteration: of the whole ``step``, and of its parts ``matmul`` and ``sums``.
    """
    pair = pairwise.Pair.of(dist.get_rank(), dist.get_world_size())
    tensors = [torch.zeros(SHAPE) for _ in range(calls)]
    matrix = torch.randn(MATRIX)
    parts: dict[str, list[float]] = {"matmul": [], "sums": []}

    def step() -> None:
        start = time.perf_counter()
        matrix @ matrix
        middle = time.perf_counter()
        pairwise.blocking(tensors, pair)
        parts["matmul"].append(middle - start)
        parts["sums"].append(time.perf_counter() - middle)

    whole = time_calls(step, warmup=2, iters=iters)
    return {"step": whole, **{name: times[-iters:] for name, times in parts.items()}}


def _entries(table: str) -> int:
    """Return how many descriptors (``fd``) or threads (``task``) this process has.

    0 where the system has no ``/proc``.
    """
    folder = Path("/proc/self", table)
    return sum(1 for _ in folder.iterdir()) if folder.exists() else 0
