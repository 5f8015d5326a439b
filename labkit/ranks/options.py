"""What `launch` may be asked for: what makes no sense is refused in one line that names it."""

from __future__ import annotations

import difflib
import inspect
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal, SupportsIndex

from labkit.ranks.devices import BOTH
from labkit.ranks.parcel import name_of
from labkit.ranks.rank import SET_BY_LAUNCH, Hosts

Backend = Literal["gloo", "nccl", "cpu:gloo,cuda:nccl"]
_COUNTS = "world|rank|n_?proc|num_?proc|^n$|^np$"  # what others call the number of ranks


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a program is run on ranks.

    Raises:
        ValueError, TypeError: An option makes no sense, whatever the machine: names it, what was
            got and what is asked for.
    """

    world_size: int | None = None
    """How many ranks; 4 if not given, or under torchrun all that are there."""
    backend: Backend | None = None
    """If not given: gloo, and where every rank can have a GPU, NCCL for what lies on GPUs."""
    fabric: Hosts | None = None
    """Hosts and links to run on (`labkit.fabric.fabric`); none: this machine's loopback."""
    timeout: float = 60.0
    """Seconds that the ranks get, from their start; ``float("inf")`` for no limit."""
    init: bool = True
    """Whether the default group is up when the program starts.

    False is for programs that call ``init_process_group`` or ``init_rpc`` themselves.
    """
    checks: bool = False
    """Let torch compare the ranks' calls: a wrong shape or a swapped collective is an error.

    It comes at once and names the ranks. About 1.8 times slower per small call.
    """
    threads: int = 1
    """Intra-op threads of torch per rank."""
    env: Mapping[str, str | None] | None = None
    """Environment variables that the ranks have besides this process's; None takes one away.

    Those that torch or a library of it reads at import count, too.
    """
    output: Sequence[int] | None = None
    """The ranks whose output appears here, as ``[0]``; all if not given."""

    def __post_init__(self) -> None:
        for name in ("world_size", "threads"):
            value = getattr(self, name)
            if name == "world_size" and value is None:
                continue
            is_whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
            if not is_whole or operator.index(value) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
            object.__setattr__(self, name, operator.index(value))  # numpy's too
        timeout: object = self.timeout
        if isinstance(timeout, bool) or not isinstance(timeout, Real) or not float(timeout) > 0:
            raise ValueError(
                f"timeout must be a number of seconds above 0, got {timeout!r}. "
                'No limit: timeout=float("inf").'
            )
        if self.backend not in (None, "gloo", "nccl", BOTH):
            raise ValueError(f'backend must be "gloo" or "nccl", got {self.backend!r}.')
        fabric = self.fabric
        if isinstance(fabric, type) or (fabric is not None and not hasattr(fabric, "placement")):
            raise TypeError(f"fabric must be a Fabric, as Fabric.star(...) is, got {fabric!r}.")
        _check_env({} if self.env is None else self.env)
        _check_output(self.output, self.size)

    @property
    def size(self) -> int:
        """How many ranks a launch starts that starts its own."""
        return 4 if self.world_size is None else self.world_size


def not_default(options: Mapping[str, object]) -> list[str]:
    """Return the names of the options that somebody gave another value than the default."""
    return [field.name for field in fields(Options) if options[field.name] != field.default]


def check_program(
    program: object, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[str] = ()
) -> None:
    """Refuse what cannot run on ranks, or not with these arguments.

    Raises:
        TypeError: It is no function, would run nothing, takes other arguments (guesses which option
            was meant), or has a parameter of the same name as an option that was ``given``.
    """
    name = name_of(program)
    if not callable(program):
        raise TypeError(f"launch needs a function to run on the ranks, got {program!r}.")
    kinds = {"generator": inspect.isgeneratorfunction, "coroutine": inspect.iscoroutinefunction}
    for kind, is_of_this_kind in kinds.items():
        if is_of_this_kind(program):
            raise TypeError(
                f"launch({name}): it is a {kind} function, so calling it would run nothing. "
                "Write a plain function that returns its result."
            )
    try:
        signature = inspect.signature(program)
    except ValueError:
        return  # a builtin without a signature
    for option in given:
        if option in signature.parameters:
            raise TypeError(
                f"launch({name}): {option}= is an option of launch and a parameter of {name}. Say "
                f"which is meant: Launcher({option}=...)({name}, ...) gives it to the launch, "
                f"and Launcher()({name}, {option}=...) to the program."
            )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        count = len(args) + len(kwargs)
        raise TypeError(
            f"launch({name}) with {count} argument(s): {error}.{_hint(str(error))}"
        ) from None


def _hint(misfit: str) -> str:
    """Say what somebody may have meant whose arguments do not fit the program."""
    options = [field.name for field in fields(Options)]
    unknown = re.search("got an unexpected keyword argument '(.*)'", misfit)
    if unknown and unknown[1] in options:
        return f" Options of a Launcher stand in its own brackets: Launcher({unknown[1]}=...)."
    if unknown:
        close = difflib.get_close_matches(unknown[1], options, 1)
        meant = "world_size" if re.search(_COUNTS, unknown[1]) else next(iter(close), None)
        return f" Did you mean {meant}=?" if meant else ""
    if "missing a required" in misfit:
        return " launch passes no rank: a program asks dist.get_rank() and get_world_size()."
    return " The number of ranks is world_size=; what stands after the program is the program's."


def _check_env(env: object) -> None:
    """Refuse what is no mapping from names to texts, and names that launch sets."""
    if not isinstance(env, Mapping):
        raise TypeError(f'env must map names to texts, as {{"TORCH_LOGS": "dynamo"}}, got {env!r}.')
    for name, value in env.items():
        if not isinstance(value, str | None):
            raise ValueError(f"env[{name!r}] must be a text, or None for none, got {value!r}.")
        if name in SET_BY_LAUNCH:
            raise ValueError(f"env[{name!r}]: launch sets {name} itself, for each rank.")


def _check_output(output: object, world_size: int) -> None:
    """Refuse what are no ranks."""
    if isinstance(output, str) or not isinstance(output, Sequence | set | frozenset | None):
        raise TypeError(f"output must be ranks, as [0], got {output!r}.")
    for rank in output or ():
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(
                f"output has {rank!r}, which is no rank of {world_size}: 0 to {world_size - 1}."
            )
