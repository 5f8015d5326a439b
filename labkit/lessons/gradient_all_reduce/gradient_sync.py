"""Ways to average gradients, from one call per parameter to DDP, behind one small interface.

Each way has a ``model`` to call, ``zero()`` for the gradients, and ``backward(loss)``, which
computes gradients, averages them over the ranks, and returns whether they are ready for the
optimiser. Every way writes down its spans.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.comm import buckets
from labkit.lessons.gradient_all_reduce.hooks import GradientBuckets
from labkit.measure.trace import Kind, Tracer


class AfterBackward:
    """What the ways have in common that communicate when backward is over.

    Args:
        model: the same on every rank.
        tracer: writes down the spans.
    """

    def __init__(self, model: nn.Module, tracer: Tracer):
        self.model, self.tracer = model, tracer

    def zero(self) -> None:
        """Forget the last step's gradients."""
        self.model.zero_grad()

    def backward(self, loss: torch.Tensor) -> bool:
        """Compute the gradients, then average them."""
        with self.tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        self.average(list(self.model.named_parameters()))
        return True

    def average(self, parameters: list[tuple[str, nn.Parameter]]) -> None:
        """Replace each gradient by its mean over the ranks."""
        raise NotImplementedError


class PerParameter(AfterBackward):
    """One all_reduce for each parameter: the forum thread's way."""

    def average(self, parameters: list[tuple[str, nn.Parameter]]) -> None:
        """Reduce one gradient after the other."""
        for name, parameter in parameters:
            with self.tracer.collective(name, nbytes=parameter.nbytes):
                dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class BarrierFirst(PerParameter):
    """The same, after a barrier: who is late is waited for there, not in the all_reduce."""

    def average(self, parameters: list[tuple[str, nn.Parameter]]) -> None:
        """Meet, then reduce one gradient after the other."""
        with self.tracer.collective("barrier"):
            dist.barrier()
        super().average(parameters)


class Bucketed(AfterBackward):
    """Pack gradients into buckets, one all_reduce each, unpack. ``cap=None``: one flat tensor."""

    def __init__(self, model: nn.Module, tracer: Tracer, *, cap: int | None):
        super().__init__(model, tracer)
        self._cap = cap

    def average(self, parameters: list[tuple[str, nn.Parameter]]) -> None:
        """Reduce one bucket after the other."""
        gradients = [parameter.grad for _, parameter in parameters]
        for number, bucket in enumerate(buckets.plan(gradients, cap=self._cap)):
            members = [gradients[place] for place in bucket.members]
            with self.tracer.span("pack", Kind.PACK):
                flat = buckets.flatten(members)
            with self.tracer.collective(f"bucket {number}", nbytes=bucket.nbytes):
                dist.all_reduce(flat)
            with self.tracer.span("unpack", Kind.PACK):
                flat /= dist.get_world_size()
                buckets.unpack(flat, members)


class DuringBackward:
    """Buckets that hooks launch while backward runs: `hooks.GradientBuckets`.

    Args:
        model: the same on every rank.
        tracer: writes down the spans.
        micro_batches: send after so many calls of ``backward``; before, only accumulate.
        **options: as for `GradientBuckets`.
    """

    def __init__(self, model: nn.Module, tracer: Tracer, *, micro_batches: int = 1, **options):
        self.model, self.tracer = model, tracer
        self._buckets = GradientBuckets(model, start=tracer.launch, **options)
        self._micro_batches, self._count = micro_batches, 0

    def zero(self) -> None:
        """Forget the last step's gradients, unless this step accumulates onto them."""
        if self._count == 0:
            self._buckets.zero()

    def backward(self, loss: torch.Tensor) -> bool:
        """Compute the gradients; average them unless more micro-batches follow."""
        self._count = (self._count + 1) % self._micro_batches
        if self._count:
            with self._buckets.no_sync(), self.tracer.span("backward", Kind.COMPUTE):
                loss.backward()
            return False
        with self.tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        self._buckets.finish()
        return True


class DDP:
    """torch's own DistributedDataParallel.

    Its waiting happens inside ``loss.backward()``. What is written down as waiting is the time
    from the last gradient's arrival to the end of backward.

    Args:
        model: the same on every rank.
        tracer: writes down the spans.
        hook: registers a communication hook on the DDP model.
        **options: as for DistributedDataParallel.
    """

    def __init__(
        self, model: nn.Module, tracer: Tracer, *, hook: Callable | None = None, **options
    ):
        self.tracer = tracer
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True, **options)
        if hook is not None:
            hook(self.model)
        self._last_gradient = 0.0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    def zero(self) -> None:
        """Forget the last step's gradients."""
        self.model.zero_grad()

    def backward(self, loss: torch.Tensor) -> bool:
        """Compute and average the gradients: DDP does both in one."""
        begin = self.tracer.clock.now()
        loss.backward()
        end = self.tracer.clock.now()
        self.tracer.record("backward", Kind.COMPUTE, begin, self._last_gradient)
        self.tracer.record("wait in DDP", Kind.WAIT, self._last_gradient, end)
        return True

    def _gradient_is_ready(self, parameter: torch.Tensor) -> None:
        self._last_gradient = self.tracer.clock.now()


def send_float16(model: DistributedDataParallel) -> None:
    """Let DDP send gradients as float16; its bfloat16 hook refuses any backend but NCCL."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def send_power_sgd(model: DistributedDataParallel) -> None:
    """Let DDP send each matrix of gradients as two thin factors: PowerSGD of rank 2.

    It sends plainly for two steps, then compresses; what the factors leave out is added to the next
    step's gradients (T. Vogels et al., arXiv:1905.13727).

    Give DDP one bucket for everything: the hook starts its second and third all_reduce from
    callbacks, and with several buckets two ranks may run these in different orders. With gloo that
    ends in "Received data size doesn't match expected size" and an abort.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
