"""Ways to average gradients, from one call per parameter to DDP, behind one small interface.

Each way has a `model` to call and `backward(loss)`, which computes gradients, averages them over
the ranks, and returns whether they are ready for the optimiser. Every way writes down its spans.
Zero gradients in place, with ``zero_grad(set_to_none=False)``: some ways keep them in buckets.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course.comm.buckets import flatten, plan, unflatten, unpack
from labkit.measure.trace import Kind, Tracer


class AfterBackward:
    """Average when backward is over, one all_reduce per bucket of `cap` bytes.

    0: one call for each parameter, the forum thread's way, without a copy; None: one flat tensor.
    With a `barrier` before the first call, who is late is waited for there.
    """

    def __init__(
        self, model: nn.Module, tracer: Tracer, *, cap: int | None = 0, barrier: bool = False
    ):
        self.model, self._tracer, self._cap, self._barrier = model, tracer, cap, barrier

    def backward(self, loss: torch.Tensor) -> bool:
        """Compute the gradients, then replace each by its mean over the ranks."""
        with self._tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        if self._barrier:
            with self._tracer.collective("barrier"):
                dist.barrier()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        for number, bucket in enumerate(plan(gradients, cap=self._cap)):
            members = [gradients[place] for place in bucket.members]
            with self._tracer.span("pack", Kind.PACK):
                flat = flatten(members)  # a view where there is one member
            with self._tracer.collective(f"bucket {number}", nbytes=bucket.nbytes):
                dist.all_reduce(flat)
            flat /= dist.get_world_size()
            with self._tracer.span("unpack", Kind.PACK):
                unpack(flat, members)
        return True


class DuringBackward:
    """Average in buckets while backward still runs: what DDP does, small enough to read.

    Backward computes the gradients of the last layers first. As soon as a bucket's gradients are
    all there, its all_reduce starts in the background, and backward goes on. At the end, only what
    has not arrived by then has to be waited for: the exposed communication.

    Gradients live *in* the buckets: each parameter's `grad` is a view of a flat buffer, so nothing
    is packed or unpacked.

    All ranks must start their all_reduces in the same order, but hooks fire in the order in which
    each rank's backward happens to run. So buckets start strictly in the order of the plan: one
    that is ready early waits for those before it.

    Args:
        model: Parameters without `requires_grad` are left out. Every other one must get a gradient
            in every step, or `backward` says which did not.
        tracer: For its spans.
        cap: Bytes per bucket; None: no limit.
        compress: The dtype to send in (``torch.bfloat16`` halves the bytes), or None.
        micro_batches: Send after so many calls of `backward`; before, only accumulate.

    Raises:
        ValueError: No parameter requires a gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        tracer: Tracer,
        *,
        cap: int | None,
        compress: torch.dtype | None = None,
        micro_batches: int = 1,
    ):
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("The model has no parameter that requires a gradient.")
        self.model, self._tracer, self._compress = model, tracer, compress
        self._micro_batches, self._count = micro_batches, 0
        self._names = [name for name, _ in named]
        parameters = [parameter for _, parameter in named]
        self._plan = plan(parameters, cap=cap, reverse=True)
        self.flats = []
        for number, bucket in enumerate(self._plan):
            members = [parameters[place] for place in bucket.members]
            elements = sum(p.numel() for p in members)
            flat = torch.zeros(elements, dtype=bucket.dtype, device=members[0].device)
            self.flats.append(flat)
            for place, view in zip(bucket.members, unflatten(flat, members), strict=True):
                parameters[place].grad = view
                hook = self._hook(place, number)
                parameters[place].register_post_accumulate_grad_hook(hook)

    def backward(self, loss: torch.Tensor) -> bool:
        """Compute the gradients; average them unless more micro-batches follow.

        Raises:
            RuntimeError: Some parameters got no gradient in this step, or a gradient was replaced.
        """
        self._count = (self._count + 1) % self._micro_batches
        self._awaited = [set(bucket.members) for bucket in self._plan]
        self._flying: list[tuple[torch.Tensor, torch.Tensor, object]] = []
        with self._tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        if self._count:
            return False
        if missing := sorted(set().union(*self._awaited)):
            names = [self._names[place] for place in missing]
            raise RuntimeError(
                f"{len(names)} parameters got no gradient in this step: {names[:5]}. Their "
                "buckets were never sent. Freeze them (requires_grad=False) or use them."
            )
        for flat, wire, work in self._flying:
            work.wait()
            if wire is not flat:
                flat.copy_(wire)
            flat /= dist.get_world_size()
        return True

    def _hook(self, place: int, number: int) -> Callable[[torch.Tensor], None]:
        def gradient_is_ready(parameter: torch.Tensor) -> None:
            home = self.flats[number].untyped_storage().data_ptr()
            if parameter.grad.untyped_storage().data_ptr() != home:
                raise RuntimeError(
                    f"The gradient of {self._names[place]} has left its bucket. Zero gradients "
                    "with zero_grad(set_to_none=False)."
                )
            self._awaited[number].discard(place)
            while self._count == 0 and len(self._flying) < len(self._plan):
                if self._awaited[len(self._flying)]:
                    return
                self._send(len(self._flying))

        return gradient_is_ready

    def _send(self, number: int) -> None:
        flat = self.flats[number]
        wire = flat if self._compress is None else flat.to(self._compress)
        work = self._tracer.launch(
            f"bucket {number}", lambda: dist.all_reduce(wire, async_op=True), nbytes=wire.nbytes
        )
        self._flying.append((flat, wire, work))


class DDP:
    """torch's own DistributedDataParallel.

    Its waiting happens inside ``loss.backward()``. What is written down as waiting is the time from
    the last gradient's arrival to the end of backward. `hook` registers a communication hook on the
    DDP model; the options are DistributedDataParallel's.
    """

    def __init__(
        self, model: nn.Module, tracer: Tracer, *, hook: Callable | None = None, **options
    ):
        self._tracer = tracer
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True, **options)
        if hook is not None:
            hook(self.model)
        self._last_gradient = 0.0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)

    def backward(self, loss: torch.Tensor) -> bool:
        """Compute and average the gradients: DDP does both in one."""
        begin = self._tracer.clock.now()
        loss.backward()
        end = self._tracer.clock.now()
        self._tracer.record("backward", Kind.COMPUTE, begin, self._last_gradient)
        self._tracer.record("wait in DDP", Kind.WAIT, self._last_gradient, end)
        return True

    def _gradient_is_ready(self, parameter: torch.Tensor) -> None:
        self._last_gradient = self._tracer.clock.now()


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
