"""Turn a program and its arguments into bytes, or say exactly what cannot travel."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Iterator

import cloudpickle


def pack(program: Callable, args: tuple) -> bytes:
    """Pickle ``(program, args)`` so that another process can call it.

    Functions of a notebook or script travel by value, with the globals that they use.

    Raises:
        TypeError: If something cannot be pickled; names it: the argument, the closed-over variable
            or the global.
    """
    try:
        return cloudpickle.dumps((program, args))
    except Exception as error:
        culprit = next(_culprits(program, args), None)
        what = f"{culprit} cannot" if culprit else "the program or its arguments cannot"
        raise TypeError(
            f"launch({_name(program)}): {what} be sent to the ranks: {error}. "
            "Create it inside the program, so that every rank makes its own."
        ) from error


def _culprits(program: Callable, args: tuple) -> Iterator[str]:
    for index, value in enumerate(args):
        if not _picklable(value):
            yield f"argument {index + 1} (a {_kind(value)})"
    yield from _culprits_of(program, seen=set())


def _culprits_of(function: object, *, seen: set[int]) -> Iterator[str]:
    function = inspect.unwrap(getattr(function, "func", function))
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    used = [("closed-over variable", name, value) for name, value in _closure(function)]
    used += [("global", name, value) for name, value in _globals(function)]
    for role, name, value in used:
        if isinstance(value, types.FunctionType):
            yield from _culprits_of(value, seen=seen)  # the leaf says more than the function
        elif not _picklable(value):
            yield f"the {role} {name!r} (a {_kind(value)}), which {_name(function)} uses,"


def _closure(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
                name = instruction.argval
                if name in function.__globals__:
                    yield name, function.__globals__[name]


def _picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _name(function: object) -> str:
    return getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
