"""The memory of tensors: the most that a block's took at one time, and where they lie.

    with memory.watch() as allocated:
        y = x * 2 + 1        # two tensors of x's size, but never more than two at once
    allocated.peak           # bytes

The peak is exact and the same on every machine, unlike the process's resident memory. It counts
what Python code makes: buffers inside the library (gloo's) do not show.
"""

import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Observer(TorchDispatchMode):
    """A dispatch mode that costs nothing to start: a base for those that only look on.

    torch 2.13 guards every mode against torch.compile, which at the first operator imports 800
    modules: a second of CPU on every rank. Ranks compile nothing.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Allocated(Observer):
    """Bytes of the storages that a block made, each counted once however many tensors view it.

    It sees every operator's results; a storage that no argument had is new.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        """What is still alive."""
        self.peak = 0
        """The most that was alive at one time."""
        self._seen: weakref.WeakSet = weakref.WeakSet()

    def _add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Count what an operator makes."""
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in given and storage not in self._seen:
                self._seen.add(storage)
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return result


def watch() -> Allocated:
    """Count the memory of the tensors that this thread makes during a `with` block."""
    return Allocated()


def tensors_in(values: object) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _storages(values: object) -> list[torch.UntypedStorage]:
    return [tensor.untyped_storage() for tensor in tensors_in(values)]


Memory = np.ndarray
"""Stretches of memory: shape (k, 2), addresses of first byte and end, in rising order."""


def memories(tensors: Sequence[torch.Tensor]) -> list[Memory]:
    """Return where the elements of tensors lie, of those that have any."""
    return [memory for tensor in tensors if (memory := _memory(tensor)) is not None]


def _memory(tensor: torch.Tensor) -> Memory | None:
    """Return where a tensor's elements lie; None where it has none, or nobody may know."""
    try:
        begin = tensor.data_ptr()
    except RuntimeError:  # a tensor without memory of its own
        return None
    if not tensor.numel() or tensor.layout != torch.strided:
        return None
    run, begins = tensor.element_size(), np.array([begin])
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, length in dims:
        step = stride * tensor.element_size()
        if step == run and len(begins) == 1:
            run *= length
        elif length > 1 and step:
            begins = np.add.outer(np.arange(length) * step, begins).ravel()
    return np.stack([begins, begins + run], axis=1)


def overlap(tensors: Sequence[torch.Tensor], held: Sequence[Memory]) -> bool:
    """Whether any of the tensors has a byte in any of these memories."""
    return any(_meet(mine, theirs) for mine in memories(tensors) for theirs in held)


def _meet(one: Memory, other: Memory) -> bool:
    if one[-1, 1] <= other[0, 0] or other[-1, 1] <= one[0, 0]:
        return False
    after = np.searchsorted(other[:, 1], one[:, 0], side="right")
    """For each stretch of one, the first of the other that ends after it begins."""
    inside = after < len(other)
    return bool((other[after[inside], 0] < one[inside, 1]).any())
