"""Lesson 2: why does averaging gradients take 280 ms when the same bytes move in 60?

A VGG11 in small trains on four hosts; each case averages its gradients in another way, some with a
rank whose storage is slow. What a timer around the all_reduce shows is taken apart: waiting for the
late rank, and moving bytes.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from course.comm.buckets import MB
from course.lessons.gradient_all_reduce.model import expected_latest
from course.lessons.gradient_all_reduce.programs import (
    CASES,
    CONTROL,
    DELAYS,
    LADDER,
    THREAD,
    Setup,
    Trained,
    Workload,
    time_all_reduce,
    train_all,
    vgg11,
    wait_for_latest,
)
from course.runs import Say, measured_or_recorded, quiet, watched
from labkit.fabric.fabric import Fabric
from labkit.measure import wire
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
HOSTS, RATE = 4, "2gbit"
WORKLOAD = Workload(delay=0.1)
WORLD_SIZES = (2, 4, 8, 16)
"""Numbers of ranks of which the latest is waited for."""
SMALL_SIZES = (256, 4096, 65536, MB)
"""Bytes of the all_reduces that are timed beside the gradients' own size."""


def benchmark(sizes: Sequence[int]) -> list[Record]:
    """Return a record for each size of all_reduce, on the fabric or as recorded."""
    cases = list(map(_benchmark_case, sizes))
    return _on_hosts(lambda fabric: _benchmark(fabric, sizes), cases)


def measure(
    cases: Mapping[str, Setup], *, steps: int = 4, workload: Workload = WORKLOAD
) -> list[Record]:
    """Train in each way on four hosts and return a record for each.

    Where hosts cannot be made here, the records are those of another machine, and say so. A way may
    be a class that was typed in a notebook; `steps` are measured after the warm-up.
    """
    return _on_hosts(lambda fabric: _measure(fabric, cases, steps, workload), list(cases))


def latest() -> list[Record]:
    """Return what the latest of n ranks costs, for each of `DELAYS` and several n, on loopback.

    ``values["lost"]`` are the seconds by which delays made a round longer, on average; `predicted`
    is a whole round's time by the model.
    """
    worlds = [None] if torchrun.is_here() else WORLD_SIZES
    return [
        record for name in DELAYS for n in worlds for record in watched(partial(_latest, name, n))
    ]


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Run the benchmark and all cases; `quick` leaves out the sweep and the compression."""
    sizes = [*SMALL_SIZES, gradient_bytes()]
    cases = LADDER | CONTROL if quick else CASES

    def everything(fabric: Fabric | None) -> list[Record]:
        progress("all_reduce alone")
        records = watched(lambda: _benchmark(fabric, sizes))
        for name, setup in cases.items():
            progress(name)
            once = partial(_measure, fabric, {name: setup}, 3 if quick else 8, WORKLOAD)
            records += watched(once)
        return records

    records = _on_hosts(everything, [*map(_benchmark_case, sizes), *cases])
    progress("the latest of n ranks")
    return records + latest()


def table(records: Sequence[Record]) -> Table:
    """Lay the records out: milliseconds per step, and how many times less is exposed."""
    columns = ["case", "step ms", "p10", "p90", "exposed ms", "waiting", "moving", "hidden"]
    columns += ["MB sent", "exposed, x less", "predicted ms"]
    first = next((r.values["exposed"] for r in records if r.case == THREAD), None)
    rows = []
    for record in records:
        summary, values = record.summary, record.values
        times = [_ms(x) for x in (summary.median, summary.p10, summary.p90)]
        if record.params["part"] != "training":
            whole = times[0] if record.params["part"] == "benchmark" else None
            guess = record.predicted and _ms(record.predicted)
            rows.append([record.case, *times, whole, None, whole, *[None] * 3, guess])
            continue
        parts = [_ms(values[key]) for key in ("exposed", "waiting", "moving", "hidden")]
        sent = None if values["sent"] is None else round(values["sent"] / MB, 2)
        less = round(first / values["exposed"], 1) if first else None
        rows.append([record.case, *times, *parts, sent, less, None])
    return Table(columns, rows)


def timeline(record: Record) -> Timeline:
    """Return the timeline of two consecutive steps of a case, the least disturbed ones."""
    return Timeline.from_rows(record.values["spans"], clock_error=record.values["clock_error"])


def gradient_bytes() -> int:
    """Return the bytes of all gradients together."""
    return sum(parameter.nbytes for parameter in vgg11(WORKLOAD).parameters())


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 1)


def _on_hosts(
    measure_on: Callable[[Fabric | None], list[Record]], cases: Sequence[str]
) -> list[Record]:
    def here(fabric: Fabric | None) -> list[Record]:
        return watched(lambda: measure_on(fabric))

    star = Fabric.star(hosts=HOSTS, rate=RATE)
    return measured_or_recorded(here, star, recording=RECORDING, experiment=NAME, cases=cases)


def _benchmark_case(nbytes: int) -> str:
    return f"all_reduce of {nbytes} bytes"


def _benchmark(fabric: Fabric | None, sizes: Sequence[int], iters: int = 7) -> list[Record]:
    times = launch(time_all_reduce, sizes, iters, world_size=fabric and HOSTS, fabric=fabric)
    return [
        _record(fabric, _benchmark_case(nbytes), {"part": "benchmark"}, [rank[i] for rank in times],
                collective="all_reduce", nbytes=nbytes)
        for i, nbytes in enumerate(sizes)
    ]  # fmt: skip


def _measure(
    fabric: Fabric | None, cases: Mapping[str, Setup], steps: int, workload: Workload
) -> list[Record]:
    args = (list(cases.values()), workload, steps)
    by_rank = launch(
        train_all, *args, world_size=fabric and HOSTS, fabric=fabric, timeout=120 + 20 * len(cases)
    )
    records = []
    for (name, setup), ranks in zip(cases.items(), zip(*by_rank, strict=True), strict=True):
        samples, values = _take_apart(ranks, steps, setup.micro_batches)
        params = {"part": "training", "steps": steps}
        records.append(_record(fabric, name, params, samples, values=values))
    return records


def _latest(name: str, n: int | None) -> list[Record]:
    delays = DELAYS[name]
    by_rank = launch(wait_for_latest, delays, world_size=n)
    rounds, n = slowest(by_rank), len(by_rank)
    calm = statistics.median(rounds[: -len(delays)])
    lost = statistics.fmean(rounds[-len(delays) :]) - calm
    samples = [seconds[-len(delays) :] for seconds in by_rank]
    params = {"part": "latest", "delays": name}
    predicted = calm + expected_latest(delays, n)
    values = {"lost": lost, "calm": calm}
    case = f"late {name}, {n} ranks"
    return [_record(None, case, params, samples, values=values, predicted=predicted)]


def _record(
    fabric: Fabric | None, case: str, params: dict, samples: list[list[float]], **fields: Any
) -> Record:
    params |= {"rate": RATE if fabric else None}
    tier = Tier.EMULATED if fabric else Tier.MEASURED
    return Record(NAME, case, params, samples, tier, Provenance.here(), **fields)


def _take_apart(ranks: Sequence[Trained], steps: int, micro_batches: int) -> tuple[list, dict]:
    """Return seconds per step, and the parts of a step on rank 0, which reports as in the thread.

    Rank 0 is never the late one. All figures are per batch.
    """
    whole = Timeline([rank.trace for rank in ranks])
    split = whole.split()
    one = [split.steps(step, step) for step in range(1, steps + 1)]

    def per_step(seconds: Callable[[Timeline], float], choose: Callable = statistics.median):
        return choose([seconds(step) for step in one]) / micro_batches

    samples = [_step_seconds(whole, rank, micro_batches) for rank in whole.ranks]
    calm = _calmest_pair(slowest(samples))
    values = {
        "exposed": per_step(lambda part: part.exposed(0)),
        "exposed_best": per_step(lambda part: part.exposed(0), min),
        "waiting": per_step(lambda part: part.seconds(0, Kind.WAIT)),
        "moving": per_step(lambda part: part.seconds(0, Kind.MOVE)),
        "packing": per_step(lambda part: part.seconds(0, Kind.PACK)),
        "compute": per_step(lambda part: part.seconds(0, Kind.COMPUTE)),
        "hidden": per_step(lambda part: part.hidden(0)),
        "sent": _bytes_sent(ranks, steps * micro_batches),
        "losses": [statistics.fmean(step) for step in zip(*(r.losses for r in ranks), strict=True)],
        "clock_error": whole.clock_error,
        "spans": whole.steps(calm, calm + 1).rows(),
    }
    return samples, values


def _calmest_pair(seconds: Sequence[float]) -> int:
    """Return the first of two consecutive steps, counted from 1, that took least time together.

    Other programs on the machine can only add time, so these steps are the least disturbed.
    """
    pairs = [sum(seconds[k : k + 2]) for k in range(max(1, len(seconds) - 1))]
    return 1 + pairs.index(min(pairs))


def _step_seconds(timeline: Timeline, rank: int, micro_batches: int) -> list[float]:
    ends: dict[int, float] = {}
    for span in timeline.of(rank, channel="main"):
        ends[span.step] = max(ends.get(span.step, 0.0), span.end)
    return [(ends[step] - ends[step - 1]) / micro_batches for step in sorted(ends) if step]


def _bytes_sent(ranks: Sequence[Trained], steps: int) -> float | None:
    """Return the bytes that a rank puts on the wire per step; None where they cannot be read."""
    try:
        sent = wire.matrix([rank.wire for rank in ranks])
    except (wire.WireUnavailable, wire.WireMismatch):
        return None
    return float(sent.sum()) / len(ranks) / steps
