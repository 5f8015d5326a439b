"""Lesson 6: three ways to sum a tensor over all ranks, and what each sends over the wires.

The question (GPU Puzzlers, 2023, "Communication is the Key to Success", puzzler 2): all_reduce;
reduce, then broadcast; reduce_scatter, then all_gather. Equal results: what decides their speed?

Each case runs on hosts whose links are shaped (EMULATED), so that the time is the wire's and not
the scheduler's, and where no fabric can be made on loopback (MEASURED), where it is. Every answer
is checked before it is timed, and the same call's bytes are counted.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course import runs
from course.comm import collectives
from course.lessons.equivalent_collectives import programs
from course.place import Place
from labkit.fabric.errors import FabricUnavailable
from labkit.measure import records, wire
from labkit.measure.records import Record, bus_factor
from labkit.measure.tables import Table
from labkit.ranks import torchrun

NAME = "equivalent-collectives"
TITLE = "Three ways to sum"
RATE = "200mbit"
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


TWO_LEVELS = ("ring all_reduce", "two-level all_reduce")


@dataclass(frozen=True, slots=True)
class Setting(Place):
    """Where cases are measured, and with how much."""

    rate: str | None = RATE
    nbytes: int = NBYTES
    """S. Must divide by 2 x 4096 x ranks, so that payload can be told from headers."""

    def has(self, record: Record) -> bool:
        """Tell whether a record was measured in this setting."""
        return Place.has(self, record) and record.nbytes == self.nbytes


LOOPBACK = Setting(rate=None)
FOUR, EIGHT = Setting(hosts=4), Setting(hosts=8)
EIGHT_FASTER = Setting(hosts=8, nbytes=8 * 2**20, rate="400mbit")
TWO_BY_TWO = Setting(hosts=2, ranks_per_host=2)


def compare(
    cases: Sequence[str], setting: Setting, *, iters: int = 3, progress: runs.Say = runs.quiet
) -> list[Record]:
    """Measure cases, by their names in `programs.ALL`, side by side.

    Returns:
        A record per case. `predicted`: seconds at the link's payload rate for the least bytes that
        the collective can do with on ranks with a link each (None on loopback). `values`: `sent`,
        bytes in units of S, per rank; `matrix`, the same by sender and receiver.

    Raises:
        FabricUnavailable: a rate was given and hosts cannot be made here.
    """
    progress(f"{len(cases)} cases on {setting.world_size} ranks, {setting.link}")
    with setting.up() as here:
        return runs.watched(lambda: _measure(here, cases, iters))


def compare_or_recorded(cases: Sequence[str], setting: Setting, *, iters: int = 3) -> list[Record]:
    """Measure as `compare` does, or return the recorded run.

    Raises:
        LookupError: There is no fabric here, and nothing of the kind was recorded.
    """
    where = {"recording": RECORDING, "experiment": NAME, "cases": cases}
    found = setting.records(lambda here: _measure(here, cases, iters), **where)
    there = runs.by_case(found)
    if missing := set(cases) - there.keys():
        raise LookupError(f"{RECORDING.name} has no {missing} on {setting}")
    return [there[name] for name in cases]


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run all cases on loopback and on 4 and 8 hosts, then those of a few other settings.

    Under torchrun: on the ranks and the network that are there.
    """
    more = {"iters": 2 if quick else 5, "progress": progress}
    if torchrun.is_here():
        return _under_torchrun(**more)
    found = compare(CASES, LOOPBACK, **more)
    try:
        found += compare((*CASES, *programs.SWAPS), FOUR, **more)
        found += compare(TWO_LEVELS, TWO_BY_TWO, **more)
        if not quick:
            found += compare(CASES, EIGHT, **more)
        found += compare(BROADCASTS, EIGHT_FASTER, **more | {"iters": 1 if quick else 3})
    except FabricUnavailable as reason:
        progress(f"no fabric: {reason.cause}; loopback only")
    return found


def _under_torchrun(**more: Any) -> list[Record]:
    """Run on all ranks; on GPUs without the hand-written cases.

    They send and receive with calls of their own, which NCCL puts into one queue: in a circle of
    ranks each would wait for a receive that stands behind its send.
    """
    ranks = int(os.environ["WORLD_SIZE"])
    on_gpus = collectives.carrier(ranks) == "nccl"
    unit = 2 * 4096 * ranks
    nbytes = -(-(ON_GPUS if on_gpus else NBYTES) // unit) * unit
    cases = (*LIBRARY, *TWO_STEPS) if on_gpus else CASES
    return compare(cases, Setting(ranks, nbytes, rate=None), **more)


def recorded_matrix(name: str) -> list[list[float]]:
    """Return what a case sent in units of S, counted on another machine: row = sender."""
    return next(
        record.values["matrix"]
        for record in records.load(RECORDING, recorded=True, experiment=NAME)
        if (record.case, record.world_size) == (name, FOUR.hosts)
    )


def least(name: str, n: int) -> float:
    """Return the bytes, in units of S, that the busiest link must carry whatever the algorithm.

    Sources: as in `course.comm.costs`; equal to nccl-tests' bus factors.
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
        where = [r.case, r.world_size, r.params["rate"], r.nbytes / 2**20]
        times = [t.median * 1e3, t.p10 * 1e3, t.p90 * 1e3]
        times += [ideal * 1e3, t.median / ideal] if ideal else [None, None]
        sums = [max(sent), sum(sent)] if sent else [None, None]
        rows.append([*where, *times, r.algbw / 1e6, r.busbw / 1e6, *sums, str(r.tier)])
    return Table(columns, rows)


def fastest(found: Sequence[Record]) -> dict[str, float]:
    """Return the shortest of each case's calls, in seconds: a busy machine can only add to it."""
    return {record.case: min(record.seconds) for record in found}


def _measure(here: Setting, cases: Sequence[str], iters: int) -> list[Record]:
    """Measure in a setting that is up."""
    n, nbytes = here.world_size, here.nbytes
    results = here.launch(programs.measure, tuple(cases), nbytes, iters, timeout=120.0)
    found = []
    for name in cases:
        reports = [result[name]["report"] for result in results]
        found.append(
            here.record(
                name, [result[name]["samples"] for result in results], experiment=NAME,
                collective=programs.ALL[name].name, nbytes=nbytes, values=_sent(reports, nbytes),
                predicted=least(name, n) * nbytes * here.beta if here.beta else None,
            )
        )  # fmt: skip
    return found


def _sent(reports: list[wire.Report], nbytes: int) -> dict[str, Any]:
    """Return what was sent in units of S, by rank and by pair, or None where nobody counted."""
    try:
        matrix = wire.payload(reports) / nbytes
    except (wire.WireUnavailable, wire.WireMismatch):  # NCCL's bytes go other ways
        return {"sent": None, "matrix": None}
    return {"sent": matrix.sum(axis=1).tolist(), "matrix": matrix.tolist()}
