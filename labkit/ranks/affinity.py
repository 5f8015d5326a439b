"""Say on which CPUs a process may run."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def available() -> bool:
    """Say whether this system lets a process choose its CPUs (Linux does, macOS does not)."""
    return hasattr(os, "sched_setaffinity")


def cpus() -> list[int]:
    """Return the numbers of the CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0)) if available() else list(range(os.cpu_count() or 1))


def pin(chosen: Iterable[int]) -> None:
    """Restrict this process, with all the threads that it has now or starts later, to these CPUs.

    A thread inherits the mask of the one that starts it. Threads that exist keep theirs, so each is
    set.

    Raises:
        OSError: If the system does not allow it, or there is no such CPU.
    """
    mask = set(chosen)
    if not available():
        raise OSError("this system has no way to choose the CPUs of a process")
    os.sched_setaffinity(0, mask)
    done: set[int] = set()
    while new := set(_threads()) - done:  # once more: one may have started another meanwhile
        for thread in new:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(thread, mask)
        done |= new


def never_preempt() -> None:
    """Put all threads of this process in the scheduling class SCHED_BATCH.

    A thread of that class, when it wakes up, waits until the one that runs goes to sleep or has had
    its turn. It needs no privilege. Source: sched(7).

    Raises:
        OSError: If the system has no such class.
    """
    if not hasattr(os, "SCHED_BATCH"):
        raise OSError("this system has no SCHED_BATCH class")
    for thread in _threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _threads() -> list[int]:
    return [int(task.name) for task in Path("/proc/self/task").iterdir()]
