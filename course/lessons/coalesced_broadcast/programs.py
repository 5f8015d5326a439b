"""Send ResNet50's state in different ways, and time it: the programs that the ranks run."""

import hashlib
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from course.comm import buckets, shapes
from course.comm.buckets import MB, PHASES
from course.lessons.coalesced_broadcast.model import Coalescing
from labkit.measure import memory
from labkit.measure.timing import slowest, summarize, time_calls

FRESH = 64 * 2**20
"""Bytes: so large a buffer comes from the kernel each time that it is allocated."""


@dataclass(frozen=True, slots=True)
class Scheme:
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
CASES: dict[str, Scheme] = {
    ONE_BY_ONE: Scheme(cap=0, in_flight=1),
    "1 MB": Scheme(cap=MB),
    "10 MB": Scheme(cap=10 * MB),
    "25 MB": Scheme(cap=25 * MB),
    "25 MB, in turn": Scheme(cap=25 * MB, in_flight=1),
    "250 MB": Scheme(cap=250 * MB),
    "250 MB, buffers kept": Scheme(cap=250 * MB, keep=True),
    "already flat": Scheme(cap=None, flat=True),
    "torch's own, 25 MB": Scheme(cap=25 * MB, torch_own=True),
    "torch's own, 250 MB": Scheme(cap=250 * 2**20, torch_own=True),
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
    scheme: Scheme,
    tensors: Sequence[torch.Tensor],
    *,
    kept: dict[int, torch.Tensor] | None = None,
    span: Callable = lambda phase: nullcontext(),
) -> None:
    """Broadcast rank 0's state in one way."""
    if scheme.torch_own:
        group = dist.distributed_c10d._get_default_group()
        dist._broadcast_coalesced(group, list(tensors), scheme.cap, 0)
    else:
        kept = kept if scheme.keep else None
        buckets.broadcast(tensors, cap=scheme.cap, in_flight=scheme.in_flight, kept=kept, span=span)


def prepare(scheme: Scheme, tensors: Sequence[torch.Tensor]) -> None:
    """Move the state into one buffer per dtype where the case wants that."""
    if scheme.flat:
        for bucket in buckets.plan(tensors, cap=None):
            buckets.as_one_buffer([tensors[place] for place in bucket.members])


def time_case(name: str, width: float, iters: int) -> dict[str, Any]:
    """Time one case; runs on every rank. Seconds per broadcast, in all and by phase."""
    scheme, tensors = CASES[name], state(width, fill=float(dist.get_rank()))
    prepare(scheme, tensors)
    spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def listen(phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        spent[phase] += time.perf_counter() - begin

    kept: dict[int, torch.Tensor] = {}
    send(scheme, tensors, kept=kept)  # connect, and touch all memory
    if any(bool(tensor.any()) for tensor in tensors):
        raise AssertionError(f"{name}: rank {dist.get_rank()} did not get rank 0's zeros")
    faults = -resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    samples = time_calls(
        lambda: send(scheme, tensors, kept=kept, span=listen), warmup=0, iters=iters
    )
    faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    phases = {phase: spent[phase] / iters for phase in PHASES}
    kept.clear()
    with memory.watch() as usage:
        send(scheme, tensors, kept=kept)
    return {"samples": samples, "faults": faults / iters, "peak": usage.peak} | phases


def digests(name: str, width: float) -> tuple[str, str]:
    """Broadcast a random state; runs on every rank. Its fingerprint before and after."""
    scheme, tensors = CASES[name], state(width)
    prepare(scheme, tensors)
    before = digest(tensors)
    send(scheme, tensors)
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
