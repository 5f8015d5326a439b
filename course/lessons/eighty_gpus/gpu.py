"""`labkit run gpu`: all that one GPU can show, for whoever has one. Under five minutes.

Lessons 02 to 06 each leave a cell "for whoever has a GPU"; here is all of it in one command, and in
one file of records.
"""

import functools
from collections.abc import Sequence

from course import gpus, runs, waiting
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.ranks import one_gpu, torchrun
from labkit.ranks.machine import gpu_count

NAME = gpus.NAME
TITLE = "What one GPU can show"
PLAN = (
    ("02", gpus.copies, "a copy beside products: pinned, non_blocking, stream (eight ways)",
     "seconds of the step, and in which Python is held"),
    ("03", gpus.launches, f"the launch of a kernel; {gpus.PIECES} small kernels against one",
     "seconds per launch"),
    ("04", gpus.directions, "copies within the GPU, to and from the host, pinned and pageable",
     "bytes per second"),
    ("05", gpus.beside, "products beside copies by the copy engine, and by a kernel",
     "seconds, alone and together"),
    ("05", gpus.lent_memory, "writing into another process's memory (CUDA IPC)",
     "bytes per second"),
    ("05, 05b", waiting.measure, "NCCL, two ranks on one GPU: order, wait, crossed sends",
     "answers; no link's times"),
)  # fmt: skip
"""Lesson, what measures, what is asked, what is kept."""


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure all of `PLAN`; without a GPU nothing, which is said."""
    if torchrun.is_here() or gpu_count() == 0:
        where = "this measures one GPU of one machine, without torchrun"
        progress(where if torchrun.is_here() else "there is no GPU here: nothing is measured")
        return []
    found = []
    for lesson, measure, asked, _ in PLAN:
        if measure is waiting.measure and (reason := one_gpu.why_not()):
            progress(f"lesson {lesson}: {asked}: not measured. {reason}")
            continue
        progress(f"lesson {lesson}: {asked}")
        fewer = {"iters": 3} if quick and measure is not waiting.measure else {}
        found += runs.watched(functools.partial(measure, **fewer), say=progress)
    return found


def table(records: Sequence[Record]) -> Table:
    """Lay the records out; without any, what would be measured."""
    if not records:
        rows = [[lesson, asked, kept] for lesson, _, asked, kept in PLAN]
        return Table(
            ["lesson", "asks", "kept"], rows, title="What it measures where there is a GPU"
        )
    rows = []
    for record in records:
        timed, values = bool(record.samples), record.values
        milliseconds = 1e3 * record.summary.median if timed else None
        speed = record.algbw / 1e9 if timed and record.nbytes else None
        held = 1e3 * values["held"] if "pinned" in record.params else None
        launching = 1e6 * values["per_launch"] if "per_launch" in values else None
        answer = values.get("answer", "")
        rows.append([record.case, milliseconds, speed, held, launching, answer])
    columns = ["case", "ms", "GB/s", "Python held, ms", "µs per launch", "answer"]
    return Table(columns, rows)
