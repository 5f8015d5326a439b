"""Lesson 3: how should rank 0 give 320 tensors to the others: one by one, in buckets, or at once?

The question (PyTorch pull request 4978, 2018): DDP sent a model's state tensor by tensor; about 100
MB in one coalesced broadcast went 1.63 times as fast between two nodes. Here the 320 sizes of
ResNet50 are sent on loopback and between two hosts, and packing, sending and unpacking timed apart.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.comm import buckets, shapes
from course.comm.buckets import MB, PHASES
from course.lessons.coalesced_broadcast.model import Coalescing
from course.lessons.coalesced_broadcast.programs import (
    CASES,
    ONE_BY_ONE,
    fit,
    time_case,
    time_parts,
)
from course.runs import Say, measured_or_recorded, quiet, watched
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks import torchrun
from labkit.ranks.launcher import launch

NAME = "coalesced-broadcast"
TITLE = "One broadcast or three hundred?"
RECORDING = Path(__file__).with_name("recording.json")
RATE = "2gbit"
PARTS = "parts"
"""The case that measured what the model is made of; its values are a `Coalescing`."""


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


def measure(place: str, names: Sequence[str] = tuple(CASES), *, iters: int = 5) -> list[Record]:
    """Time the named cases at a place of `PLACES`, here or, without a fabric, as recorded.

    Returns:
        The record of the model's parts first (`model_of`), then one for each case, with what the
        model predicted for it.

    Raises:
        ValueError: An unknown place or case.
    """
    if place not in (*PLACES, TORCHRUN):
        raise ValueError(f"unknown place {place!r}; there are {list(PLACES)}.")
    if unknown := [name for name in names if name not in CASES]:
        raise ValueError(f"unknown cases {unknown}; there are {list(CASES)}.")
    at = PLACES.get(place, Place(None, None, 1.0))
    return measured_or_recorded(
        lambda fabric: watched(lambda: _measure(place, at, fabric, names, iters)),
        Fabric.star(hosts=at.world_size, rate=at.rate) if at.rate else None,
        recording=RECORDING,
        experiment=NAME,
        keep=lambda r: r.params["place"] == place and r.case in (PARTS, *names),
    )


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Time all cases at all places; `quick` leaves out four ranks."""
    records = []
    quickly = [place for place in PLACES if PLACES[place].world_size == 2]
    for place in [TORCHRUN] if torchrun.is_here() else quickly if quick else PLACES:
        progress(place)
        records += measure(place, iters=5 if quick else 11)
    return records


def model_of(records: Sequence[Record]) -> Coalescing:
    """Return the model that was calibrated at the place of these records."""
    (parts,) = (record for record in records if record.case == PARTS)
    return Coalescing(**parts.values)


def predicted_seconds(model: Coalescing, name: str, width: float) -> float | None:
    """Return the seconds that the model expects of a case; None for torch's own code."""
    scheme, specs = CASES[name], shapes.resnet50(width=width)
    if scheme.torch_own:
        return None
    planned = buckets.plan(specs, cap=scheme.cap)
    if scheme.flat:  # one lone tensor per bucket: nothing is packed
        return model.seconds([[bucket.nbytes] for bucket in planned])
    sizes = [[specs[i].nbytes for i in bucket.members] for bucket in planned]
    return model.seconds(sizes, kept=scheme.keep)


def table(records: Sequence[Record]) -> Table:
    """Lay the records out: milliseconds per broadcast, speed-up, phases, and the prediction."""
    columns = ["place", "case", "calls", "ms", "p10", "p90", "x faster", "pack ms", "send ms"]
    columns += ["unpack ms", "page faults", "peak MB", "predicted ms"]
    baseline = {r.params["place"]: r.summary.median for r in records if r.case == ONE_BY_ONE}
    rows = []
    for record in records:
        if record.case == PARTS:
            continue
        place, summary, values = record.params["place"], record.summary, record.values
        times = [_ms(x) for x in (summary.median, summary.p10, summary.p90)]
        gain = round(baseline[place] / summary.median, 2) if place in baseline else None
        inside = CASES[record.case].torch_own  # nobody can look into torch's own code
        phases = [None if inside else _ms(values[phase]) for phase in PHASES]
        peak = round(values["peak"] / MB, 1) if "peak" in values else None
        row = [place, record.case, values["calls"], *times, gain, *phases, round(values["faults"])]
        rows.append([*row, peak, record.predicted and _ms(record.predicted)])
    return Table(columns, rows)


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 1)


def _measure(place: str, at: Place, fabric: Any, names: Sequence[str], iters: int) -> list[Record]:
    where = {"world_size": at.world_size, "fabric": fabric}

    def record(name: str, samples: list[list[float]], values: dict, **fields: Any) -> Record:
        params = {"place": place, "width": at.width, "rate": at.rate}
        tier = Tier.MEASURED if at.rate is None else Tier.EMULATED
        fields["nbytes"] = sum(spec.nbytes for spec in shapes.resnet50(width=at.width))
        return Record(NAME, name, params, samples, tier, Provenance.here(), values=values, **fields)

    parts = launch(time_parts, 7, **where)
    model = fit(parts)
    records = [record(PARTS, [rank["small"] for rank in parts], dataclasses.asdict(model))]
    for name in names:  # each in new processes: memory that a case has freed spares page faults
        ranks = launch(time_case, name, at.width, iters, **where)
        plan = buckets.plan(shapes.resnet50(width=at.width), cap=CASES[name].cap)
        source, receiver = ranks[0], ranks[-1]
        values = {"pack": source["pack"], "send": receiver["send"], "unpack": receiver["unpack"]}
        values |= {"calls": len(plan)}
        values |= {key: max(rank[key] for rank in ranks) for key in ("faults", "peak")}
        samples = [rank["samples"] for rank in ranks]
        guess = predicted_seconds(model, name, at.width)
        records.append(record(name, samples, values, collective="broadcast", predicted=guess))
    return records
