"""Say on which CPUs a process may run."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_TASKS = Path("/proc/self/task")


def available() -> bool:
    """Say whether this system lets a process choose its CPUs (Linux does, macOS does not)."""
    return hasattr(os, "sched_setaffinity")


def cpus() -> list[int]:
    """Return the numbers of the CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0)) if available() else list(range(os.cpu_count() or 1))


def pin(chosen: Iterable[int]) -> None:
    """Restrict this process, with all the threads that it has now or starts later, to these CPUs.

    A thread inherits the mask of the one that starts it; those that exist keep theirs, so each is
    set. An OSError says that the system does not allow it, or that there is no such CPU.
    """
    mask = set(chosen)
    if not available():
        raise OSError("this system has no way to choose the CPUs of a process")
    os.sched_setaffinity(0, mask)
    done: set[int] = set()
    while new := {int(task.name) for task in _TASKS.iterdir()} - done:  # started meanwhile
        for thread in new:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(thread, mask)
        done |= new
