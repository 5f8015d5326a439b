"""Lesson 6: three ways to sum a tensor over all ranks, and what each sends over the wires.

The question (GPU Puzzlers, 2023, "Communication is the Key to Success", puzzler 2): all_reduce;
reduce, then broadcast; reduce_scatter, then all_gather. Equal results: what decides their speed?

Each case runs on hosts whose links are shaped (EMULATED), so that the time is the wire's and not
the scheduler's, and where no fabric can be made on loopback (MEASURED), where it is. Every answer
is checked before it is timed, and the same call's bytes are counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labkit.comm import collectives
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch import torchrun
from labkit.launch.launcher import launch
from labkit.lessons.equivalent_collectives import programs
from labkit.measure import records, runs, wire
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
BROADCASTS = ("broadcast", "tree broadcast, all at once", "tree broadcast", "pipelined broadcast")


def compare(
    cases: Sequence[str] = CASES,
    *,
    hosts: int = 4,
    nbytes: int = NBYTES,
    rate: str | None = RATE,
    iters: int = 3,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Record]:
    """Measure cases side by side, one rank per host.

    Args:
        cases: Names from `labkit.lessons.equivalent_collectives.programs.ALL`.
        hosts: World size.
        nbytes: S. Must divide by 2 x 4096 x hosts, so that payload can be told from headers.
        rate: Of every host's link; None for loopback, or for the network between torchrun's ranks.
        iters: Calls that are timed, per case.
        progress: Told what happens.

    Returns:
        A record per case. `predicted`: seconds at the link's payload rate for the least bytes that
        the collective can do with (None on loopback). `values`: `sent`, bytes in units of S, per
        rank; `matrix`, the same by sender and receiver.

    Raises:
        FabricUnavailable: a rate was given and hosts cannot be made here.
    """
    progress(f"{len(cases)} cases on {hosts} ranks, {rate or 'no fabric'}")
    if rate is None:
        return _measure(None, cases, hosts, nbytes, rate, iters)
    with Fabric.star(hosts=hosts, rate=rate) as fabric:
        return _measure(fabric, cases, hosts, nbytes, rate, iters)


def compare_or_recorded(
    cases: Sequence[str],
    *,
    hosts: int,
    nbytes: int = NBYTES,
    rate: str = RATE,
    iters: int = 3,
) -> list[Record]:
    """Measure as `compare` does, again where something disturbed it; or return the recorded run.

    A case is calm when its slowest call took at most 25 % longer than its fastest.

    Raises:
        LookupError: There is no fabric here, and nothing of the kind was recorded.
    """

    def unrest(found: list[Record]) -> float:
        return max(max(record.seconds) / min(record.seconds) for record in found)

    found = runs.measured_or_recorded(
        lambda fabric: runs.repeat_if_disturbed(
            lambda: _measure(fabric, cases, hosts, nbytes, rate, iters),
            unrest=unrest,
            limit=1.25,
            attempts=2,
        ),
        Fabric.star(hosts=hosts, rate=rate),
        recording=RECORDING,
        experiment=NAME,
        keep=lambda r: (r.world_size, r.nbytes, r.params["rate"]) == (hosts, nbytes, rate),
    )
    there = runs.by_case(found)
    if missing := set(cases) - there.keys():
        raise LookupError(f"{RECORDING.name} has no {missing} on {hosts} hosts of {rate}")
    return [there[name] for name in cases]


def run(
    *, quick: bool = False, progress: Callable[[str], None] = lambda text: None
) -> list[Record]:
    """Run all cases on 4 and 8 hosts, and the 8-host broadcast of 8 MiB; on loopback without.

    Under torchrun: on the ranks and the network that are there.
    """
    iters = 2 if quick else 5
    if torchrun.is_here():
        return _under_torchrun(iters, progress)
    found = compare(hosts=4, rate=None, iters=iters, progress=progress)
    try:
        found += compare((*CASES, *programs.SWAPS), hosts=4, iters=iters, progress=progress)
        if not quick:
            found += compare(hosts=8, iters=iters, progress=progress)
        eight = {"hosts": 8, "nbytes": 8 * 2**20, "rate": FASTER}
        found += compare(BROADCASTS, **eight, iters=1 if quick else 3, progress=progress)
    except FabricUnavailable as reason:
        progress(f"no fabric: {reason.cause}; loopback only")
    return found


def _under_torchrun(iters: int, progress: Callable[[str], None]) -> list[Record]:
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
    return bus_factor(programs.ALL[name].name, n)


def table(found: Sequence[Record]) -> Table:
    """Lay the records out for reading."""
    columns = [
        "case", "ranks", "link", "S (MiB)", "ms", "p10", "p90", "ideal ms", "x ideal",
        "algbw MB/s", "busbw MB/s", "most sent (S)", "all sent (S)", "tier",
    ]  # fmt: skip
    rows = []
    for r in found:
        t, ideal, sent = r.summary, r.predicted, r.values["sent"]
        rows.append(
            [
                *(r.case, r.world_size, r.params["rate"], r.nbytes / 2**20),
                *(t.median * 1e3, t.p10 * 1e3, t.p90 * 1e3),
                *((ideal * 1e3, t.median / ideal) if ideal else (None, None)),
                *(r.algbw / 1e6, r.busbw / 1e6),
                *((max(sent), sum(sent)) if sent else (None, None)),
                str(r.tier),
            ]
        )
    return Table(columns, rows)


def fastest(found: Sequence[Record]) -> dict[str, float]:
    """Return the shortest of each case's calls, in seconds: a busy machine can only add to it."""
    return {record.case: min(record.seconds) for record in found}


def _measure(
    fabric: Fabric | None,
    cases: Sequence[str],
    ranks: int,
    nbytes: int,
    rate: str | None,
    iters: int,
) -> list[Record]:
    """Measure on a fabric that has started; without one on loopback, with gloo, or for torchrun."""
    here = torchrun.is_here()
    carrier = collectives.carrier(ranks) if here else "gloo"
    where = {} if here else {"fabric": fabric, "backend": "gloo"}
    results = launch(
        programs.measure, tuple(cases), nbytes, iters, world_size=ranks, timeout=120.0, **where
    )
    beta = 1 / fabric.payload_rate(0, 1) if fabric else None
    return [
        Record(
            NAME,
            name,
            {"hosts": ranks, "rate": "torchrun" if here else rate or "loopback"},
            [result[name]["samples"] for result in results],
            Tier.EMULATED if fabric else Tier.MEASURED,
            Provenance.here(carrier),
            collective=programs.ALL[name].name,
            nbytes=nbytes,
            values=_sent([result[name]["report"] for result in results], nbytes, carrier),
            predicted=least(name, ranks) * nbytes * beta if beta else None,
        )
        for name in cases
    ]


def _sent(reports: list[wire.Report], nbytes: int, carrier: str) -> dict[str, Any]:
    """Return what was sent in units of S, by rank and by pair, or None where nobody counted."""
    try:
        matrix = wire.payload(reports) / nbytes if carrier == "gloo" else None
    except wire.WireUnavailable:
        matrix = None
    if matrix is None:
        return {"sent": None, "matrix": None}
    return {"sent": matrix.sum(axis=1).tolist(), "matrix": matrix.tolist()}
