"""Lesson 2: why does averaging gradients take 280 ms when the same bytes move in 60?

Four hosts run the thread's loop with a stopwatch around each of its 22 calls. Each timer is taken
apart: waiting for the last rank, and moving bytes.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.lessons.gradient_all_reduce import programs
from course.lessons.gradient_all_reduce.model import expected_latest
from course.runs import Say, quiet, watched
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.measure.timeline import Timeline
from labkit.measure.timing import slowest
from labkit.measure.trace import Kind
from labkit.ranks import torchrun
from labkit.ranks.launcher import launch

NAME = "gradient-all-reduce"
TITLE = "280 ms or 60? Averaging gradients"
RECORDING = Path(__file__).with_name("recording.json")
HOSTS, RATE, THIN = 4, "2gbit", "430mbit"
"""The thread's two bus bandwidths are 4.7 times apart; so are these two rates."""
WORLD_SIZES = (2, 4, 8, 16)
"""Numbers of ranks of which the latest is waited for."""
CASES: dict[str, tuple[Callable, tuple, str]] = {
    "late": (programs.train, (2,), RATE),
    "six or one": (programs.six_or_one, (), RATE),
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
    try:
        with Fabric.star(hosts=HOSTS, rate=rate) as fabric:
            return watched(lambda: [_traced(program, args, case, rate, fabric)])[0]
    except FabricUnavailable as reason:
        if case is None or torchrun.is_here():
            return watched(lambda: [_traced(program, args, case, None, None)])[0]
        print(f"{reason}\nShown instead: what another machine measured (RECORDED).")
    found = records.load(RECORDING, recorded=True, experiment=NAME)
    return next(record for record in found if record.case == case)


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
    by_name: dict[str, dict[int, dict[Kind, float]]] = {}
    for span in spans:
        parts = by_name.setdefault(span.name, {}).setdefault(span.step, {})
        parts[span.kind] = parts.get(span.kind, 0.0) + span.seconds

    def middle(found: dict[int, dict[Kind, float]], kind: Kind) -> float:
        return statistics.median(found.get(step, {}).get(kind, 0.0) for step in steps)

    return [
        Timer(name, middle(found, Kind.WAIT), middle(found, Kind.MOVE))
        for name, found in by_name.items()
        if not found.keys().isdisjoint(steps)
    ]


def exposed(record: Record, *, rank: int = 0, warmup: int = 1) -> dict[str, float]:
    """Return a rank's exposed communication by rung: the median over the rounds, in seconds."""
    whole, rungs = timeline(record), list(programs.RUNGS)
    steps = 1 + max(span.step for span in whole.spans)
    seconds: dict[str, list[float]] = {rung: [] for rung in rungs}
    for step in range(warmup * len(rungs), steps):
        seconds[rungs[step % len(rungs)]].append(whole.steps(step, step).exposed(rank))
    return {rung: statistics.median(found) for rung, found in seconds.items()}


def benchmark(sizes: Sequence[int] = (256, 4096, 65536, 7_600_000), iters: int = 7) -> list[Record]:
    """Time all_reduce alone, as benchmarks do: a record for each size."""

    def measure(fabric: Fabric | None) -> list[Record]:
        times = launch(
            programs.time_all_reduce, sizes, iters, world_size=fabric and HOSTS, fabric=fabric
        )
        return [
            _record(_benchmark_case(nbytes), [rank[place] for rank in times], fabric and RATE,
                    collective="all_reduce", nbytes=nbytes)
            for place, nbytes in enumerate(sizes)
        ]  # fmt: skip

    try:
        with Fabric.star(hosts=HOSTS, rate=RATE) as fabric:
            return watched(lambda: measure(fabric))
    except FabricUnavailable as reason:
        if torchrun.is_here():
            return watched(lambda: measure(None))
        print(f"{reason}\nShown instead: what another machine measured (RECORDED).")
    cases = set(map(_benchmark_case, sizes))
    found = records.load(RECORDING, recorded=True, experiment=NAME)
    return [record for record in found if record.case in cases]


def latest() -> list[Record]:
    """Return what the latest of n ranks costs, for each of `DELAYS` and several n, on loopback.

    ``values["lost"]`` are the seconds by which delays made a round longer, on average; `predicted`
    is a whole round's time by the model.
    """
    worlds = [None] if torchrun.is_here() else WORLD_SIZES
    return [
        record
        for name in programs.DELAYS
        for n in worlds
        for record in watched(lambda name=name, n=n: [_latest(name, n)])
    ]


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Run the benchmark, each of `CASES` and, unless it is to be `quick`, the latest of n ranks."""
    progress("all_reduce alone")
    found = benchmark()
    for case, (program, args, rate) in CASES.items():
        progress(case)
        found.append(on_hosts(program, *args, case=case, rate=rate))
    if not quick:
        progress("the latest of n ranks")
        found += latest()
    return found


def table(found: Sequence[Record]) -> Table:
    """Lay the records out: milliseconds per step of the slowest rank, and what a model expected."""
    rows = []
    for record in found:
        times = (record.summary.median, record.summary.p10, record.summary.p90)
        guess = record.predicted and round(1e3 * record.predicted, 1)
        rows.append([record.case, *(round(1e3 * seconds, 1) for seconds in times), guess])
    return Table(["case", "ms", "p10", "p90", "predicted ms"], rows)


def _benchmark_case(nbytes: int) -> str:
    return f"all_reduce of {nbytes} bytes"


def _traced(
    program: Callable, args: tuple, case: str | None, rate: str | None, fabric: Fabric | None
) -> Record:
    traces = launch(program, *args, world_size=fabric and HOSTS, fabric=fabric, timeout=120)
    whole = Timeline(traces)
    steps = sorted({span.step for span in whole.spans})
    samples = [[whole.steps(step, step).exposed(rank) for step in steps] for rank in whole.ranks]
    values = {"spans": whole.rows(), "clock_error": whole.clock_error}
    return _record(case or "a program of one's own", samples, rate, values=values)


def _latest(name: str, n: int | None) -> Record:
    delays = programs.DELAYS[name]
    by_rank = launch(programs.wait_for_latest, delays, world_size=n)
    rounds, n = slowest(by_rank), len(by_rank)
    calm = statistics.median(rounds[: -len(delays)])
    lost = statistics.fmean(rounds[-len(delays) :]) - calm
    samples = [seconds[-len(delays) :] for seconds in by_rank]
    values = {"lost": lost, "calm": calm, "delays": name}
    predicted = calm + expected_latest(delays, n)
    return _record(f"late {name}, {n} ranks", samples, None, values=values, predicted=predicted)


def _record(case: str, samples: list[list[float]], rate: str | None, **fields: Any) -> Record:
    tier = Tier.EMULATED if rate else Tier.MEASURED
    return Record(NAME, case, {"rate": rate}, samples, tier, Provenance.here(), **fields)
