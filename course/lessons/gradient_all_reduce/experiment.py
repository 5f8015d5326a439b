"""Lesson 2: why does averaging gradients take 280 ms when the same bytes move in 60?

Four hosts run the thread's loop with a stopwatch around each of its 22 calls. Each timer is taken
apart: waiting for the last rank, and moving bytes.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.lessons.gradient_all_reduce import programs
from course.place import Place
from course.runs import Say, quiet
from labkit.measure.records import Record
from labkit.measure.timeline import Timeline
from labkit.measure.trace import Kind

NAME = "gradient-all-reduce"
TITLE = "280 ms or 60? Averaging gradients"
RECORDING = Path(__file__).with_name("recording.json")
HOSTS, RATE, THIN = 4, "2gbit", "430mbit"
"""The thread's two bus bandwidths are 4.7 times apart; so are these two rates."""
SIZES = (256, 4096, 65536, 7_600_000)
"""Bytes of the benchmark's all_reduces."""
CASES: dict[str, tuple[Callable, tuple, str]] = {
    "late": (programs.train, (2,), RATE),
    "wide links": (programs.train, (None, 4), RATE),
    "thin links": (programs.train, (None, 4), THIN),
    "rungs": (programs.climb, (), RATE),
}
"""What is recorded for machines on which no links can be made: program, arguments, rate."""


@dataclass(frozen=True, slots=True)
class Timer:
    """What one rank's stopwatch around one call showed, taken apart; seconds."""

    name: str
    wait: float
    """Until the last rank had arrived."""
    move: float

    @property
    def seconds(self) -> float:
        """What the stopwatch itself shows."""
        return self.wait + self.move


def on_hosts(program: Callable, *args: Any, case: str | None = None, rate: str = RATE) -> Record:
    """Run a program that returns ``tracer.trace()`` on four hosts; return a record with its spans.

    Where no links can be made, the record is what another machine measured in that `case`; without
    a case the program runs on loopback, which has no links that could be slow.
    """

    def measure(here: Place) -> list[Record]:
        whole = Timeline(here.launch(program, *args, timeout=120))
        steps = sorted({span.step for span in whole.spans})
        samples = [[whole.steps(step, step).exposed(r) for step in steps] for r in whole.ranks]
        values = {"spans": whole.rows(), "clock_error": whole.clock_error}
        return [here.record(case or "one's own", samples, experiment=NAME, values=values)]

    kept = {"recording": RECORDING, "experiment": NAME, "cases": {case}}
    try:
        (record,) = Place(HOSTS, rate).records(measure, say=print if case else quiet, **kept)
    except LookupError:
        print("No links can be made here; this runs on loopback.")
        (record,) = Place(HOSTS).records(measure, **kept)
    return record


def timeline(record: Record) -> Timeline:
    """Return the timeline of a record."""
    return Timeline.from_rows(record.values["spans"], clock_error=record.values["clock_error"])


def timers(record: Record, *, rank: int = 0, every: slice = slice(2, None)) -> list[Timer]:
    """Return one rank's timers in the order of the calls, each the median over the steps.

    Args:
        record: Of `on_hosts`.
        rank: Whose stopwatch.
        every: Which steps count: the first two warm up.
    """
    spans = timeline(record).split().of(rank, kinds=(Kind.WAIT, Kind.MOVE))
    steps = sorted({span.step for span in spans})[every]
    seconds: dict[tuple[str, Kind, int], float] = defaultdict(float)
    for span in spans:
        seconds[span.name, span.kind, span.step] += span.seconds

    def middle(name: str, kind: Kind) -> float:
        return statistics.median(seconds[name, kind, step] for step in steps)

    names = dict.fromkeys(span.name for span in spans if span.step in steps)
    return [Timer(name, middle(name, Kind.WAIT), middle(name, Kind.MOVE)) for name in names]


def exposed(record: Record) -> dict[str, list[float]]:
    """Return, by rung, the seconds of moving bytes that nothing hides, in each round but the first.

    The median over the ranks, without the waiting for late ones, which no rung can hide. The rungs
    take turns: compare them round by round, since what disturbs a machine lasts longer than one.
    """
    split, rungs = timeline(record).split(), list(programs.RUNGS)
    steps = 1 + max(span.step for span in split.spans)
    seconds: dict[str, list[float]] = {rung: [] for rung in rungs}
    for step in range(len(rungs), steps):
        one = split.steps(step, step)
        moving = statistics.median(one.seconds(rank, Kind.MOVE) for rank in one.ranks)
        seconds[rungs[step % len(rungs)]].append(moving)
    return seconds


def benchmark() -> list[Record]:
    """Time all_reduce alone, as benchmarks do: a record for each size, here or as recorded."""
    cases = {f"all_reduce of {nbytes} bytes": nbytes for nbytes in SIZES}

    def measure(here: Place) -> list[Record]:
        times = here.launch(programs.time_all_reduce, SIZES)
        fields = {"experiment": NAME, "collective": "all_reduce"}
        return [
            here.record(case, [rank[place] for rank in times], nbytes=nbytes, **fields)
            for place, (case, nbytes) in enumerate(cases.items())
        ]

    return Place(HOSTS, RATE).records(measure, recording=RECORDING, experiment=NAME, cases=cases)


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Run the benchmark and each of `CASES`, which are short: `quick` changes nothing."""
    progress("all_reduce alone")
    measured = benchmark()
    for case, (program, args, rate) in CASES.items():
        progress(case)
        measured.append(on_hosts(program, *args, case=case, rate=rate))
    return measured
