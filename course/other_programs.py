"""What other programs used of the CPUs during a block, so that a noisy figure can be doubted.

It is added up from their CPU clocks, which are exact (clock_getcpuclockid(3)), not from the
machine's total, which is known in ticks of 10 ms only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from labkit.ranks import torchrun
from labkit.ranks.machine import usable_cpus

DISTURBED = 0.25  # CPUs that others may use on a small machine before a figure is not judged
_PROC = Path("/proc")
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def watch() -> Iterator[SimpleNamespace]:
    """Find out how many CPUs other programs used during a `with` block.

    They are the `cpus` of what is yielded, on average, once the block has ended; None where the
    system does not tell. Ours are this process and all that it started: the fork server and its
    ranks, a fabric's helpers; under torchrun the agent on this node and its ranks. Kernel threads
    count for nobody: some carry our own traffic. CPU time that a hypervisor gave away counts.

    A program that starts and ends within the block shows when its parent has waited for it, in
    ticks of 10 ms, as does stolen time: of both, what may be rounding is left out. In a container,
    where programs outside cannot be seen, what the machine's total has more than the programs
    inside counts, as far as it exceeds the error of counting ticks.

    Example:
        >>> with watch() as used:
        ...     total = sum(range(1_000_000))
        >>> used.cpus is None or used.cpus >= 0
        True
    """
    used, before = SimpleNamespace(cpus=None), Snapshot.take()
    yield used
    after = Snapshot.take()
    if before is not None and after is not None:
        used.cpus = before.cpus_of_others(after, ours=root())


def limit() -> float:
    """Return how many CPUs others may use before a figure is not judged: an eighth of those here.

    On one or two CPUs it is a quarter of one.
    """
    return max(DISTURBED, usable_cpus() / 8)


def root() -> int:
    """Return the process from which all of ours descend."""
    return os.getppid() if torchrun.is_here() else os.getpid()


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    used: float  # CPU seconds of all its threads
    reaped: float  # CPU seconds of the children that it has waited for, whole ticks


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What every process and the whole machine had used. Seconds."""

    clock: float
    processes: dict[int, _Process]
    cores: int
    busy: float  # what the machine's CPUs had spent on programs, whole ticks
    stolen: float
    whole: bool  # whether all of the machine's processes can be seen: false in a container

    @classmethod
    def take(cls) -> Snapshot | None:
        """Look now; None where the system does not tell (not Linux)."""
        try:
            lines = (_PROC / "stat").read_text().splitlines()
        except OSError:
            return None
        processes = {}
        for entry in os.listdir(_PROC):  # noqa: PTH208 - a hot path of plain names
            if entry.isdigit():
                with contextlib.suppress(OSError):  # it has just ended
                    processes[int(entry)] = _process(int(entry))
        whole = False  # a container hides the kernel's threads
        with contextlib.suppress(OSError):
            whole = (_PROC / "2/comm").read_text() == "kthreadd\n"
        if whole:  # the kernel's own threads descend from it
            processes = {pid: p for pid, p in processes.items() if 2 not in (pid, p.parent)}
        user, nice, system, _, _, _, _, stolen = (int(x) * _TICK for x in lines[0].split()[1:9])
        cores = sum(line.startswith("cpu") for line in lines) - 1
        busy = user + nice + system
        return cls(time.perf_counter(), processes, cores, busy, stolen, whole)

    def cpus_of_others(self, after: Snapshot, *, ours: int) -> float:
        """Return how many CPUs were used from here to `after` by what does not descend from us."""
        mine = _descendants(self.processes, ours) | _descendants(after.processes, ours)
        wall, nothing = after.clock - self.clock, _Process(0, 0.0, 0.0)
        seconds = reaped = all_seen = 0.0
        for pid in self.processes.keys() | after.processes.keys():
            then = self.processes.get(pid, nothing)
            now = after.processes.get(pid, nothing)  # its whole life is then in another's `reaped`
            all_seen += now.used + now.reaped - then.used - then.reaped
            if pid not in mine:
                ended = now is nothing
                seconds += 0.0 if ended else now.used - then.used
                reaped += now.reaped - then.reaped - (then.used if ended else 0.0)
        seconds += max(0.0, reaped - _TICK)
        seconds += max(0.0, after.stolen - self.stolen - _TICK)
        if not after.whole:
            # Each tick sees one program, by chance: three standard deviations of their number.
            error = 3 * _TICK * (wall * after.cores / _TICK) ** 0.5
            seconds += max(0.0, after.busy - self.busy - max(0.0, all_seen) - error)
        return seconds / wall


def _process(pid: int) -> _Process:
    """Read one process's account. Source: clock_getcpuclockid(3), proc_pid_stat(5)."""
    used = time.clock_gettime((~pid << 3) | 2)
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return _Process(int(fields[1]), used, (int(fields[13]) + int(fields[14])) * _TICK)


def _descendants(processes: dict[int, _Process], root: int) -> set[int]:
    family, children = {root}, {root}
    while children:
        children = {pid for pid, process in processes.items() if process.parent in children}
        family |= children
    return family
