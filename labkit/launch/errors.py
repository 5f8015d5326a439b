"""What can go wrong in a launch, told so that a reader can act on it.

The tree of exceptions::

    LaunchError                   anything below; also: the fork server could not start
    ├── RankError                 a rank raised something that cannot travel between processes
    ├── RankDied                  a rank's process ended before it returned
    └── LaunchTimeout             ranks had not finished in time; carries a CaseFile

A rank's *own* exception is not wrapped: ``launch`` raises it as it is, with a note that names the
rank and with the rank's traceback as its cause.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from labkit.launch.casefile import CaseFile, Line


class LaunchError(RuntimeError):
    """A launch failed."""


class RankError(LaunchError):
    """A rank raised what cannot travel between processes; the message has its type and text."""


class RankDied(LaunchError):
    """A rank's process ended before it returned: killed, crashed, or left by ``os._exit``.

    Attributes:
        rank: The rank that died first.
        signal: The signal's number, or None when the process exited by itself.
        exitcode: The exit status, or None when a signal ended it.
        stderr: The last lines that the rank wrote to its standard error.
    """

    def __init__(self, rank: int, world_size: int, status: int, stderr: list[str]) -> None:
        self.rank = rank
        self.signal = -status if status < 0 else None
        self.exitcode = status if status >= 0 else None
        self.stderr = stderr
        text = f"rank {rank} of {world_size} {_cause_of_death(status)}"
        if stderr:
            text += "\nThe last lines of its stderr:" + "".join(f"\n    {line}" for line in stderr)
        super().__init__(text)


class LaunchTimeout(LaunchError, TimeoutError):
    """Ranks had not finished in time.

    Attributes:
        case: For every rank its state, its Python stack and the collectives that it had entered.
    """

    def __init__(self, timeout: float, case: CaseFile) -> None:
        self.case = case
        late = len(case.running)
        super().__init__(
            f"{late} of {len(case.ranks)} ranks had not finished after {timeout:g} s.\n{case}"
        )


class RankTraceback(Exception):
    """A rank's traceback as text: the ``__cause__`` of the exception that `launch` raises."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a rank reports when its program raised."""

    rank: int
    exception: BaseException | None
    """The exception, or None where it could not be pickled."""
    kind: str
    """Qualified name of its type."""
    text: str
    """``str`` of it."""
    frames: tuple[Line, ...]
    """The traceback below labkit's own frames."""

    @property
    def signature(self) -> tuple:
        """Equal for ranks that failed in the same way at the same place."""
        return (self.kind, self.frames[-1] if self.frames else None)


def reraise(failures: list[Failure], world_size: int) -> None:
    """Raise the first rank's own exception, naming every rank that failed likewise.

    Args:
        failures: In order of arrival; at least one.
        world_size: Number of ranks of the launch.
    """
    first = failures[0]
    alike = sorted(f.rank for f in failures if f.signature == first.signature)
    others = sorted(f.rank for f in failures if f.signature != first.signature)
    exception = first.exception
    if exception is None:
        exception = RankError(f"{first.kind}: {first.text}")
    if len(alike) == 1:
        note = f"raised on rank {first.rank} of {world_size}"
    else:
        which = "all" if len(alike) == world_size else ", ".join(map(str, alike))
        note = f"raised on {len(alike)} of {world_size} ranks ({which}), told by rank {first.rank}"
    if others:
        note += f"; rank(s) {', '.join(map(str, others))} failed in another way after it"
    exception.add_note(f"[labkit] {note}")
    trace = "".join(f"\n  {line}" for frame in first.frames for line in frame.told())
    raise exception from RankTraceback(f"the traceback of rank {first.rank}:{trace}")


def _cause_of_death(status: int) -> str:
    if status >= 0:
        return (
            f"exited with status {status} before its program returned "
            "(os._exit, or a library that ends the process)."
        )
    number = -status
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    hints = {
        "SIGKILL": "Nobody but the system or a person sends it: often memory ran out (see dmesg).",
        "SIGSEGV": "A crash in native code: the stack is on its stderr.",
        "SIGABRT": "Native code gave up: its reason is on its stderr.",
        "SIGBUS": "Often a full /dev/shm (in Docker: --shm-size).",
    }
    return f"was killed by {name} before its program returned. {hints.get(name, '')}".rstrip()
