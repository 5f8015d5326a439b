"""Partners' sums through DistributedDataParallel: when the tensors are a model's gradients.

DDP sums gradients, once per backward pass. So this way applies where the tensors *are* gradients;
the asker also communicated in the forward pass, and there it has nothing to offer. What DDP does is
no secret: it copies the gradients into buckets and makes one all_reduce per bucket. A communication
hook replaces that all_reduce by another one, for example one that sends half the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.lessons.gloo_scaling.pairwise import Pair

Hook = Callable[[Any, Any], Any]


class ThroughDDP:
    """Sums tensors between partners by making them the gradients of a model wrapped in DDP.

    The sums are exact without a hook. A hook may round: torch's ``fp16_compress_hook`` sends 16-bit
    floats, which hold whole numbers up to 2048 and 11 significant bits of anything else.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], pair: Pair, hook: Hook | None = None
    ) -> None:
        """Build the model and wrap it; both partners must call this.

        Args:
            tensors: What will be summed; their shapes become the model's parameters.
            pair: The two partners.
            hook: ``hook(group, bucket) -> Future``, as `register_comm_hook` wants it.
        """
        model = _Parameters(tensors)
        self.model = DistributedDataParallel(
            model, process_group=pair.group, gradient_as_bucket_view=True
        )
        if hook is not None:
            self.model.register_comm_hook(pair.group, hook)
        self.parameters = list(model.parameters())

    def __call__(self, tensors: list[torch.Tensor], pair: Pair) -> None:
        """Sum every tensor with the partner's, in one backward pass."""
        torch.autograd.backward(self.model(), tensors)  # d loss / d parameter := tensor
        for tensor, parameter in zip(tensors, self.parameters, strict=True):
            torch.mul(parameter.grad, 2, out=tensor)  # DDP divides by the number of ranks
        self.model.zero_grad()


class _Parameters(nn.Module):
    """A model whose output is its parameters: their gradients are what backward is given."""

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.tensors = nn.ParameterList(torch.zeros_like(tensor) for tensor in like)

    def forward(self) -> list[torch.Tensor]:
        return [tensor.view_as(tensor) for tensor in self.tensors]
