"""The most memory that a block's tensors took at one time, counted from the tensors themselves.

    with memory.watch() as usage:
        y = x * 2 + 1        # two tensors of x's size, but never more than two at once
    usage.peak               # bytes

Exact and the same on every machine, unlike the process's resident memory. It counts what Python
code
makes: buffers inside the library (gloo's) do not show.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves

from labkit.measure.calls import Observer


@dataclass(slots=True)
class Usage:
    """Bytes of the storages that a block made, each counted once however many tensors view it."""

    now: int = 0
    """What is still alive."""
    peak: int = 0
    """The most that was alive at one time."""

    def _grow(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)


@contextmanager
def watch() -> Iterator[Usage]:
    """Count the memory of the tensors that this thread makes during the block.

    Yields:
        A `Usage`, kept up to date.
    """
    usage = Usage()
    with _Watcher(usage):
        yield usage


class _Watcher(Observer):
    """Sees every operator's results; a storage that no argument had is new."""

    def __init__(self, usage: Usage):
        super().__init__()
        self.usage = usage
        self.seen: weakref.WeakSet = weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {_storage(leaf)._cdata for leaf in tree_leaves((args, kwargs)) if _is_tensor(leaf)}
        result = func(*args, **(kwargs or {}))
        for tensor in filter(_is_tensor, tree_leaves(result)):
            storage = _storage(tensor)
            if storage._cdata not in given and storage not in self.seen:
                self.seen.add(storage)
                self.usage._grow(storage.nbytes())
                weakref.finalize(storage, _shrink, self.usage, storage.nbytes())
        return result


def _shrink(usage: Usage, nbytes: int) -> None:
    usage.now -= nbytes


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
