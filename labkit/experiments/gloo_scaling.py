"""Lesson 1: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (PyTorch forum, "Improving inter-process communication costs for pytorch.distributed"):
2p processes, every consecutive two a process group, every rank calls a blocking all_reduce of a
10 x 10 float32 tensor on its pair's group. Why does the time per call grow with p?
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.comm import pairwise
from labkit.measure import load, sched, timing
from labkit.measure.records import Provenance, Record, Tier
from labkit.run import affinity
from labkit.run.launcher import launch
from labkit.run.machine import Machine

NAME = "gloo-scaling"
TITLE = "Why does gloo slow down with every pair?"
PLACEMENTS = ("free", "one core", "together", "apart")
SHAPE = (10, 10)
RECORDING = Path(__file__).parents[1] / "recordings" / "gloo_scaling.json"
"""What `run` measured on a virtual machine of two CPUs."""
PUBLISHED_CALLS = 1024
PUBLISHED = {
    1: 0.386286,
    2: 0.478979,
    3: 0.728055,
    4: 0.920900,
    5: 1.150142,
    6: 1.505277,
    7: 1.937280,
    8: 2.068987,
}
"""Pairs -> rank 0's seconds for 1024 calls, as the thread gives them (48 logical CPUs)."""


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


def as_published(calls: int) -> float:
    """Measure as the thread's script does, with all its traps; runs on every rank.

    The clock starts right after the groups are made, with no barrier and no warm-up; every call
    gets a tensor that is made inside the timed loop. The script reported rank 0's time alone.

    Returns:
        Seconds per call on this rank.
    """
    pair = pairwise.Pair.of(dist.get_rank(), dist.get_world_size())
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(torch.randn(SHAPE), group=pair.group)
    return (time.perf_counter() - start) / calls


def ladder_program(way_name: str, count: int, iters: int, placement: str) -> list[float]:
    """Sum ``count`` tensors with the partner in the named way; runs on every rank.

    Checks the sums once, then times the way as a whole.

    Returns:
        Seconds per tensor, one value per iteration.
    """
    rank = dist.get_rank()
    if placement != "free":
        affinity.pin(place(placement, rank, affinity.cpus()))
    pair = pairwise.Pair.of(rank, dist.get_world_size())
    way = _way(way_name, pair)
    tensors = [torch.full(SHAPE, float(rank + index)) for index in range(count)]
    way(tensors, pair)
    if way_name != "accumulated":
        for index, tensor in enumerate(tensors):
            expected = float(rank + pair.partner + 2 * index)
            assert (tensor == expected).all(), f"{way_name}: tensor {index} is not {expected}"
    for tensor in tensors:
        tensor.zero_()
    samples = timing.time_calls(lambda: way(tensors, pair), warmup=1, iters=iters)
    return [sample / count for sample in samples]


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


def ladder(
    pairs: int,
    *,
    count: int = PUBLISHED_CALLS,
    iters: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Measure every way of summing ``count`` tensors with a partner, at one number of pairs.

    A way whose time per tensor does not depend on how many there are is measured on a quarter.
    """
    rungs = [("blocking", "free"), ("one group", "free"), ("async_op", "free")]
    if affinity.available():
        rungs += [("blocking", "together"), ("async_op", "together")]
    rungs += [("shared memory", "free"), ("accumulated", "free"), ("fused", "free")]
    if affinity.available():
        rungs.insert(-2, ("shared memory", "together"))
    records = []
    for way, placement in rungs:
        if progress:
            progress(f"{way}, {placement}")
        light = way in {"fused", "accumulated"}
        tensors, repeats = (count, 4 * iters) if light else (max(1, count // 4), iters)
        samples = launch(ladder_program, way, tensors, repeats, placement, world_size=2 * pairs)
        case = way if placement == "free" else f"{way}, pinned {placement}"
        params = {"part": "ladder", "pairs": pairs, "way": way, "placement": placement}
        params["tensors"] = tensors
        records.append(
            Record(NAME, case, params, samples, Tier.MEASURED, Provenance.here(), nbytes=400)
        )
    return records


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Run the sweep and the ladder with sizes that suit this machine."""
    largest = max(2, min(8, 4 * int(Machine.here().cores)))
    pairs = [count for count in (1, 2, 3, 4, 6, 8) if count <= largest]
    if quick:
        pairs = [1, 2, largest]
    placements = PLACEMENTS if affinity.available() else ("free",)
    calls = 50 if quick else 200
    records = sweep(pairs, placements, calls=calls, progress=progress)
    return records + ladder(largest, iters=2 if quick else 5, progress=progress)


def identity(record: Record) -> float:
    """Return CPU time used over CPU time there was; 1 when the ranks keep the CPUs busy.

    With saturated CPUs a call takes ``ranks x CPU per call / cores``: an identity, not a model. A
    core gives a second of CPU time per second, no more. What other processes used is not ours.
    """
    pairs, placement = record.params["pairs"], record.params["placement"]
    cores = record.provenance.machine.cores
    ours = {"one core": 1, "together": min(pairs, cores)}.get(placement, min(2 * pairs, cores))
    there_was = ours if ours < cores else cores - record.values["others"]
    return record.values["ours"] / there_was


def predict(records: Sequence[Record], placement: str, pairs: int) -> float:
    """Return the seconds per call that the CPU cost at p = 1 predicts: ranks per core x cost."""
    alone = next(
        record
        for record in records
        if record.params.get("placement") == placement and record.params["pairs"] == 1
    )
    cores = alone.provenance.machine.cores
    return max(
        alone.summary.median, ranks_per_core(placement, pairs, cores) * alone.values["on_cpu"]
    )


def table(records: Sequence[Record]) -> tuple[list[str], list[list[Any]]]:
    """Lay the records out for reading: microseconds per call, and the law's error."""
    columns = [
        "case",
        "pairs",
        "us per call",
        "p10",
        "p90",
        "on CPU",
        "waiting",
        "predicted",
        "error",
    ]
    rows = []
    for record in records:
        summary = record.summary
        times = [round(x * 1e6, 1) for x in (summary.median, summary.p10, summary.p90)]
        row = [record.case, record.params["pairs"], *times]
        if record.params["part"] == "sweep":
            used = [round(record.values[key] * 1e6, 1) for key in ("on_cpu", "waiting")]
            law = predict(records, record.params["placement"], record.params["pairs"])
            row += [*used, round(law * 1e6, 1), f"{law / summary.median - 1:+.0%}"]
        rows.append(row + [""] * (len(columns) - len(row)))
    return columns, rows


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


def _way(name: str, pair: pairwise.Pair) -> pairwise.Way:
    if name == "shared memory":
        return pairwise.SharedMemory(pair, nbytes=400)
    return {**pairwise.WAYS, "accumulated": pairwise.accumulated}[name]


def _write_calls() -> int:
    """Return how many write-like system calls this process has made; 0 where nobody counts."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw"))
