"""Where a process's time went: on a CPU, waiting for a CPU, or blocked; and what others used.

Linux keeps two counters per thread in ``/proc/self/task/TID/schedstat``, both in nanoseconds: time
on a CPU, and time runnable in a run queue while another thread had the CPU. For what is left of the
wall time the thread was blocked: asleep until something happened.
Source: Documentation/scheduler/sched-stats.rst of the Linux kernel.

What other programs used (`others`) is added up from their CPU clocks, which are exact
(clock_getcpuclockid(3)), not from the machine's total, which is known in ticks of 10 ms only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from labkit.launch import torchrun

_PROC = Path("/proc")
_TASKS = Path("/proc/self/task")
_PF_KTHREAD = 0x00200000


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
    waiting: float = 0.0
    """Runnable, but another thread had the CPU; summed over threads."""
    voluntary: int = 0
    """Context switches because a thread had to wait for something."""
    involuntary: int = 0
    """Context switches because the kernel gave the CPU to somebody else."""
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
    """Account for the block's time.

    Raises:
        SchedUnavailable: If the kernel does not keep the counters.

    Example:
        >>> with watch() as usage:
        ...     total = sum(range(1_000_000))
        >>> usage.on_cpu > usage.waiting
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


def _main_thread_first(task: Path) -> tuple[bool, int]:
    """Sort by thread number; those of later threads may be lower, once the kernel starts over."""
    number = int(task.name)
    return number != os.getpid(), number


def _read() -> dict[int, tuple[str, int, int]]:
    """Return name, on-CPU and run-queue nanoseconds per thread, the main thread first."""
    counters = {}
    try:
        for task in sorted(_TASKS.iterdir(), key=_main_thread_first):
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


@dataclass(slots=True)
class Others:
    """Filled in when the block ends."""

    cpus: float | None = None
    """CPUs that other programs used, on average over the block; None where the system does not
    tell."""


@contextlib.contextmanager
def others() -> Iterator[Others]:
    """Find out how many CPUs other programs used during the block.

    Ours are this process and all that it started: the fork server and its ranks, a fabric's
    helpers. Under torchrun the agent on this node and all its ranks are ours. Kernel threads count
    for nobody: some of them carry our own traffic. CPU time that a hypervisor gave to other
    machines ("steal") counts as used by others.

    A program that starts and ends within the block is seen when its parent has waited for it, in
    ticks of 10 ms, as is stolen time: of both, what may be rounding is not counted. In a container
    the programs outside of it cannot be seen; there, what the machine's total has more than the
    programs inside counts, as far as it is more than the error of counting ticks.

    Example:
        >>> with others() as used:
        ...     total = sum(range(1_000_000))
        >>> used.cpus is None or used.cpus >= 0
        True
    """
    used = Others()
    before = _Snapshot.take()
    try:
        yield used
    finally:
        after = _Snapshot.take()
        if before is not None and after is not None:
            used.cpus = before.cpus_of_others(
                after, ours=_root(), tick=1 / os.sysconf("SC_CLK_TCK")
            )


def _root() -> int:
    return os.getppid() if torchrun.is_here() else os.getpid()


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    used: float
    """CPU seconds of all its threads."""
    reaped: float
    """CPU seconds of the children that it has waited for, whole ticks."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What every process and the whole machine had used. Seconds."""

    clock: float
    processes: dict[int, _Process]
    cores: int
    busy: float
    """What the machine's CPUs had spent on programs, whole ticks."""
    stolen: float
    whole: bool
    """Whether all of the machine's processes can be seen: false in a container."""

    @classmethod
    def take(cls) -> _Snapshot | None:
        """Look now; None where the system does not tell (not Linux)."""
        tick = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.0
        try:
            fields = (_PROC / "stat").read_text().splitlines()
            user, nice, system, _, _, _, _, stolen = map(int, fields[0].split()[1:9])
        except (OSError, ValueError):
            return None
        processes = {}
        for pid in (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                process, kernel = _process(pid, tick)
                if not kernel:
                    processes[pid] = process
        return cls(
            time.perf_counter(),
            processes,
            sum(line.startswith("cpu") for line in fields) - 1,
            (user + nice + system) * tick,
            stolen * tick,
            _all_visible(),
        )

    def cpus_of_others(self, after: _Snapshot, *, ours: int, tick: float) -> float:
        """Return how many CPUs were used from here to `after` by what does not descend from us."""
        wall = after.clock - self.clock
        mine = _descendants(self.processes, ours) | _descendants(after.processes, ours)
        seconds, all_seen, reaped = 0.0, 0.0, 0.0
        nothing = _Process(0, 0.0, 0.0)
        for pid, process in after.processes.items():
            before = self.processes.get(pid, nothing)
            all_seen += process.used + process.reaped - before.used - before.reaped
            if pid not in mine:
                seconds += max(0.0, process.used - before.used)
                reaped += process.reaped - before.reaped
        for pid, process in self.processes.items():
            if pid not in after.processes:  # its whole life is now among what its parent has reaped
                all_seen -= process.used + process.reaped
                if pid not in mine:
                    reaped -= process.used + process.reaped
        seconds += max(0.0, reaped - tick) + max(0.0, after.stolen - self.stolen - tick)
        if not after.whole:
            ticks = wall * after.cores / tick
            error = 3 * tick * ticks**0.5  # each tick sees one program that runs, by chance
            seconds += max(0.0, after.busy - self.busy - max(0.0, all_seen) - error)
        return seconds / wall


def _process(pid: int, tick: float) -> tuple[_Process, bool]:
    """Return a process, and whether it is a kernel thread. Source: proc_pid_stat(5)."""
    used = time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    parent, flags, children = int(fields[1]), int(fields[6]), int(fields[13]) + int(fields[14])
    return _Process(parent, used, children * tick), bool(flags & _PF_KTHREAD)


def _all_visible() -> bool:
    """Process 2 of a Linux machine is kthreadd; a container has its own numbers, or hides it."""
    try:
        return (_PROC / "2/comm").read_text().strip() == "kthreadd"
    except OSError:
        return False


def _descendants(processes: dict[int, _Process], root: int) -> set[int]:
    found, more = {root}, True
    while more:
        more = {pid for pid, p in processes.items() if p.parent in found and pid not in found}
        found |= more
    return found
