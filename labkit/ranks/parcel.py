"""What travels to the ranks and back: a pickle, with its large buffers beside it, in a file.

Large tensors and arrays are written as they lie in memory and read once. A tensor that is a part of
a larger one travels alone, without the rest.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import inspect
import io
import itertools
import json
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import Any

import cloudpickle

_LARGE = 1 << 20  # bytes from which a buffer stands beside the pickle
_ALIGNMENT = 64
ON_DISK = "on-disk"
"""Name of a link, in a folder in memory, to the folder for what does not fit into it."""
_SCRIPTS = ("__main__", "__mp_main__")
"""Modules that a rank cannot import: a script or notebook, and a script in a spawned process."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A value on its way to another process."""

    kind: str  # qualified name of its type
    data: bytes | bytearray | memoryview
    buffers: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any) -> Parcel:
        """Pack a value; functions and classes of a script or a notebook travel by value."""
        if (spawned := sys.modules.get("__mp_main__")) is not None:
            cloudpickle.register_pickle_by_value(spawned)
        buffers: list[pickle.PickleBuffer] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes >= _LARGE:
                buffers.append(buffer)
                return False
            return True

        file = io.BytesIO()
        _Pickler(file, protocol=5, buffer_callback=is_small).dump(value)
        return cls(kind_of(value), file.getvalue(), tuple(buffer.raw() for buffer in buffers))

    def write(self, path: Path) -> None:
        """Write a file; where its folder, in memory, is too small, a link to one on disk."""
        try:
            self._write(path)
        except OSError:
            path.unlink(missing_ok=True)
            path.symlink_to(path.with_name(ON_DISK).readlink() / path.name)
            self._write(path)

    def _write(self, path: Path) -> None:
        lengths = [len(self.data), *(buffer.nbytes for buffer in self.buffers)]
        with path.open("wb") as file:
            file.write(json.dumps([self.kind, lengths]).encode() + b"\n")
            for part in (self.data, *self.buffers):
                file.write(bytes(-file.tell() % _ALIGNMENT))
                file.write(part)

    @classmethod
    def read(cls, path: Path, *, mapped: bool = False) -> Parcel:
        """Read what `write` wrote; ``mapped`` shares the file's pages until they are written to."""
        with path.open("rb") as file:
            kind, lengths = json.loads(file.readline())
            pages = memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY)) if mapped else None
            parts: list[bytearray | memoryview] = []
            for length in lengths:
                start = file.seek(-file.tell() % _ALIGNMENT, io.SEEK_CUR)
                if pages is None:
                    parts.append(bytearray(length))
                    file.readinto(parts[-1])
                else:
                    parts.append(pages[start : start + length])
                    file.seek(length, io.SEEK_CUR)
        return cls(kind, parts[0], tuple(parts[1:]))

    def load(self) -> Any:
        """Return the value."""
        return pickle.loads(self.data, buffers=self.buffers)


def result_of(folder: Path, rank: int) -> Any:
    """Return what a rank of a launch returned, or how it failed, from its file there."""
    parcel = Parcel.read(folder / f"result-{rank}")
    try:
        return parcel.load()
    except Exception as error:
        raise TypeError(
            f"rank {rank} returned a {parcel.kind} that cannot be rebuilt here: {error} "
            "Return plain data: numbers, strings, lists, tensors, a model's state_dict()."
        ) from error


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's, with tensors of main memory as buffers."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(value) is torch.Tensor and _is_plain(value):
            flat = value.detach().reshape(-1).contiguous().view(torch.uint8).numpy()
            own = value.dtype, value.shape, value.requires_grad
            return _tensor, (pickle.PickleBuffer(flat), *own)
        if type(value) is types.CodeType:  # without the name of its file, from cloudpickle 3.1.3 on
            return _code, (value.co_filename, *self.dispatch_table[types.CodeType](value))
        if type(value) is functools._lru_cache_wrapper and value.__module__ in _SCRIPTS:
            return _cached, (value.__wrapped__, value.cache_parameters())
        if type(value) is functools.cached_property:  # with a lock, before Python 3.12
            return functools.cached_property, (value.func,), {"attrname": value.attrname}
        plain = isinstance(value, Exception) and type(value).__reduce__ is Exception.__reduce__
        if plain and isinstance(type(value).__init__, types.FunctionType):  # wants other arguments?
            made_new = copyreg.__newobj__  # type: ignore[attr-defined]
            return made_new, (type(value), *value.args), value.__dict__
        return super().reducer_override(value)


def _code(filename: str, make: Callable[..., types.CodeType], parts: Any) -> types.CodeType:
    return make(*parts).replace(co_filename=filename)


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    return functools.lru_cache(**parameters)(function)


def _is_plain(tensor: Any) -> bool:
    """Say whether it is its numbers in main memory and nothing else."""
    if not tensor.is_leaf or tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided":
        return False
    viewed = tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg()
    return not viewed and not tensor.__dict__ and tensor.numel() > 0


def _tensor(buffer: Any, dtype: Any, shape: Any, requires_grad: bool) -> Any:
    import torch

    flat = torch.frombuffer(buffer, dtype=torch.uint8).clone()  # aligned, and can be resized
    return flat.view(dtype).view(shape).requires_grad_(requires_grad)


def pack(
    program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> Parcel:
    """Pack ``(program, args, kwargs)``; a TypeError names what cannot travel, and what holds it."""
    kwargs = kwargs or {}
    try:
        return Parcel.of((program, args, kwargs))
    except Exception as error:
        given = itertools.chain(enumerate(args, 1), kwargs.items())
        stuck = (f"argument {name} {_described(x)}" for name, x in given if _is_stuck(x))
        culprits = itertools.chain(stuck, _culprits(program, seen=set()))
        culprit = next(culprits, "the program or its arguments")
        raise TypeError(
            f"launch({name_of(program)}): {culprit} cannot be sent to the ranks: {error}. "
            "Create it inside the program, so that every rank makes its own."
        ) from error


def adopt(program: Any, file: str | None, spec: str | None) -> None:
    """Make what travelled by value this process's ``__main__``, as in a script that was started.

    So it can be pickled by name there: `torch.save`, `all_gather_object`, RPC, worker processes.
    """
    main = types.ModuleType("__main__")
    if file is not None:
        main.__file__ = file  # what spawned processes run
    if spec is not None:
        main.__spec__ = ModuleSpec(spec, None)
    tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())
    classes = [kind for kind in list(tracked) if kind.__module__ in _SCRIPTS]
    program = getattr(program, "func", program)
    program = getattr(program, "__func__", program)
    for value in itertools.chain([program], *(vars(kind).values() for kind in classes)):
        if isinstance(value, types.FunctionType) and value.__module__ in _SCRIPTS:
            vars(main).update({k: v for k, v in value.__globals__.items() if k[:2] != "__"})
    for value in (program, *classes):
        if hasattr(value, "__qualname__") and value.__module__ in _SCRIPTS:
            setattr(main, value.__qualname__, value)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main


def _culprits(function: Any, *, seen: set[int]) -> Iterator[str]:
    function = inspect.unwrap(getattr(function, "func", function))
    if isinstance(function, types.MethodType):
        if _is_stuck(function.__self__):
            yield f"self {_described(function.__self__)}"
        function = function.__func__
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for role, name, value in _used(function):
        looked_at = id(value) in seen
        if isinstance(value, types.FunctionType):
            yield from _culprits(value, seen=seen)  # the leaf says more than the function
        if not looked_at and _is_stuck(value):
            yield f"the {role} {name!r} {_described(value)}, which {name_of(function)} uses,"


def _used(function: types.FunctionType) -> Iterator[tuple[str, str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield "closed-over variable", name, cell.cell_contents
    for name in cloudpickle.cloudpickle._extract_code_globals(function.__code__):
        if name in function.__globals__:
            yield "global", name, function.__globals__[name]


def _described(value: object) -> str:
    """Return its type, and its attribute that cannot be pickled, if it has one."""
    parts = getattr(value, "__dict__", {})
    stuck = next((name for name, part in parts.items() if _is_stuck(part)), None)
    inside = f", because of its .{stuck} (a {kind_of(parts[stuck])})" if stuck else ""
    return f"(a {kind_of(value)}){inside}"


def _is_stuck(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return True
    return False


def kind_of(value: object) -> str:
    """Return the qualified name of a value's type."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def name_of(function: object) -> str:
    """Return a function's name for a message."""
    return getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
