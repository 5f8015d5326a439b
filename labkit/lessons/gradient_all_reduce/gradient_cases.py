"""The cases of lesson 2: what changes from one to the next, and the program that trains them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.comm.buckets import MB
from labkit.lessons.gradient_all_reduce import gradient_sync as ways
from labkit.lessons.gradient_all_reduce.programs import Storage, Workload, prefetched, vgg11
from labkit.measure import wire
from labkit.measure.timing import time_calls
from labkit.measure.trace import Kind, RankTrace, Tracer

CAP = 2 * MB
"""Bytes per bucket: the largest tensor has 6.4 MB, all others together 1.9 MB."""
CAPS = {"0": 0, "0.2 MB": MB // 5, "2 MB": 2 * MB, "7 MB": 7 * MB, "no limit": None}


@dataclass(frozen=True, slots=True)
class Case:
    """One way to average gradients, and the circumstances."""

    make: Callable[[nn.Module, Tracer], Any]
    """Makes one of the ways in `labkit.lessons.gradient_all_reduce.gradient_sync`."""
    prefetch: bool = False
    straggler: bool = True
    """Whether one rank's storage is slow."""
    micro_batches: int = 1
    warmup: int = 1


def _overlapped(**options: Any) -> Callable[[nn.Module, Tracer], Any]:
    options = {"cap": CAP, "first_cap": None} | options
    return lambda model, tracer: ways.DuringBackward(model, tracer, **options)


def _ddp(**options: Any) -> Callable[[nn.Module, Tracer], Any]:
    options = {"bucket_cap_mb": CAP / MB} | options
    return lambda model, tracer: ways.DDP(model, tracer, **options)


THREAD = "one call per parameter"
BARRIER = "one call per parameter, barrier first"
NOBODY_LATE = "one call per parameter, nobody late"
FINAL = "and the input prefetched"
LADDER: dict[str, Case] = {
    THREAD: Case(ways.PerParameter),
    "one flat tensor": Case(lambda m, t: ways.Bucketed(m, t, cap=None)),
    "buckets after backward": Case(lambda m, t: ways.Bucketed(m, t, cap=CAP)),
    "buckets during backward": Case(_overlapped()),
    FINAL: Case(_overlapped(), prefetch=True),
    "DDP, input prefetched": Case(_ddp(), prefetch=True),
}
SWEEP = {
    f"cap {name}": Case(_overlapped(cap=cap), prefetch=True, straggler=False)
    for name, cap in CAPS.items()
}
COMPRESSED = {
    "float32": Case(_ddp(), prefetch=True, straggler=False, warmup=3),
    "float16, DDP's hook": Case(
        _ddp(hook=ways.send_float16), prefetch=True, straggler=False, warmup=3
    ),
    "bfloat16, our hooks": Case(
        _overlapped(compress=torch.bfloat16), prefetch=True, straggler=False, warmup=3
    ),
    "PowerSGD of rank 2": Case(
        _ddp(hook=ways.send_power_sgd, bucket_cap_mb=1000), prefetch=True, straggler=False, warmup=3
    ),
    "every second step": Case(
        _overlapped(micro_batches=2), prefetch=True, straggler=False, micro_batches=2
    ),
}
CASES: dict[str, Case] = (
    LADDER
    | {BARRIER: Case(ways.BarrierFirst), NOBODY_LATE: Case(ways.PerParameter, straggler=False)}
    | SWEEP
    | COMPRESSED
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rank brings back from one case."""

    trace: RankTrace
    """Step 0 is the warm-up."""
    losses: tuple[float, ...]
    wire: wire.Report


def train(name: str, workload: Workload, steps: int) -> Outcome:
    """Train with one case and write down where the time goes; runs on every rank."""
    case, rank = CASES[name], dist.get_rank()
    workload = workload if case.straggler else replace(workload, delay=0.0)
    tracer = Tracer.aligned()
    way = case.make(vgg11(workload), tracer)
    optimizer = torch.optim.SGD(way.model.parameters(), lr=0.003)
    batches = Storage(workload, rank).batches((case.warmup + steps) * case.micro_batches)
    batches = prefetched(batches) if case.prefetch else batches

    def step() -> float:
        ready = False
        while not ready:
            with tracer.span("input", Kind.INPUT):
                pictures, labels = next(batches)
            with tracer.span("forward", Kind.COMPUTE):
                way.zero()
                loss = nn.functional.cross_entropy(way.model(pictures), labels)
            ready = way.backward(loss)
        with tracer.span("optimizer", Kind.COMPUTE):
            optimizer.step()
        return float(loss.detach())

    losses = [step() for _ in range(case.warmup)]
    with wire.meter() as meter:
        for _ in range(steps):
            tracer.next_step()
            losses.append(step())
    return Outcome(tracer.trace(), tuple(losses), meter.report)


def train_all(names: Sequence[str], workload: Workload, steps: int) -> list[Outcome]:
    """Train with one case after the other; runs on every rank."""
    return [train(name, workload, steps) for name in names]


def time_all_reduce(sizes: Sequence[int], iters: int) -> list[list[float]]:
    """Time all_reduce of some bytes with nobody late: the "benchmark"; runs on every rank."""
    times = []
    for nbytes in sizes:
        tensor = torch.ones(nbytes // 4)
        times.append(time_calls(lambda t=tensor: dist.all_reduce(t), warmup=2, iters=iters))
    return times
