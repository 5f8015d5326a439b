"""Lesson 6: three ways to sum a tensor over all ranks, and what each sends over the wires.

The question (GPU Puzzlers, 2023, "Communication is the Key to Success", puzzler 2): all_reduce;
reduce, then broadcast; reduce_scatter, then all_gather. Equal results: what decides their speed?

Each case runs on hosts whose links are shaped (EMULATED), so that the time is the wire's and not
the scheduler's, and where no fabric can be made on loopback (MEASURED), where it is. Every answer
is checked before it is timed, and the same call's bytes are counted.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from labkit.comm import collectives
from labkit.comm.collectives import my_device
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch import torchrun
from labkit.launch.launcher import launch
from labkit.lessons.equivalent_collectives import variants
from labkit.measure import records, timing, wire
from labkit.measure.records import Provenance, Record, Tier, bus_factor
from labkit.measure.tables import Table

NAME = "equivalent-collectives"
TITLE = "Three ways to sum"
RATE, FASTER = "200mbit", "400mbit"
NBYTES = 2 * 2**20
ON_GPUS = 2**28
"""S where NCCL carries it: 2 MiB would time the start of a kernel."""
RECORDING = Path(__file__).with_name("recording.json")

LIBRARY = ("all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather")
TWO_STEPS = ("reduce + broadcast", "reduce_scatter + all_gather")
HAND = (
    "ring all_reduce",
    "ring reduce_scatter + all_gather",
    "ring reduce_scatter",
    "ring all_gather",
    "pipelined broadcast",
)
CASES = (*LIBRARY, *TWO_STEPS, *HAND)
BROADCASTS = (
    "broadcast",
    "tree broadcast, all at once",
    "tree broadcast",
    "pipelined broadcast",
)
SWAPS = ("swap, send posted first", "swap, receive posted first")


def program(cases: Sequence[str], nbytes: int, iters: int) -> dict[str, dict[str, Any]]:
    """Check, meter and time each case; runs on every rank.

    Returns:
        By case: `samples`, seconds per call, and `report`, the wire meter's.
    """
    rank, n, numel = dist.get_rank(), dist.get_world_size(), nbytes // 4
    results = {}
    with my_device():
        for name in cases:
            case = variants.ALL[name]
            buffers = case.prepare(numel, rank=rank, world_size=n)
            with wire.meter() as m:
                case.run(buffers, None)
            case.check(buffers, numel=numel, rank=rank, world_size=n)
            buffers.source.zero_()
            call = partial(case.run, buffers, None)
            samples = timing.time_calls(call, warmup=0, iters=iters)
            results[name] = {"samples": samples, "report": m.report}
    return results


def compare(
    cases: Sequence[str] = CASES,
    *,
    hosts: int = 4,
    nbytes: int = NBYTES,
    rate: str | None = RATE,
    iters: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Measure cases side by side, one rank per host.

    Args:
        cases: Names from `labkit.lessons.equivalent_collectives.variants.ALL`.
        hosts: World size.
        nbytes: S. Must divide by 2 x 4096 x hosts, so that payload can be told from headers.
        rate: Of every host's link; None for loopback.
        iters: Calls that are timed, per case.
        progress: Told what happens.

    Returns:
        A record per case. `predicted`: seconds at the link's payload rate for the least bytes that
        the collective can do with (None on loopback). `values`: `sent`, bytes in units of S, per
        rank; `matrix`, the same by sender and receiver; `alpha` and `beta` of the link.

    Raises:
        FabricUnavailable: a rate was given and hosts cannot be made here.
    """
    params = {"hosts": hosts, "rate": rate or ("torchrun" if torchrun.is_here() else "loopback")}
    if progress:
        progress(f"{len(cases)} cases on {hosts} ranks, {params['rate']}")
    carrier = collectives.carrier(hosts) if torchrun.is_here() else "gloo"
    with Fabric.star(hosts=hosts, rate=rate) if rate else nullcontext() as fabric:
        where = {} if torchrun.is_here() else {"fabric": fabric, "backend": "gloo"}
        alpha = statistics.median(launch(collectives.ping_pong, 4, world_size=2, **where)[0])
        results = launch(
            program, tuple(cases), nbytes, iters, world_size=hosts, timeout=120.0, **where
        )
        beta = 1 / fabric.payload_rate(0, 1) if fabric else None
    link = {"alpha": alpha, "beta": beta}
    return [_record(name, params, nbytes, link, results, carrier) for name in cases]


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Run all cases on 4 and 8 hosts, and the 8-host broadcast of 8 MiB; on loopback without.

    Under torchrun: on the ranks and the network that are there.
    """
    iters = 2 if quick else 5
    if torchrun.is_here():
        return _under_torchrun(iters, progress)
    found = compare(hosts=4, rate=None, iters=iters, progress=progress)
    try:
        found += compare((*CASES, *SWAPS), hosts=4, iters=iters, progress=progress)
        if not quick:
            found += compare(hosts=8, iters=iters, progress=progress)
        found += broadcast_on_eight(iters=1 if quick else 3, progress=progress)
    except FabricUnavailable as reason:
        if progress:
            progress(f"no fabric: {reason.cause}; loopback only")
    return found


def _under_torchrun(iters: int, progress: Callable[[str], None] | None) -> list[Record]:
    """Run on all ranks; on GPUs without the hand-written cases.

    They send and receive with calls of their own, which NCCL puts into one queue: in a circle of
    ranks each would wait for a receive that stands behind its send.
    """
    ranks = int(os.environ["WORLD_SIZE"])
    on_gpus = collectives.carrier(ranks) == "nccl"
    unit = 2 * 4096 * ranks
    nbytes = -(-(ON_GPUS if on_gpus else NBYTES) // unit) * unit
    cases = (*LIBRARY, *TWO_STEPS) if on_gpus else CASES
    return compare(cases, hosts=ranks, nbytes=nbytes, rate=None, iters=iters, progress=progress)


def broadcast_on_eight(
    *, iters: int = 3, progress: Callable[[str], None] | None = None
) -> list[Record]:
    """Measure gloo's broadcast against ours: 8 MiB to 8 hosts."""
    return compare(
        BROADCASTS, hosts=8, nbytes=8 * 2**20, rate=FASTER, iters=iters, progress=progress
    )


def compare_or_recorded(
    cases: Sequence[str],
    *,
    hosts: int,
    nbytes: int = NBYTES,
    rate: str = RATE,
    iters: int = 3,
) -> list[Record]:
    """Measure as `compare` does; where no fabric can be made, say so and return a recorded run.

    Raises:
        ValueError: there is no fabric here, and the recorded run lacks one of the cases.
    """
    try:
        return _calm(lambda: compare(cases, hosts=hosts, nbytes=nbytes, rate=rate, iters=iters))
    except FabricUnavailable as reason:
        print(f"{reason}\nWhat follows was recorded on another machine.")
    there = {
        record.case: record
        for record in records.load(RECORDING, recorded=True, experiment=NAME)
        if (record.world_size, record.nbytes, record.params["rate"]) == (hosts, nbytes, rate)
    }
    if missing := set(cases) - there.keys():
        raise ValueError(
            f"{RECORDING.name} has no {hosts} hosts of {rate}, {nbytes} bytes: {missing}"
        )
    return [there[name] for name in cases]


def recorded_matrix(name: str, *, hosts: int = 4) -> list[list[float]]:
    """Return what a case sent in units of S, counted on another machine: row = sender."""
    return next(
        record.values["matrix"]
        for record in records.load(RECORDING, recorded=True, experiment=NAME)
        if (record.case, record.world_size) == (name, hosts)
    )


def least(name: str, n: int) -> float:
    """Return the bytes, in units of S, that the busiest link must carry whatever the algorithm.

    Sources: as in `labkit.comm.costs`; equal to nccl-tests' bus factors.
    """
    return bus_factor(variants.ALL[name].name, n)


def table(found: Sequence[Record]) -> Table:
    """Lay the records out for reading."""
    columns = [
        "case", "ranks", "link", "S (MiB)", "ms", "p10", "p90", "ideal ms", "x ideal",
        "algbw MB/s", "busbw MB/s", "most sent (S)", "all sent (S)", "tier",
    ]  # fmt: skip
    rows = []
    for record in found:
        summary, ideal, sent = record.summary, record.predicted, record.values["sent"]
        rows.append(
            [
                record.case,
                record.world_size,
                record.params["rate"],
                round(record.nbytes / 2**20, 2),
                *(round(t * 1e3, 1) for t in (summary.median, summary.p10, summary.p90)),
                round(ideal * 1e3, 1) if ideal else "",
                round(summary.median / ideal, 2) if ideal else "",
                round(record.algbw / 1e6, 1),
                round(record.busbw / 1e6, 1),
                round(max(sent), 3) if sent else "",
                round(sum(sent), 3) if sent else "",
                str(record.tier),
            ]
        )
    return Table(columns, rows)


def fastest(found: Sequence[Record]) -> dict[str, float]:
    """Return the shortest of each case's calls, in seconds: a busy machine can only add to it."""
    return {record.case: min(record.seconds) for record in found}


def by_case(found: Sequence[Record]) -> dict[str, Record]:
    """Return records by the name of their case."""
    return {record.case: record for record in found}


def _calm(measure: Callable[[], list[Record]], *, attempts: int = 2) -> list[Record]:
    """Measure; when something else disturbed the run, say so and measure again.

    A case is calm when its slowest call took at most 25 % longer than its fastest. The calmest run
    counts, whatever it says.
    """

    def unrest(found: list[Record]) -> float:
        return max(max(record.seconds) / min(record.seconds) for record in found)

    runs = [measure()]
    while unrest(runs[-1]) > 1.25 and len(runs) < attempts:
        print(f"disturbed (calls of one case differ {unrest(runs[-1]):.2f}-fold): measuring again")
        runs.append(measure())
    return min(runs, key=unrest)


def _record(
    name: str,
    params: dict[str, Any],
    nbytes: int,
    link: dict[str, Any],
    results: list,
    carrier: str,
) -> Record:
    n, beta = len(results), link["beta"]
    reports = [result[name]["report"] for result in results]
    return Record(
        NAME,
        name,
        params,
        [result[name]["samples"] for result in results],
        Tier.EMULATED if beta else Tier.MEASURED,
        Provenance.here(carrier),
        collective=variants.ALL[name].name,
        nbytes=nbytes,
        values={
            **_sent(reports if carrier == "gloo" else [], nbytes),
            **link,
        },
        predicted=least(name, n) * nbytes * beta if beta else None,
    )


def _sent(reports: list[wire.Report], nbytes: int) -> dict[str, list | None]:
    """Return what was sent in units of S, by rank and by pair, or None where nobody counted."""
    try:
        matrix = wire.payload(reports) / nbytes if reports else None
    except wire.WireUnavailable:
        matrix = None
    if matrix is None:
        return {"sent": None, "matrix": None}
    return {"sent": matrix.sum(axis=1).tolist(), "matrix": matrix.tolist()}
