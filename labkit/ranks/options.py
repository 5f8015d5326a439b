"""What `launch` may be asked for: what makes no sense is refused in one line that names it."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.ranks.devices import BOTH
from labkit.ranks.parcel import name_of
from labkit.ranks.rank import SET_BY_LAUNCH

_COUNTS = "world|rank|n_?proc|num_?proc|^n$|^np$"  # what others call the number of ranks


def check_program(
    program: object, args: tuple[Any, ...], kwargs: dict[str, Any], options: Sequence[str]
) -> None:
    """Refuse what cannot run on ranks, or not with these arguments.

    Raises:
        TypeError: It is no function, would run nothing, or takes other arguments; guesses which of
            the launch's ``options`` was meant.
    """
    name = name_of(program)
    if not callable(program):
        raise TypeError(f"launch needs a function to run on the ranks, got {program!r}.")
    if inspect.isgeneratorfunction(program) or inspect.iscoroutinefunction(program):
        kind = "generator" if inspect.isgeneratorfunction(program) else "coroutine"
        raise TypeError(
            f"launch({name}): it is a {kind} function, so calling it would run nothing. "
            "Write a plain function that returns its result."
        )
    try:
        inspect.signature(program).bind(*args, **kwargs)
    except ValueError:
        return  # a builtin without a signature
    except TypeError as error:
        count = len(args) + len(kwargs)
        hint = _hint(str(error), options)
        raise TypeError(f"launch({name}) with {count} argument(s): {error}.{hint}") from None


def _hint(misfit: str, options: Sequence[str]) -> str:
    """Say what somebody may have meant whose arguments do not fit the program."""
    missing = re.search("missing a required .*argument: '(.*)'", misfit)
    unknown = re.search("got an unexpected keyword argument '(.*)'", misfit)
    if missing and missing[1] in options:
        return f" launch keeps {missing[1]}= for itself: pass it by position, or in a partial."
    if missing:
        return " launch passes no rank: a program asks dist.get_rank() and get_world_size()."
    if unknown:
        close = difflib.get_close_matches(unknown[1], options, 1)
        meant = "world_size" if re.search(_COUNTS, unknown[1]) else next(iter(close), None)
        return f" Did you mean {meant}=?" if meant else ""
    return " The number of ranks is world_size=; what stands after the program is the program's."


def check_options(
    world_size: object,
    timeout: object,
    threads: object,
    backend: object,
    fabric: object,
    init: object,
    checks: object,
) -> None:
    """Refuse options that make no sense, whatever the machine.

    Raises:
        ValueError: Names the option, what was got and what is asked for.
        TypeError: The same, of a fabric.
    """
    for name, value in (("world_size", world_size), ("threads", threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(
            f"timeout must be a number of seconds above 0, got {timeout!r}. "
            'No limit: timeout=float("inf").'
        )
    if backend not in (None, "gloo", "nccl", BOTH):
        raise ValueError(f'backend must be "gloo" or "nccl", got {backend!r}.')
    for name, value in (("init", init), ("checks", checks)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}.")
    if isinstance(fabric, type) or (fabric is not None and not hasattr(fabric, "placement")):
        raise TypeError(f"fabric must be a Fabric, as Fabric.star(...) makes it, got {fabric!r}.")


def check_env(env: object) -> None:
    """Refuse what is no mapping from names to texts, and names that launch sets.

    Raises:
        TypeError: It is no mapping.
        ValueError: A name or a value makes no sense; names it.
    """
    if env is None:
        return
    if not isinstance(env, Mapping):
        raise TypeError(f'env must map names to texts, as {{"TORCH_LOGS": "dynamo"}}, got {env!r}.')
    for name, value in env.items():
        named = isinstance(name, str) and name and not {"=", "\0"} & {*name}
        if not named or not isinstance(value, str | None) or "\0" in (value or ""):
            raise ValueError(
                f"env[{name!r}] must be a text, or None for none, got {value!r}."
                if named
                else f"env must have names of variables as keys, got {name!r}."
            )
        if name in SET_BY_LAUNCH:
            raise ValueError(f"env[{name!r}]: launch sets {name} itself, for each rank.")


def check_output(output: object, world_size: int) -> None:
    """Refuse what is neither ranks nor a folder.

    Raises:
        TypeError: It is neither.
        ValueError: There is no such rank, or no folder can be there.
    """
    if output is None or isinstance(output, str | os.PathLike):
        if output is not None and not str(output):
            raise ValueError("output must be ranks or the path of a folder, got ''.")
        if output is not None and Path(output).exists() and not Path(output).is_dir():
            raise ValueError(f"output must be ranks or a folder; {output} is none.")
        return
    if not isinstance(output, Sequence | set | frozenset):
        raise TypeError(f"output must be ranks, as [0], or the path of a folder, got {output!r}.")
    for rank in output:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(
                f"output has {rank!r}, which is no rank of {world_size}: 0 to {world_size - 1}."
            )
