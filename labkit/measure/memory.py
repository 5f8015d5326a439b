"""The most memory that a block's tensors took at one time, counted from the tensors themselves.

    with memory.watch() as allocated:
        y = x * 2 + 1        # two tensors of x's size, but never more than two at once
    allocated.peak           # bytes

Exact and the same on every machine, unlike the process's resident memory. It counts what Python
code makes: buffers inside the library (gloo's) do not show.
"""

import weakref

import torch
from torch.utils._pytree import tree_leaves

from labkit.measure.calls import Observer


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


def _storages(values: object) -> list[torch.UntypedStorage]:
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return [tensor.untyped_storage() for tensor in tensors]
