"""Lesson 3: how should rank 0 give 320 tensors to the others: one by one, in buckets, or at once?

The question (PyTorch pull request 4978, 2018): DDP sent a model's state tensor by tensor; packed
into buckets of 10 MB, ResNet50's went 1.63 times as fast between two nodes. Here the same 320
sizes are sent on loopback and between two hosts, and packing, sending and unpacking timed apart.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.comm import buckets, shapes
from labkit.comm.buckets import PHASES
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch import torchrun
from labkit.launch.launcher import launch
from labkit.lessons.coalesced_broadcast.model import Coalescing
from labkit.lessons.coalesced_broadcast.programs import (
    CASES,
    ONE_BY_ONE,
    Case,
    fit,
    time_cases,
    time_parts,
)
from labkit.measure.records import Provenance, Record, Tier, load
from labkit.measure.tables import Table

NAME = "coalesced-broadcast"
TITLE = "One broadcast or three hundred?"
RECORDING = Path(__file__).with_name("recording.json")
RATE = "2gbit"


@dataclass(frozen=True, slots=True)
class Place:
    """Where ranks run, and how large the state is there."""

    world_size: int | None
    """None: all the ranks that torchrun started."""
    rate: str | None
    """Of each host's NIC; None: loopback."""
    width: float
    """Of the network: bytes go with its square, the number of tensors stays 320."""


PLACES = {
    "loopback, 2 ranks": Place(2, None, 1.0),
    "loopback, 4 ranks": Place(4, None, 1.0),
    "2 hosts": Place(2, RATE, 0.4),
}
TORCHRUN = "torchrun's ranks"


def calibrate(place: str) -> tuple[Coalescing, Record]:
    """Measure the model's four figures at a place; they come with the record they are from."""
    (record,) = _at(place, lambda at, fabric: [_parts(place, at, fabric)], ["parts"])
    return Coalescing(**record.values), record


def predict(model: Coalescing, case: Case, width: float) -> float:
    """Return the seconds that the model expects of a case."""
    specs = shapes.resnet50(width=width)
    planned = buckets.plan(specs, cap=case.cap)
    if case.flat:  # one lone tensor per bucket: nothing is packed
        return model.seconds([[bucket.nbytes] for bucket in planned])
    sizes = [[specs[i].nbytes for i in bucket.members] for bucket in planned]
    return model.seconds(sizes, kept=case.keep)


def measure(place: str, names: Sequence[str] = tuple(CASES), *, iters: int = 5) -> list[Record]:
    """Time the named cases at a place of `PLACES`, here or, without a fabric, as recorded.

    Raises:
        ValueError: an unknown place or case.
    """
    if place not in (*PLACES, TORCHRUN):
        raise ValueError(f"unknown place {place!r}; there are {list(PLACES)}.")
    if unknown := [name for name in names if name not in CASES]:
        raise ValueError(f"unknown cases {unknown}; there are {list(CASES)}.")
    return _at(place, lambda at, fabric: _measure(place, at, fabric, names, iters), names)


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Time all cases at all places; ``quick`` leaves out four ranks."""
    records = []
    quickly = [place for place in PLACES if PLACES[place].world_size == 2]
    for place in [TORCHRUN] if torchrun.is_here() else quickly if quick else PLACES:
        if progress:
            progress(place)
        records.append(calibrate(place)[1])
        records += measure(place, iters=5 if quick else 11)
    return records


def table(records: Sequence[Record]) -> Table:
    """Lay the records out: milliseconds per broadcast, speed-up, phases, and the prediction."""
    columns = ["place", "case", "calls", "ms", "p10", "p90", "x faster", "pack ms", "send ms"]
    columns += ["unpack ms", "page faults", "predicted ms"]
    models = {r.params["place"]: Coalescing(**r.values) for r in records if r.case == "parts"}
    baseline = {r.params["place"]: r.summary.median for r in records if r.case == ONE_BY_ONE}
    rows = []
    for record in records:
        if record.case == "parts":
            continue
        place, case = record.params["place"], CASES[record.case]
        times = [_ms(x) for x in (record.summary.median, record.summary.p10, record.summary.p90)]
        gain = round(baseline[place] / record.summary.median, 2) if place in baseline else ""
        phases = ["", "", ""] if case.torch_own else [_ms(record.values[p]) for p in PHASES]
        guess = ""
        if place in models and not case.torch_own:
            guess = _ms(predict(models[place], case, record.params["width"]))
        faults = round(record.values["faults"])
        row = [place, record.case, record.values["calls"], *times, gain, *phases, faults, guess]
        rows.append(row)
    return Table(columns, rows)


def by_case(records: Sequence[Record]) -> dict[str, Record]:
    """Return the records by the name of their case."""
    return {record.case: record for record in records}


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 1)


def _at(place: str, measure_at: Callable, names: Sequence[str]) -> list[Record]:
    at = Place(None, None, 1.0) if place == TORCHRUN else PLACES[place]
    if at.rate is None:
        return measure_at(at, None)
    try:
        with Fabric.star(hosts=at.world_size, rate=at.rate) as fabric:
            return measure_at(at, fabric)
    except FabricUnavailable as reason:
        print(f"{reason}\nShown instead: what another machine measured (RECORDED).")
    recorded = load(RECORDING, recorded=True)
    return [r for r in recorded if r.params["place"] == place and r.case in names]


def _measure(place: str, at: Place, fabric: Any, names: Sequence[str], iters: int) -> list[Record]:
    results = launch(
        time_cases, list(names), at.width, iters, world_size=at.world_size, fabric=fabric
    )
    records = []
    for index, name in enumerate(names):
        ranks = [rank[index] for rank in results]
        plan = buckets.plan(shapes.resnet50(width=at.width), cap=CASES[name].cap)
        source, receiver = ranks[0], ranks[-1]
        values = {"pack": source["pack"], "send": receiver["send"], "unpack": receiver["unpack"]}
        values |= {"calls": len(plan), "faults": max(rank["faults"] for rank in ranks)}
        records.append(_record(place, at, name, [rank["samples"] for rank in ranks], values))
    return records


def _parts(place: str, at: Place, fabric: Any) -> Record:
    results = launch(time_parts, 7, world_size=at.world_size, fabric=fabric)
    samples = [rank["small"] for rank in results]
    return _record(place, at, "parts", samples, dataclasses.asdict(fit(results)))


def _record(place: str, at: Place, name: str, samples: list[list[float]], values: dict) -> Record:
    return Record(
        NAME,
        name,
        {"place": place, "width": at.width, "rate": at.rate},
        samples,
        Tier.MEASURED if at.rate is None else Tier.EMULATED,
        Provenance.here(),
        collective=None if name == "parts" else "broadcast",
        nbytes=sum(spec.nbytes for spec in shapes.resnet50(width=at.width)),
        values=values,
    )
