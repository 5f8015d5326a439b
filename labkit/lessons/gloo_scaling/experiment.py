"""Lesson 01: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (PyTorch forum, "Improving inter-process communication costs for pytorch.distributed"):
2p processes, every consecutive two a process group, every rank calls a blocking all_reduce of a
10 x 10 float32 tensor on its pair's group. Why does the time per call grow with p?
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from labkit.launch import affinity, torchrun
from labkit.launch.launcher import launch
from labkit.launch.machine import Machine, usable_cpus
from labkit.lessons.gloo_scaling import model, programs
from labkit.measure import runs
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.measure.timing import slowest

NAME = "gloo-scaling"
TITLE = "Why does gloo slow down with every pair?"
RECORDING = Path(__file__).with_name("recording.json")
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
RUNGS = (
    ("blocking", "free"),
    ("one group", "free"),
    ("async_op", "free"),
    ("blocking", "together"),
    ("async_op", "together"),
    ("shared memory", "free"),
    ("shared memory", "together"),
    ("accumulated", "free"),
    ("fused", "free"),
)
"""Way and placement, in the order in which the ladder climbs."""
AS_GRADIENTS = (("DDP", "free"), ("DDP, fp16 hook", "free"))
"""Two more, for sums that are a model's gradients. DDP imports a compiler when it is first used:
most of a second of CPU per rank, before anything is timed."""


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Run the sweep and the ladder with sizes that suit this machine."""
    largest = max(2, min(8, 4 * int(Machine.here().cores)))
    if torchrun.is_here():  # the ranks that torchrun has started are all there are
        largest = min(largest, int(os.environ["WORLD_SIZE"]) // 2)
    pairs = [count for count in (1, 2, 3, 4, 6, 8) if count <= largest]
    if quick:
        pairs = sorted({1, min(2, largest), largest})
    placements = programs.PLACEMENTS if affinity.available() else ("free",)
    records = sweep(pairs, placements, calls=50 if quick else 200, progress=progress)
    return records + ladder(largest, iters=2 if quick else 3, progress=progress)


def sweep(
    pairs: Sequence[int],
    placements: Sequence[str] = programs.PLACEMENTS,
    *,
    calls: int = 100,
    blocks: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Measure the time per call for each number of pairs and each placement.

    Beside the time, ``values`` has where it went (see `programs.repeated_calls`), and ``predicted``
    is what the law says.
    """
    records = []
    for placement in placements:
        for count in pairs:
            if progress:
                progress(f"{count} pairs, {placement}")
            records += runs.watched(partial(_sweep_case, placement, count, calls, blocks))
    return model.with_predictions(records)


def _sweep_case(placement: str, pairs: int, calls: int, blocks: int) -> list[Record]:
    results = launch(programs.repeated_calls, placement, calls, blocks, world_size=2 * pairs)
    keys = ("on_cpu", "waiting", "blocked", "loop", "switches", "writes", "ours")
    values: dict[str, Any] = {
        key: statistics.fmean(result[key] for result in results) for key in keys
    }
    values["threads"] = results[0]["threads"]
    values["ours"] *= len(results)
    params = {"part": "sweep", "pairs": pairs, "placement": placement}
    samples = [result["samples"] for result in results]
    return [_record(placement, params, samples, collective="all_reduce", nbytes=400, values=values)]


def ladder(
    pairs: int,
    rungs: Sequence[tuple[str, str]] = RUNGS,
    *,
    count: int = 1024,
    iters: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Measure every way of summing ``count`` tensors with a partner, at one number of pairs.

    A way whose time per tensor does not depend on how many there are is measured on a quarter.
    Placements are left out where the system has none.
    """
    records = []
    for way, placement in rungs:
        if placement != "free" and not affinity.available():
            continue
        if progress:
            progress(f"{way}, {placement}")
        light = way in {"fused", "accumulated", *programs.HOOKS}
        tensors, repeats = (count, 4 * iters) if light else (max(1, count // 4), iters)
        samples = launch(programs.sums, way, tensors, repeats, placement, world_size=2 * pairs)
        case = way if placement == "free" else f"{way}, pinned {placement}"
        params = {"part": "ladder", "pairs": pairs, "way": way, "placement": placement}
        records.append(_record(case, params | {"tensors": tensors}, samples, nbytes=400))
    return records


def overlap(pairs: int = 1, *, count: int = 64, iters: int = 7) -> list[Record]:
    """Hide pairwise sums behind matrix products, and measure what stays exposed.

    Returns:
        Four records, in seconds for the whole step: ``compute alone``, ``sums alone``, ``one after
        the other``, ``overlapped``. The last two have in ``values``: ``exposed``, the median
        seconds above the compute alone, and ``hidden``, the share of the sums' own time that is
        not exposed.
    """
    results = launch(programs.overlapped, count, iters, world_size=2 * pairs)
    params = {"part": "overlap", "pairs": pairs, "count": count}
    records = {case: _record(case, params, [r[case] for r in results]) for case in results[0]}
    compute, sums = (records[case].summary.median for case in ("compute alone", "sums alone"))
    for case in ("one after the other", "overlapped"):
        exposed = max(0.0, records[case].summary.median - compute)
        records[case].values.update(exposed=exposed, hidden=max(0.0, 1 - exposed / sums))
    return list(records.values())


def threads(
    settings: Sequence[int] | None = None, *, pairs: int = 1, calls: int = 20, iters: int = 7
) -> list[Record]:
    """Compute beside the calls with 1 and torch's default number of intra-op threads per rank.

    Returns:
        A record per setting, in seconds per step. In ``values``, medians of the slowest rank:
        ``matmul``, seconds of the product, and ``per_call``, seconds of one sum.
    """
    records = []
    for setting in settings or sorted({1, usable_cpus()}):
        results = launch(
            programs.product_and_sums, calls, iters, world_size=2 * pairs, threads=setting
        )
        values = {
            "matmul": _median_of_slowest(results, "matmul"),
            "per_call": _median_of_slowest(results, "sums") / calls,
        }
        params = {"part": "threads", "pairs": pairs, "threads": setting}
        samples = [result["step"] for result in results]
        records.append(_record(f"threads: {setting}", params, samples, values=values))
    return records


def connections(world_size: int = 8, *, iters: int = 5) -> list[Record]:
    """Create groups of all ranks: connected at once, or on first use (TORCH_GLOO_LAZY_INIT=1).

    Returns:
        Two records, ``eager`` and ``lazy``, in seconds per group creation. ``values`` has the other
        figures of `programs.new_groups`, the median over groups on the rank where it is largest.
    """
    records = []
    for case in ("eager", "lazy"):
        results = launch(programs.new_groups, case == "lazy", iters, world_size=world_size)
        values = {key: _median_of_slowest(results, key) for key in results[0] if key != "create"}
        params = {"part": "connections", "world_size": world_size}
        records.append(_record(case, params, [r["create"] for r in results], values=values))
    return records


def table(records: Sequence[Record]) -> Table:
    """Lay the records out for reading: microseconds per call, and the law's error."""
    columns = ["case", "pairs", "us per call", "p10", "p90", "on CPU", "waiting"]
    rows = []
    for record in records:
        summary, law = record.summary, record.predicted
        used = [record.values.get(key) for key in ("on_cpu", "waiting")]
        times = [summary.median, summary.p10, summary.p90, *used, law]
        rows.append(
            [record.case, record.params.get("pairs")]
            + [None if time is None else round(time * 1e6, 1) for time in times]
            + [None if law is None else f"{law / summary.median - 1:+.0%}"]
        )
    return Table([*columns, "predicted", "error"], rows)


def _record(case: str, params: dict[str, Any], samples: Any, **more: Any) -> Record:
    return Record(NAME, case, params, samples, Tier.MEASURED, Provenance.here(), **more)


def _median_of_slowest(results: Sequence[dict[str, list[float]]], key: str) -> float:
    return statistics.median(slowest([result[key] for result in results]))
