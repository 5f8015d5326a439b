"""Average gradients in buckets while backward still runs: what DDP does, small enough to read.

Backward computes the gradients of the last layers first. As soon as all gradients of a bucket are
there, its all_reduce starts in the background, and backward goes on. At the end only what has not
arrived by then has to be waited for: the exposed communication.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from labkit.comm.buckets import MB, Bucket, plan, unflatten

Start = Callable[..., object]
"""``start(name, begin, nbytes=...)`` calls ``begin()`` and returns something to ``wait()`` for."""


def start_plainly(name: str, begin: Callable[[], dist.Work], *, nbytes: int) -> dist.Work:
    """Start a collective without recording it. `Tracer.launch` fits in the same place."""
    return begin()


class GradientBuckets:
    """Average a model's gradients over all ranks, bucket by bucket, from backward hooks.

        buckets = GradientBuckets(model, cap=25 * MB)
        for batch in batches:
            buckets.zero()
            loss(model, batch).backward()    # the all_reduces start in here
            buckets.finish()                 # wait for what is still on its way
            optimizer.step()

    Gradients live *in* the buckets: each parameter's ``grad`` is a view of a flat buffer, so
    nothing is packed or unpacked. The price: zero them with `zero`, never with
    ``set_to_none=True``.

    All ranks must start their all_reduces in the same order, but hooks fire in the order in which
    each rank's backward happens to run. So buckets start strictly in the order of the plan: one
    that is ready early waits for those before it.

    Args:
        model: parameters without ``requires_grad`` are left out. Every other one must get a
            gradient in every step, or `finish` says which did not.
        cap: bytes per bucket.
        first_cap: bytes of the first bucket; a small one starts the wire sooner.
        group: the process group.
        compress: the dtype to send in (``torch.bfloat16`` halves the bytes), or None.
        start: starts each all_reduce; pass a tracer's ``launch`` to record them.

    Raises:
        ValueError: no parameter requires a gradient.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        cap: int | None = 25 * MB,
        first_cap: int | None = MB,
        group=None,
        compress: torch.dtype | None = None,
        start: Start = start_plainly,
    ):
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("The model has no parameter that requires a gradient.")
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._group, self._compress, self._start = group, compress, start
        self._world_size = dist.get_world_size(group)
        self.plan: list[Bucket] = plan(self._parameters, cap=cap, first_cap=first_cap, reverse=True)
        self.flats = [self._adopt(bucket) for bucket in self.plan]
        self._bucket_of = {p: i for i, b in enumerate(self.plan) for p in b.members}
        self._synchronise = True
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(place))
            for place, parameter in enumerate(self._parameters)
        ]
        self._begin_step()

    def zero(self) -> None:
        """Set all gradients to zero in place, so that they stay views of the buckets."""
        for flat in self.flats:
            flat.zero_()

    def finish(self) -> None:
        """Wait for all buckets. Afterwards each gradient is the mean over the ranks.

        Raises:
            RuntimeError: some parameters got no gradient in this step, or a gradient was replaced.
        """
        try:
            if not self._synchronise:
                return
            missing = sorted(set().union(*self._awaited))
            if missing:
                names = [self._names[place] for place in missing]
                raise RuntimeError(
                    f"{len(names)} parameters got no gradient in this step: {names[:5]}. Their "
                    "buckets were never sent. Freeze them (requires_grad=False) or use them."
                )
            for flat, wire, work in self._flying:
                work.wait()
                if wire is not flat:
                    flat.copy_(wire)
                flat /= self._world_size
        finally:
            self._begin_step()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate gradients in this block: the step after it sends them all at once."""
        self._synchronise = False
        try:
            yield
        finally:
            self._synchronise = True
            self._begin_step()

    def remove(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()

    def _adopt(self, bucket: Bucket) -> torch.Tensor:
        members = [self._parameters[place] for place in bucket.members]
        flat = torch.zeros(
            sum(p.numel() for p in members), dtype=bucket.dtype, device=members[0].device
        )
        for parameter, view in zip(members, unflatten(flat, members), strict=True):
            parameter.grad = view
        return flat

    def _begin_step(self) -> None:
        self._awaited = [set(bucket.members) for bucket in self.plan]
        self._next = 0
        self._flying: list[tuple[torch.Tensor, torch.Tensor, object]] = []

    def _hook(self, place: int):
        def gradient_is_ready(parameter: torch.Tensor) -> None:
            index = self._bucket_of[place]
            if parameter.grad.untyped_storage().data_ptr() != (
                self.flats[index].untyped_storage().data_ptr()
            ):
                raise RuntimeError(
                    f"The gradient of {self._names[place]} has left its bucket. Zero gradients "
                    "with GradientBuckets.zero(), not with zero_grad(set_to_none=True)."
                )
            if not self._synchronise:
                return
            self._awaited[index].discard(place)
            while self._next < len(self.plan) and not self._awaited[self._next]:
                self._send(self._next)
                self._next += 1

        return gradient_is_ready

    def _send(self, index: int) -> None:
        flat = self.flats[index]
        wire = flat if self._compress is None else flat.to(self._compress)
        work = self._start(
            f"bucket {index}",
            lambda: dist.all_reduce(wire, group=self._group, async_op=True),
            nbytes=wire.nbytes,
        )
        self._flying.append((flat, wire, work))
