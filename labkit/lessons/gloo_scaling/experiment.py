"""Lesson 1: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (PyTorch forum, "Improving inter-process communication costs for pytorch.distributed"):
2p processes, every consecutive two a process group, every rank calls a blocking all_reduce of a
10 x 10 float32 tensor on its pair's group. Why does the time per call grow with p?
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from labkit.launch import affinity, torchrun
from labkit.launch.machine import Machine
from labkit.lessons.gloo_scaling import gloo_ladder, gloo_pairs
from labkit.lessons.gloo_scaling.gloo_pairs import ranks_per_core
from labkit.measure.records import Record
from labkit.measure.tables import Table

NAME = gloo_pairs.NAME
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


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Run the sweep and the ladder with sizes that suit this machine."""
    largest = max(2, min(8, 4 * int(Machine.here().cores)))
    if torchrun.is_here():  # the ranks that torchrun has started are all there are
        largest = min(largest, int(os.environ["WORLD_SIZE"]) // 2)
    pairs = [count for count in (1, 2, 3, 4, 6, 8) if count <= largest]
    if quick:
        pairs = sorted({1, min(2, largest), largest})
    placements = gloo_pairs.PLACEMENTS if affinity.available() else ("free",)
    calls = 50 if quick else 200
    records = gloo_pairs.sweep(pairs, placements, calls=calls, progress=progress)
    return records + gloo_ladder.ladder(largest, iters=2 if quick else 3, progress=progress)


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


def table(records: Sequence[Record]) -> Table:
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
    return Table(columns, rows)
