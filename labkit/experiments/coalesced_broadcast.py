"""Lesson 3: how should rank 0 give 320 tensors to the others: one by one, in buckets, or at once?

The question (PyTorch pull request 4978, 2018): DDP sent a model's state tensor by tensor; packed
into buckets of 10 MB, ResNet50's went 1.63 times as fast between two nodes. Here the same 320
sizes are sent on loopback and between two hosts, and packing, sending and unpacking timed apart.
"""

import dataclasses
import hashlib
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.comm import buckets, shapes
from labkit.comm.buckets import MB, PHASES
from labkit.measure.records import Provenance, Record, Tier, load
from labkit.measure.timing import slowest, summarize, time_calls
from labkit.model.coalescing import Coalescing
from labkit.run.fabric import Fabric, FabricUnavailable
from labkit.run.launcher import launch

NAME = "coalesced-broadcast"
TITLE = "One broadcast or three hundred?"
RECORDING = Path(__file__).parents[1] / "recordings" / "coalesced_broadcast.json"
RATE = "2gbit"
FRESH = 64 * 2**20
"""Bytes: so large a buffer comes from the kernel each time that it is allocated."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where ranks run, and how large the state is there."""

    world_size: int
    rate: str | None
    """Of each host's NIC; None: loopback."""
    width: float
    """Of the network: bytes go with its square, the number of tensors stays 320."""


PLACES = {
    "loopback, 2 ranks": Place(2, None, 1.0),
    "loopback, 4 ranks": Place(4, None, 1.0),
    "2 hosts": Place(2, RATE, 0.5),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One way to broadcast the state."""

    cap: int | None
    in_flight: int = 2
    flat: bool = False
    """Whether the state was moved into one buffer beforehand: nothing to pack."""
    keep: bool = False
    """Whether buffers are kept from one broadcast to the next."""
    torch_own: bool = False
    """Use torch's `_broadcast_coalesced`, which DDP calls."""


ONE_BY_ONE = "one by one"
CASES: dict[str, Case] = {
    ONE_BY_ONE: Case(cap=0, in_flight=1),
    "1 MB": Case(cap=MB),
    "10 MB": Case(cap=10 * MB),
    "25 MB": Case(cap=25 * MB),
    "250 MB": Case(cap=250 * MB),
    "250 MB, buffers kept": Case(cap=250 * MB, keep=True),
    "already flat": Case(cap=None, flat=True),
    "torch's own, 25 MB": Case(cap=25 * MB, torch_own=True),
}


def state(width: float, *, fill: float | None = None) -> list[torch.Tensor]:
    """Make ResNet50's 320 tensors: random from the rank's number, or filled with a value."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    tensors = []
    for spec in shapes.resnet50(width=width):
        dtype = getattr(torch, spec.dtype)
        if fill is not None:
            tensors.append(torch.full(spec.shape, fill, dtype=dtype))
        elif dtype.is_floating_point:
            tensors.append(torch.rand(spec.shape, generator=generator, dtype=dtype))
        else:
            tensors.append(torch.randint(1 << 40, spec.shape, generator=generator, dtype=dtype))
    return tensors


def digest(tensors: Sequence[torch.Tensor]) -> str:
    """Return a fingerprint of every bit of every tensor."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def send(
    case: Case,
    tensors: Sequence[torch.Tensor],
    *,
    kept: dict[int, torch.Tensor] | None = None,
    span: Callable = lambda phase: nullcontext(),
) -> None:
    """Broadcast rank 0's state in one way."""
    if case.torch_own:
        group = dist.distributed_c10d._get_default_group()
        dist._broadcast_coalesced(group, list(tensors), case.cap, 0)
    else:
        kept = kept if case.keep else None
        buckets.broadcast(tensors, cap=case.cap, in_flight=case.in_flight, kept=kept, span=span)


def prepare(case: Case, tensors: Sequence[torch.Tensor]) -> None:
    """Move the state into one buffer per dtype where the case wants that."""
    if case.flat:
        for bucket in buckets.plan(tensors, cap=None):
            buckets.as_one_buffer([tensors[place] for place in bucket.members])


def time_case(name: str, width: float, iters: int) -> dict[str, Any]:
    """Time one case; runs on every rank. Seconds per broadcast, in all and by phase."""
    case, tensors = CASES[name], state(width, fill=float(dist.get_rank()))
    prepare(case, tensors)
    spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def listen(phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        spent[phase] += time.perf_counter() - begin

    kept: dict[int, torch.Tensor] = {}
    send(case, tensors, kept=kept)  # connect, and touch all memory
    if any(bool(tensor.any()) for tensor in tensors):
        raise AssertionError(f"{name}: rank {dist.get_rank()} did not get rank 0's zeros")
    faults = -resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    samples = time_calls(lambda: send(case, tensors, kept=kept, span=listen), warmup=0, iters=iters)
    faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    phases = {phase: spent[phase] / iters for phase in PHASES}
    return {"samples": samples, "faults": faults / iters} | phases


def time_cases(names: Sequence[str], width: float, iters: int) -> list[dict[str, Any]]:
    """Time one case after the other; runs on every rank."""
    return [time_case(name, width, iters) for name in names]


def digests(name: str, width: float) -> tuple[str, str]:
    """Broadcast a random state; runs on every rank. Its fingerprint before and after."""
    case, tensors = CASES[name], state(width)
    prepare(case, tensors)
    before = digest(tensors)
    send(case, tensors)
    return before, digest(tensors)


def time_parts(iters: int) -> dict[str, list[float]]:
    """Time what the model is made of; runs on every rank. Samples of each part, in seconds."""
    small, large = torch.ones(1024), torch.ones(16 * MB // 4)
    few, many = [torch.ones(MB // 4) for _ in range(10)], [torch.ones(64) for _ in range(200)]
    buffer = torch.empty(10 * MB // 4)

    def touch_fresh_memory() -> None:
        torch.empty(FRESH // 4).zero_()

    again = torch.empty(FRESH // 4).zero_()
    return {
        "small": time_calls(lambda: dist.broadcast(small, 0), iters=3 * iters),
        "large": time_calls(lambda: dist.broadcast(large, 0), warmup=2, iters=iters),
        "many": time_calls(lambda: buckets.flatten(many), iters=iters),
        "few": time_calls(lambda: buckets.flatten(few, out=buffer), iters=iters),
        "fresh": time_calls(touch_fresh_memory, warmup=1, iters=iters),
        "touched": time_calls(again.zero_, warmup=1, iters=iters),
    }


def fit(parts: Sequence[dict[str, list[float]]]) -> Coalescing:
    """Turn every rank's parts into the model's figures: each time is the slowest rank's."""
    seconds = {key: summarize(slowest([rank[key] for rank in parts])).median for key in parts[0]}
    overhead = seconds["many"] / 200
    return Coalescing(
        alpha=seconds["small"],
        beta=(seconds["large"] - seconds["small"]) / (16 * MB),
        copy=max(seconds["few"] - 10 * overhead, 0.1 * seconds["few"]) / (10 * MB),
        overhead=overhead,
        fresh=max(seconds["fresh"] - seconds["touched"], 0.0) / FRESH,
    )


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
    if place not in PLACES:
        raise ValueError(f"unknown place {place!r}; there are {list(PLACES)}.")
    if unknown := [name for name in names if name not in CASES]:
        raise ValueError(f"unknown cases {unknown}; there are {list(CASES)}.")
    return _at(place, lambda at, fabric: _measure(place, at, fabric, names, iters), names)


def run(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> list[Record]:
    """Time all cases at all places; ``quick`` leaves out four ranks."""
    records = []
    for place in PLACES:
        if quick and PLACES[place].world_size > 2:
            continue
        if progress:
            progress(place)
        records.append(calibrate(place)[1])
        records += measure(place, iters=5 if quick else 11)
    return records


def table(records: Sequence[Record]) -> tuple[list[str], list[list[Any]]]:
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
    return columns, rows


def by_case(records: Sequence[Record]) -> dict[str, Record]:
    """Return the records by the name of their case."""
    return {record.case: record for record in records}


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 1)


def _at(place: str, measure_at: Callable, names: Sequence[str]) -> list[Record]:
    at = PLACES[place]
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
