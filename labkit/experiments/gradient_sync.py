"""Ways to average gradients, from one call per parameter to DDP, as one interchangeable part.

Each is a class with ``backward(loss)``: compute gradients and average them over the ranks, with
every span written down. `train` runs any of them on the same model and the same data.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.comm import buckets
from labkit.comm.buckets import MB
from labkit.comm.hooks import GradientBuckets
from labkit.experiments.vgg_training import Storage, Workload, prefetched, vgg11
from labkit.measure.trace import Kind, RankTrace, Tracer


class PerParameter:
    """One all_reduce for each parameter after backward: the forum thread's way."""

    def __init__(self, model: nn.Module, tracer: Tracer, *, barrier: bool = False):
        self.model, self.tracer, self._barrier = model, tracer, barrier

    def zero(self) -> None:
        self.model.zero_grad()

    def backward(self, loss: torch.Tensor) -> None:
        with self.tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        if self._barrier:
            with self.tracer.collective("barrier"):
                dist.barrier()
        for name, parameter in self.model.named_parameters():
            with self.tracer.collective(name, nbytes=parameter.nbytes):
                dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class Bucketed:
    """Buckets after backward: pack, one all_reduce each, unpack. ``cap=None`` is one flat tensor."""

    def __init__(self, model: nn.Module, tracer: Tracer, *, cap: int | None):
        self.model, self.tracer, self._cap = model, tracer, cap

    def zero(self) -> None:
        self.model.zero_grad()

    def backward(self, loss: torch.Tensor) -> None:
        with self.tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        for number, bucket in enumerate(buckets.plan(gradients, cap=self._cap)):
            members = [gradients[place] for place in bucket.members]
            with self.tracer.span("pack", Kind.PACK):
                flat = buckets.flatten(members)
            with self.tracer.collective(f"bucket {number}", nbytes=bucket.nbytes):
                dist.all_reduce(flat)
            flat /= dist.get_world_size()
            with self.tracer.span("unpack", Kind.PACK):
                buckets.unpack(flat, members)


class Overlapped:
    """Buckets from hooks while backward runs: `labkit.comm.hooks.GradientBuckets`."""

    def __init__(self, model: nn.Module, tracer: Tracer, **options):
        self.model, self.tracer = model, tracer
        self._buckets = GradientBuckets(model, start=tracer.launch, **options)

    def zero(self) -> None:
        self._buckets.zero()

    def backward(self, loss: torch.Tensor) -> None:
        with self.tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        self._buckets.finish()


class DDP:
    """torch's own DistributedDataParallel, with an optional communication hook."""

    def __init__(self, model: nn.Module, tracer: Tracer, *, hook: Callable | None = None, **options):
        self.tracer = tracer
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True, **options)
        if hook is not None:
            hook(self.model)
        self._last_gradient = 0.0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    def zero(self) -> None:
        self.model.zero_grad()

    def backward(self, loss: torch.Tensor) -> None:
        begin = self.tracer.clock.now()
        loss.backward()
        end = self.tracer.clock.now()
        self.tracer.record("backward", Kind.COMPUTE, begin, self._last_gradient)
        self.tracer.record("wait in DDP", Kind.WAIT, self._last_gradient, end)

    def _gradient_is_ready(self, parameter: torch.Tensor) -> None:
        self._last_gradient = self.tracer.clock.now()


@dataclass(frozen=True, slots=True)
class Variant:
    """One rung of the ladder."""

    name: str
    make: Callable
    """``make(model, tracer)`` returns one of the classes above."""
    prefetch: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rank brings back from training with one variant."""

    trace: RankTrace
    losses: tuple[float, ...]


def train(variant: Variant, workload: Workload, *, steps: int, rate: float = 0.02) -> Outcome:
    """Train for ``steps`` steps on this rank and write down where the time goes. A rank program.

    Step 0 is a warm-up: it opens connections. Leave it out of figures with ``Timeline.steps(1)``.
    """
    rank = dist.get_rank()
    storage = Storage(workload, rank)
    sync = variant.make(vgg11(workload), tracer := Tracer.aligned())
    optimizer = torch.optim.SGD(sync.model.parameters(), lr=rate, momentum=0.9)
    batches = storage.batches(steps)
    batches = prefetched(batches) if variant.prefetch else batches
    losses = []
    for _ in range(steps):
        with tracer.span("input", Kind.INPUT):
            pictures, labels = next(batches)
        with tracer.span("forward", Kind.COMPUTE):
            sync.zero()
            loss = nn.functional.cross_entropy(sync.model(pictures), labels)
        sync.backward(loss)
        with tracer.span("optimizer", Kind.COMPUTE):
            optimizer.step()
        losses.append(float(loss.detach()))
        tracer.next_step()
    return Outcome(tracer.trace(), tuple(losses))


def ladder(workload: Workload) -> list[Variant]:
    """Return the rungs, each with one change against the one before it."""
    small = 0.02 * MB
    cap = 2 * MB
    return [
        Variant("one call per parameter", PerParameter),
        Variant("one flat tensor", lambda m, t: Bucketed(m, t, cap=None)),
        Variant("buckets after backward", lambda m, t: Bucketed(m, t, cap=cap)),
        Variant(
            "buckets during backward", lambda m, t: Overlapped(m, t, cap=cap, first_cap=None)
        ),
        Variant(
            "and the input prefetched",
            lambda m, t: Overlapped(m, t, cap=cap, first_cap=None),
            prefetch=True,
        ),
        Variant("DDP, input prefetched", lambda m, t: DDP(m, t, bucket_cap_mb=2), prefetch=True),
    ]
