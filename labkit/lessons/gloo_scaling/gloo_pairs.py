"""Pairs of ranks on chosen CPUs: what one small all_reduce costs them, and where the time goes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.launch import affinity
from labkit.launch.launcher import launch
from labkit.lessons.gloo_scaling import pairwise
from labkit.measure import load, sched
from labkit.measure.records import Provenance, Record, Tier

NAME = "gloo-scaling"
PLACEMENTS = ("free", "one core", "together", "apart")
SHAPE = (10, 10)


def place(placement: str, rank: int, cpus: Sequence[int]) -> list[int]:
    """Return the CPUs that a rank may use.

    Args:
        placement: ``"free"``: all, the scheduler decides; ``"one core"``: the first;
            ``"together"``: both ranks of a pair on one CPU, pairs dealt out over the CPUs;
            ``"apart"``: ranks dealt out, so that partners share no CPU if there are two.
        rank: The rank.
        cpus: The CPUs there are.

    Example:
        >>> [place("together", rank, [0, 1]) for rank in range(4)]
        [[0], [0], [1], [1]]
    """
    numbers = {"one core": 0, "together": rank // 2, "apart": rank}
    if placement == "free":
        return list(cpus)
    if placement not in numbers:
        raise ValueError(f"placement must be one of {', '.join(PLACEMENTS)}; got {placement!r}.")
    return [cpus[numbers[placement] % len(cpus)]]


def ranks_per_core(placement: str, pairs: int, cores: float) -> float:
    """Return how many ranks the busiest core serves."""
    return {
        "free": max(1.0, 2 * pairs / cores),
        "one core": 2 * pairs,
        "together": 2 * math.ceil(pairs / cores),
        "apart": math.ceil(2 * pairs / cores),
    }[placement]


def program(placement: str, calls: int, blocks: int, patient: bool = False) -> dict[str, Any]:
    """Call all_reduce on the pair's group over and over; runs on every rank.

    With ``patient`` no thread that wakes up takes the CPU from the one that runs (SCHED_BATCH).

    Returns:
        ``samples``: seconds per call, one per block of ``calls`` back-to-back calls. Per call over
        all blocks, in seconds: ``on_cpu`` and ``waiting`` (all threads), ``blocked`` (main thread),
        ``loop`` (on a CPU in gloo's loop threads). Per call: ``switches`` and ``writes`` (system
        calls that write). The names of the ``threads``; ``busy`` and ``ours``: how many CPUs' worth
        of time the whole machine and this rank used meanwhile.
    """
    rank = dist.get_rank()
    if placement != "free":
        affinity.pin(place(placement, rank, affinity.cpus()))
    pair = pairwise.Pair.of(rank, dist.get_world_size())
    tensors = [torch.ones(SHAPE)] * calls
    pairwise.blocking(tensors[:20], pair)
    if patient:
        affinity.never_preempt()
    samples = []
    with sched.watch() as usage, load.watch() as machine:
        writes = -_write_calls()
        for _ in range(blocks):
            dist.barrier()
            start = time.perf_counter()
            pairwise.blocking(tensors, pair)
            samples.append((time.perf_counter() - start) / calls)
        writes += _write_calls()
    total = calls * blocks
    return {
        "samples": samples,
        "on_cpu": usage.on_cpu / total,
        "waiting": usage.waiting / total,
        "blocked": usage.blocked / total,
        "loop": sum(t.on_cpu for t in usage.threads if t.name == "gloo_tcp_loop") / total,
        "switches": (usage.voluntary + usage.involuntary) / total,
        "writes": writes / total,
        "threads": [thread.name for thread in usage.threads],
        "busy": machine.busy,
        "ours": usage.on_cpu / usage.wall,
    }


def sweep(
    pairs: Sequence[int],
    placements: Sequence[str] = PLACEMENTS,
    *,
    calls: int = 100,
    blocks: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Measure the time per call for each number of pairs and each placement."""
    records = []
    for placement in placements:
        for count in pairs:
            if progress:
                progress(f"{count} pairs, {placement}")
            results = launch(program, placement, calls, blocks, world_size=2 * count)
            records.append(_sweep_record(placement, count, results))
    return records


def _sweep_record(placement: str, pairs: int, results: list[dict[str, Any]]) -> Record:
    keys = ("on_cpu", "waiting", "blocked", "loop", "switches", "writes")
    values = {key: sum(result[key] for result in results) / len(results) for key in keys}
    values["threads"] = results[0]["threads"]
    ours = sum(result["ours"] for result in results)
    values["ours"], values["others"] = ours, max(0.0, results[0]["busy"] - ours)
    params = {"part": "sweep", "pairs": pairs, "placement": placement}
    samples = [result["samples"] for result in results]
    return Record(
        NAME,
        placement,
        params,
        samples,
        Tier.MEASURED,
        Provenance.here(),
        collective="all_reduce",
        nbytes=400,
        values=values,
    )


def _write_calls() -> int:
    """Return how many write-like system calls this process has made; 0 where nobody counts."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw"))
