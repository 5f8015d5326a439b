"""Lesson 01: pairs of ranks that never talk to each other, and slow each other down all the same.

The question (``published.json``): 2p processes, every consecutive two a process group, every rank
calls a blocking all_reduce of a 10 x 10 float32 tensor on its pair's group. Why does the time per
call grow with p? `run` has two parts, named by ``params["part"]``: the ``sweep`` over pairs and
placements, and the ``cause`` of what partners on different CPUs cost.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from course import runs
from course.lessons.gloo_scaling import programs
from course.place import Place
from labkit.measure import records, sched
from labkit.measure.records import Record
from labkit.ranks import affinity, torchrun
from labkit.ranks.machine import Machine

NAME = "gloo-scaling"
TITLE = "Why does gloo slow down with every pair?"
RECORDING = Path(__file__).with_name("recording.json")
"""What `run` measured on a virtual machine of two CPUs."""
ALONE = 3
"""How often one pair alone is launched: what it costs changes from launch to launch."""
CAUSES = ("as it is", "CPUs kept awake", "no preemption")
"""Conditions under which one pair, its partners apart, is measured."""


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run both parts with sizes that suit this machine."""
    largest = max(2, min(8, 4 * int(Machine.here().cores)))
    if torchrun.is_here():  # the ranks that torchrun has started are all there are
        largest = min(largest, int(os.environ["WORLD_SIZE"]) // 2)
    pairs = [count for count in (1, 2, 3, 4, 6, 8) if count <= largest]
    if quick:
        pairs = sorted({*pairs[:2], pairs[-1]})
    calls = 50 if quick else 200
    placements = programs.PLACEMENTS if affinity.available() else ("free",)
    measured = sweep(pairs, placements, calls=calls, say=progress)
    if len(affinity.cpus()) > 1 and affinity.available() and not torchrun.is_here():
        measured += cause(calls=calls, say=progress)
    return measured


def can_measure() -> bool:
    """Say whether this system pins ranks and keeps accounts of their threads."""
    return affinity.available() and sched.available()


def recorded(part: str, *, case: str | None = None) -> list[Record]:
    """Return what a part of `run` gave on the machine where it was recorded; or one case of it."""
    return [
        record
        for record in records.load(RECORDING, recorded=True)
        if record.params["part"] == part and case in (None, record.case)
    ]


def sweep(
    pairs: Sequence[int],
    placements: Sequence[str],
    *,
    program: Callable[..., dict[str, Any]] = programs.timed_calls,
    calls: int = 100,
    say: runs.Say = runs.quiet,
) -> list[Record]:
    """Measure the time per call for each number of pairs and each placement, in turns.

    Beside the time, ``values`` has where it went (see `programs.timed_calls`). Where nothing can
    be measured the recorded points stand in.
    """
    if not can_measure():
        print("This system does not tell where a thread's time goes: a recorded run instead.")
        old = [r for r in recorded("sweep") if r.case in placements and r.params["pairs"] in pairs]
        return sorted(old, key=lambda r: placements.index(r.case))
    measured = []
    for count in pairs:
        for placement in placements:  # in turns, so that a machine's drift meets all of them
            say(f"{count} pairs, {placement}")
            params = {"part": "sweep", "pairs": count, "placement": placement}
            measured.append(_measured(params, program, calls))
    return sorted(measured, key=lambda record: placements.index(record.case))


def cause(*, calls: int = 200, say: runs.Say = runs.quiet) -> list[Record]:
    """Measure one pair with its partners apart, and take one suspect away at a time.

    With the CPUs kept awake no hand-over has to wake an idle CPU. Without preemption no thread that
    wakes up takes the CPU from the one that runs. Where nothing can be apart, or measured: the
    recorded run.
    """
    if not can_measure() or len(affinity.cpus()) < 2:
        return recorded("cause")
    measured = []
    for condition in CAUSES:
        say(f"1 pair apart, {condition}")
        params = {"part": "cause", "pairs": 1, "placement": "apart", "condition": condition}
        program = partial(programs.timed_calls, sched_batch=condition == "no preemption")
        with kept_awake() if condition == "CPUs kept awake" else contextlib.nullcontext():
            measured.append(_measured(params, program, calls))
    return measured


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


def _measured(params: dict[str, Any], program: Callable[..., Any], calls: int) -> Record:
    """Run a program on pairs and make a record of the samples and values that its ranks return.

    Values are means over ranks, but for ``ours``, a sum. One pair of the sweep runs `ALONE` times.
    """
    placement, ranks = params["placement"], 2 * params["pairs"]
    case = params.get("condition", placement)
    launches = ALONE if (params["part"], ranks) == ("sweep", 2) else 1

    def measure(here: Place) -> list[Record]:
        options = {"world_size": ranks}
        launched = [here.launch(program, placement, calls, **options) for _ in range(launches)]
        samples = [
            list(chain(*(r["samples"] for r in same))) for same in zip(*launched, strict=True)
        ]
        values = {}
        for key in launched[0][0].keys() - {"samples"}:
            means = [statistics.fmean(rank[key] for rank in results) for results in launched]
            values[key] = statistics.median(means) * (ranks if key == "ours" else 1)
        fields = {"nbytes": 400, "params": params, "values": values}
        return [here.record(case, samples, experiment=NAME, **fields)]

    (record,) = Place(hosts=ranks).records(measure, recording=RECORDING, experiment=NAME)
    return record
