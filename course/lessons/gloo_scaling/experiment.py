"""Lesson 01: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (`published.THREAD`): 2p processes, every consecutive two a process group, every rank
calls a blocking all_reduce of a 10 x 10 float32 tensor on its pair's group. Why does the time per
call grow with p? `run` has three parts, told apart by ``params["part"]``: the ``sweep`` over pairs
and placements, the ``cause`` of what partners on different CPUs cost, and the ``ladder`` of fixes.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from course import runs
from course.lessons.gloo_scaling import model, programs, published
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks import affinity, torchrun
from labkit.ranks.launcher import launch
from labkit.ranks.machine import Machine

NAME = "gloo-scaling"
TITLE = "Why does gloo slow down with every pair?"
RECORDING = Path(__file__).with_name("recording.json")
"""What `run` measured on a virtual machine of two CPUs."""
PER_CALL = {pairs: s.value / published.CALLS.value for pairs, s in published.SECONDS.items()}
"""The thread's figures: pairs -> seconds per call, which it does not compute."""
ALONE = 3
"""How often one pair alone is launched."""
CAUSES = ("as it is", "CPUs kept awake", "no preemption")
"""Conditions under which one pair, its partners apart, is measured."""
RUNGS = (
    ("blocking", "free"),
    ("one group", "free"),
    ("async_op", "free"),
    ("blocking", "SCHED_BATCH"),
    ("blocking", "together"),
    ("async_op", "together"),
    ("shared memory", "free"),
    ("shared memory", "together"),
    ("accumulated", "free"),
    ("fused", "free"),
)
"""Way, and placement or scheduling class, in the order in which the ladder climbs."""


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run all three parts with sizes that suit this machine."""
    largest = max(2, min(8, 4 * int(Machine.here().cores)))
    if torchrun.is_here():  # the ranks that torchrun has started are all there are
        largest = min(largest, int(os.environ["WORLD_SIZE"]) // 2)
    pairs = [count for count in (1, 2, 3, 4, 6, 8) if count <= largest]
    if quick:
        pairs = sorted({1, min(2, largest), largest})
    calls = 50 if quick else 200
    placements = programs.PLACEMENTS if affinity.available() else ("free",)
    records = sweep(pairs, placements, calls=calls, say=progress)
    if len(affinity.cpus()) > 1 and affinity.available() and not torchrun.is_here():
        records += cause(calls=calls, say=progress)
    return records + ladder(largest, iters=2 if quick else 3, say=progress)


def sweep(
    pairs: Sequence[int],
    placements: Sequence[str] = programs.PLACEMENTS,
    *,
    calls: int = 100,
    blocks: int = 3,
    say: runs.Say = runs.quiet,
) -> list[Record]:
    """Measure the time per call for each number of pairs and each placement.

    Beside the time, ``values`` has where it went (see `programs.repeated_calls`), and ``predicted``
    is what the law says. One pair alone predicts all others, and what it costs changes from launch
    to launch (we saw 180 to 470 µs on a CPU): it is launched `ALONE` times.
    """
    records = []
    for placement in placements:
        for count in pairs:
            say(f"{count} pairs, {placement}")
            params = {"part": "sweep", "pairs": count, "placement": placement}
            launches = ALONE if count == 1 else 1
            measure = partial(_calls, placement, params, calls, blocks, launches)
            records += runs.watched(measure)
    return model.with_predictions(records)


def cause(*, calls: int = 200, blocks: int = 3, say: runs.Say = runs.quiet) -> list[Record]:
    """Measure one pair with its partners apart, and take one suspect away at a time.

    With the CPUs kept awake no hand-over has to wake an idle CPU. Without preemption no thread that
    wakes up takes the CPU from the one that runs.
    """
    records = []
    for condition in CAUSES:
        say(f"1 pair apart, {condition}")
        params = {"part": "cause", "pairs": 1, "placement": "apart", "condition": condition}
        batch = condition == "no preemption"
        with kept_awake() if condition == "CPUs kept awake" else contextlib.nullcontext():
            measure = partial(_calls, condition, params, calls, blocks, sched_batch=batch)
            records += runs.watched(measure)
    return records


@contextlib.contextmanager
def kept_awake() -> Iterator[None]:
    """Keep every usable CPU from going idle, by a loop of the class SCHED_IDLE on each.

    Such a loop gives way to anything else at once (sched(7)), so it takes time from nobody.
    """
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in affinity.cpus()]
    try:
        for cpu, process in zip(affinity.cpus(), loops, strict=True):
            os.sched_setaffinity(process.pid, {cpu})
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        time.sleep(0.2)
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()


def ladder(
    pairs: int,
    rungs: Sequence[tuple[str, str]] = RUNGS,
    *,
    count: int = 1024,
    iters: int = 3,
    say: runs.Say = runs.quiet,
) -> list[Record]:
    """Measure every way of summing ``count`` tensors with a partner, at one number of pairs.

    A way whose time per tensor does not depend on how many there are is measured on an eighth.
    Placements are left out where the system has none.
    """
    records = []
    for way, placement in rungs:
        if placement != "free" and not affinity.available():
            continue
        say(f"{way}, {placement}")
        light = way in {"fused", "accumulated"}
        tensors, repeats = (count, 4 * iters) if light else (max(1, count // 8), iters)
        params = {"part": "ladder", "pairs": pairs, "way": way, "placement": placement}
        measure = partial(_sums, params | {"tensors": tensors}, repeats)
        records += runs.watched(measure)
    return records


def table(records: Sequence[Record]) -> Table:
    """Lay the records out for reading: microseconds per call, and the law's error."""
    columns = ["case", "pairs", "µs per call", "p10", "p90", "on CPU", "waiting", "predicted"]
    rows = []
    for record in records:
        summary, law = record.summary, record.predicted
        used = [record.values.get(key) for key in ("on_cpu", "waiting")]
        times = [summary.median, summary.p10, summary.p90, *used, law]
        rows.append(
            [record.case, record.params.get("pairs")]
            + [None if time is None else round(time * 1e6, 1) for time in times]
            + [None if law is None else f"{law / summary.median - 1:+.0%}", _rounded(record.others)]
        )
    return Table([*columns, "error", "CPUs of others"], rows)


def _calls(
    case: str, params: dict[str, Any], calls: int, blocks: int, launches: int = 1, **options: Any
) -> list[Record]:
    program = partial(programs.repeated_calls, params["placement"], calls, blocks, **options)
    launched = [launch(program, world_size=2 * params["pairs"]) for _ in range(launches)]
    keys = ("on_cpu", "waiting", "blocked", "loop", "switches", "writes", "ours")
    values: dict[str, Any] = {
        key: statistics.median(statistics.fmean(rank[key] for rank in ranks) for ranks in launched)
        for key in keys
    }
    values["threads"] = launched[0][0]["threads"]
    values["ours"] *= 2 * params["pairs"]
    samples = [
        [sample for rank in same for sample in rank["samples"]]
        for same in zip(*launched, strict=True)
    ]
    return [_record(case, params, samples, collective="all_reduce", values=values)]


def _sums(params: dict[str, Any], iters: int) -> list[Record]:
    way, where = params["way"], params["placement"]
    batch = where == "SCHED_BATCH"
    arguments = (way, params["tensors"], iters, "free" if batch else where, batch)
    samples = launch(programs.sums, *arguments, world_size=2 * params["pairs"])
    case = {"free": way, "SCHED_BATCH": f"{way}, SCHED_BATCH"}.get(where, f"{way}, pinned {where}")
    return [_record(case, params, samples)]


def _record(case: str, params: dict[str, Any], samples: Any, **more: Any) -> Record:
    origin = Provenance.here()
    return Record(NAME, case, params, samples, Tier.MEASURED, origin, nbytes=400, **more)


def _rounded(cpus: float | None) -> float | None:
    return None if cpus is None else round(cpus, 2)
