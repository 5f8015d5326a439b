"""The memory of tensors: the most that a block's took, where they lie, and who uses it too early.

    with Allocated() as usage, BufferLog() as log:
        sending = dist.isend(x, other)
        x += 2 * x           # too early: `sending` may not have read x yet
        sending.wait()
    usage.peak               # bytes of one x
    log.calls[0].touched     # "aten.add_"

The peak is exact and the same on every machine, unlike resident memory. The library's own buffers
do not show, nor does what touches buffers through numpy or `tolist`, or in other threads.
"""

import functools
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.measure.calls import Call, CallLog, tensors_in


class Observer(TorchDispatchMode):
    """A dispatch mode that costs nothing to start: a base for those that look on."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch 2.13 guards every mode against torch.compile, which at the first operator imports
        # 800 modules: a second of CPU on every rank. Ranks compile nothing.
        return False


class Allocated(Observer):
    """Bytes of the storages that a block made, each counted once however many tensors view it.

    `now` are those still alive, `peak` the most that were at one time, `made` all of them. It sees
    every operator's results; a storage that no argument had is new.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.made = 0
        self._seen: weakref.WeakSet = weakref.WeakSet()

    def _add(self, nbytes: int) -> None:
        self.now += nbytes
        self.made += max(nbytes, 0)
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


def _storages(values: object) -> list[torch.UntypedStorage]:
    return [tensor.untyped_storage() for tensor in tensors_in(values)]


def memories(tensors: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Return where tensors lie: arrays for `numpy.shares_memory`, which nobody looks into."""
    places = []
    for tensor in tensors:
        if not tensor.is_meta and tensor.data_ptr():
            size, where = tensor.element_size(), {"data": (tensor.data_ptr(), True), "version": 3}
            where |= {"shape": tuple(tensor.shape), "typestr": f"|V{size}"}
            where["strides"] = tuple(stride * size for stride in tensor.stride())
            places.append(np.asarray(SimpleNamespace(__array_interface__=where)))
    return places


def overlap(tensors: Sequence[torch.Tensor], held: Sequence[np.ndarray]) -> bool:
    """Whether any of the tensors has a byte where any of these lie."""
    return any(np.shares_memory(mine, theirs) for mine in memories(tensors) for theirs in held)


@dataclass(frozen=True, slots=True)
class BufferCall(Call):
    """A call, and what used its buffers while it was under way."""

    touched: str | None = None
    """The first operator, such as `aten.add_`, that between `at` and `waited` changed what is sent,
    or read or changed what is received: of a collective its inputs, its outputs."""


class BufferLog(CallLog, Observer):
    """Call log that notices what touches a buffer that is under way; never around what is timed."""

    def __init__(self) -> None:
        CallLog.__init__(self)
        Observer.__init__(self)
        self._buffers: list[tuple[list[np.ndarray], list[np.ndarray]]] = []  # read, written
        self._touched: dict[int, str] = {}  # by the call's number
        self.waited_for: weakref.WeakSet[dist.Work] = weakref.WeakSet()
        """The works whose `wait` was called, also works of calls before the block."""

    @property
    def calls(self) -> list[BufferCall]:
        """The calls, in the order in which they were made."""
        numbered = enumerate(super().calls)
        return [BufferCall(**asdict(call), touched=self._touched.get(n)) for n, call in numbered]

    def __enter__(self) -> Self:
        CallLog.__enter__(self)
        return Observer.__enter__(self)

    def __exit__(self, *exception: object) -> None:
        Observer.__exit__(self, *exception)
        CallLog.__exit__(self, *exception)

    def before_call(self, kind: str, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """Note whose buffers a call touches."""
        self._touch(reads, writes, f"c10d.{kind}")
        self._buffers.append((memories(reads), memories(writes)))

    def before_wait(self, work: dist.Work) -> None:
        """Note that a work was waited for."""
        self.waited_for.add(work)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Note whose buffers an operator touches."""
        kwargs = kwargs or {}
        if func.namespace == "aten" and self._under_way():
            reads, writes = [], []
            for key, write in _uses(func):
                value = args[key] if isinstance(key, int) and key < len(args) else kwargs.get(key)
                (writes if write else reads).extend(tensors_in(value))
            self._touch(reads, writes, str(func.overloadpacket))
        return func(*args, **kwargs)

    def _touch(self, reads: list[torch.Tensor], writes: list[torch.Tensor], by: str) -> None:
        for number in self._under_way():
            sent, received = self._buffers[number]
            if overlap(writes, sent + received) or overlap(reads, received):
                self._touched.setdefault(number, by)

    def _under_way(self) -> list[int]:
        """Return the numbers of the calls that nobody has waited for."""
        return [number for number, call in enumerate(super().calls) if call.waited is None]


@functools.cache
def _uses(func: Any) -> list[tuple[int | str, bool]]:
    """Return where an operator takes tensors whose content it reads (False) or changes (True)."""
    name = func._schema.name.partition("::")[2]
    if name.endswith("_like") or name.startswith(("new_", "sym_", "is_")):
        return []  # only shape and type matter
    return [
        (argument.name if argument.kwarg_only else index, alias is not None)
        for index, argument in enumerate(func._schema.arguments)
        if (alias := argument.alias_info) is None or alias.is_write  # else it makes a view
    ]
