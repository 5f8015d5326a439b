"""Where a process's time went: on a CPU, waiting for a CPU, or blocked.

Linux keeps two counters per thread in ``/proc/self/task/TID/schedstat``, both in nanoseconds: time
on a CPU, and time runnable in a run queue while another thread had the CPU. For what is left of the
wall time the thread was blocked: asleep until something happened.
Source: Documentation/scheduler/sched-stats.rst of the Linux kernel.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_TASKS = Path("/proc/self/task")


class SchedUnavailable(RuntimeError):
    """The kernel does not tell: not Linux, or built without scheduler statistics."""


@dataclass(slots=True)
class ThreadUsage:
    """One thread's share of a block. Seconds."""

    name: str
    on_cpu: float
    waiting: float


@dataclass(slots=True)
class Usage:
    """Where the time of all threads of this process went during a block. Seconds, unless named.

    Filled in when the block ends.
    """

    wall: float = 0.0
    on_cpu: float = 0.0
    """Summed over threads: two threads on two CPUs for one second make two seconds."""
    waiting: float = 0.0  # runnable, but another thread had the CPU; summed over threads
    voluntary: int = 0  # context switches because a thread had to wait for something
    involuntary: int = 0  # context switches because the kernel gave the CPU to somebody else
    threads: list[ThreadUsage] = field(default_factory=list)
    """Those that were there at the end of the block."""

    @property
    def blocked(self) -> float:
        """The main thread's time that was neither on a CPU nor waiting for one."""
        main = self.threads[0]
        return max(0.0, self.wall - main.on_cpu - main.waiting)


def available() -> bool:
    """Say whether this machine keeps the counters."""
    try:
        return bool(_read())
    except SchedUnavailable:
        return False


@contextlib.contextmanager
def watch() -> Iterator[Usage]:
    """Account for the block's time; `SchedUnavailable` where the kernel does not.

    Example:
        >>> with watch() as usage:
        ...     total = sum(range(1_000_000))
        >>> usage.on_cpu > 0
        True

        Adding a million numbers needs a CPU; on an idle machine nothing else takes it away.
    """
    usage = Usage()
    before, switches = _read(), resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    try:
        yield usage
    finally:
        usage.wall = time.perf_counter() - start
        after, switched = _read(), resource.getrusage(resource.RUSAGE_SELF)
        usage.voluntary = switched.ru_nvcsw - switches.ru_nvcsw
        usage.involuntary = switched.ru_nivcsw - switches.ru_nivcsw
        for thread, (name, on_cpu, waiting) in after.items():
            _, on_cpu_before, waiting_before = before.get(thread, (name, 0, 0))
            used = (on_cpu - on_cpu_before) / 1e9, (waiting - waiting_before) / 1e9
            usage.threads.append(ThreadUsage(name, *used))
        usage.on_cpu = sum(thread.on_cpu for thread in usage.threads)
        usage.waiting = sum(thread.waiting for thread in usage.threads)


def _read() -> dict[int, tuple[str, int, int]]:
    """Return name, on-CPU and run-queue nanoseconds per thread, the main thread first."""
    counters = {}
    try:
        tasks = sorted(_TASKS.iterdir(), key=lambda task: int(task.name))
        # Later threads may have lower numbers than the main one, once the kernel starts over.
        for task in sorted(tasks, key=lambda task: int(task.name) != os.getpid()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                on_cpu, waiting, _ = (task / "schedstat").read_text().split()
                name = (task / "comm").read_text().strip()
                counters[int(task.name)] = (name, int(on_cpu), int(waiting))
    except OSError as error:
        raise SchedUnavailable(f"no scheduler statistics on this system: {error}") from None
    if not counters or not any(on_cpu for _, on_cpu, _ in counters.values()):
        raise SchedUnavailable(
            "no scheduler statistics on this system: /proc/self/task/*/schedstat is empty "
            "(the kernel needs CONFIG_SCHED_INFO; macOS and some sandboxes have none)"
        )
    return counters
