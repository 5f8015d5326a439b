"""What Linux says of a process that gets too little of the CPUs: exercise 1.5's readings.

A reading holds the texts of files, as a rank can read them of itself, before and after its work.
Where a text is None there is no such file: `cpu.max` is there in a cgroup of version 2 that is not
the root one, as in most containers. Sources: the manual page proc(5) for Cpus_allowed_list, the
Linux kernel's Documentation/scheduler/sched-stats.rst for schedstat, and its
Documentation/admin-guide/cgroup-v2.rst for cpu.max and cpu.stat.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from labkit.ranks import affinity
from labkit.ranks.launcher import launch

NAMES = ("quota", "mask", "neighbours", "none")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process read of itself."""

    cpus: int
    """That the machine has."""
    allowed: str
    """Behind `Cpus_allowed_list:` in /proc/self/status, like "0-3,8"."""
    before: dict[int, str]
    """Thread -> its schedstat: ns on a CPU, ns waiting for one, and time slices."""
    after: dict[int, str]
    cpu_max: str | None = None
    """Quota and period in µs, like "150000 100000" or "max 100000"."""
    stat_before: str | None = None
    """cpu.stat: a name and a figure in each line."""
    stat_after: str | None = None


def _stat(periods: int, hits: int) -> str:
    """Write a cpu.stat as cgroup version 2 does."""
    used = "usage_usec 9000000\nuser_usec 7000000\nsystem_usec 2000000\n"
    return f"{used}nr_periods {periods}\nnr_throttled {hits}\nthrottled_usec 7\n"


_CALM = {"before": {7: "100 800000050 3"}, "after": {7: "900000100 802000050 40"}}
_WAITS = {"before": {7: "100 50 3"}, "after": {7: "400000100 200000050 40"}}
READINGS: list[tuple[Reading, tuple[str, float], str]] = [
    (
        Reading(48, "0", **_WAITS, cpu_max="max 100000", stat_before=_stat(0, 0),
                stat_after=_stat(0, 0)),
        ("mask", 1),
        "no period was throttled, 200 ms of waiting are half of 400 (*less* than half is asked), "
        "and the mask has one CPU of 48",
    ),
    (
        Reading(48, "0-1,24-25", **_CALM),
        ("none", 4),
        "no files, no quota; and a mask holds nobody back as long as the threads hardly wait",
    ),
    (
        Reading(48, "0-47", **_CALM, cpu_max="150000 100000", stat_before=_stat(10, 3),
                stat_after=_stat(110, 88)),
        ("quota", 1.5),
        "85 of 100 periods were throttled; a throttled thread need not show as waiting",
    ),
    (
        Reading(48, "0-47", **_WAITS, cpu_max="400000 100000", stat_before=_stat(500, 480),
                stat_after=_stat(600, 480)),
        ("neighbours", 4),
        "cpu.stat counts since the cgroup was made: only the difference is yours. And a quota that "
        "is set, but not reached, holds nobody back",
    ),
    (
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(100, 10),
                stat_after=_stat(200, 12)),
        ("none", 2),
        "2 of 100 periods are less than a tenth, and the threads hardly wait",
    ),
    (
        Reading(8, "2-3", **_WAITS, cpu_max="62500 50000", stat_before=_stat(7, 7),
                stat_after=_stat(57, 12)),
        ("quota", 1.25),
        "5 of 50 periods are a tenth: *at least* a tenth is asked, before all else",
    ),
    (
        Reading(8, "5", **_WAITS, cpu_max="200000 100000", stat_before=_stat(7, 7),
                stat_after=_stat(57, 40)),
        ("quota", 1),
        "33 of 50 periods were throttled, and rule 1 asks nothing else; but the mask is tighter",
    ),
    (
        Reading(4, "3", before={7: "100 50 3", 8: "5 5 1"},
                after={7: "200 60 4", 8: "400000000 100000000 90", 9: "200000000 250000000 70"}),
        ("mask", 1),
        "add up all threads, 600 ms on a CPU and 350 of waiting: neither one of them alone decides",
    ),
    (
        Reading(4, "0-3", before={7: "900000000 10 3"},
                after={7: "900000100 20 4", 8: "200000000 190000000 50"}),
        ("neighbours", 4),
        "a thread that was not there before began at zero; and what was spent before your first "
        "reading does not count",
    ),
    (
        Reading(4, "0-3", before={7: "100 50 3", 8: "900000000 100 9"},
                after={7: "400000100 100000050 40"}),
        ("none", 4),
        "thread 8 is only in `before`: it has ended, and does not count",
    ),
]  # fmt: skip
"""A reading in the kernel's format, written by hand, what it says, and what is special about it."""


def two_launches() -> dict[str, Reading]:
    """Launch two ranks that compute, twice; in one of the launches they may use one CPU only.

    Returns:
        By "first" and "second" rank 0's reading; which one is confined depends on the clock.
    """
    flip = time.perf_counter_ns() // 1000 % 2
    return {
        name: launch(_read, bool(turn) ^ bool(flip), world_size=2)[0]
        for turn, name in enumerate(("first", "second"))
    }


def _read(one_cpu: bool, seconds: float = 0.3) -> Reading:
    total = len(affinity.cpus()) if affinity.available() else os.cpu_count() or 1
    if one_cpu and affinity.available():
        affinity.pin(affinity.cpus()[:1])
    dist.barrier()
    before, stat_before = _schedstat(), _text("/sys/fs/cgroup/cpu.stat")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    after, stat_after = _schedstat(), _text("/sys/fs/cgroup/cpu.stat")
    cpu_max = _text("/sys/fs/cgroup/cpu.max")
    if cpu_max is None or "nr_throttled" not in (stat_after or ""):
        stat_before = stat_after = None
    mask = ",".join(map(str, affinity.cpus()))
    return Reading(total, mask, before, after, cpu_max, stat_before, stat_after)


def _schedstat() -> dict[int, str]:
    folders = Path("/proc/self/task")
    if not folders.is_dir():
        return {}
    return {int(task.name): _text(task / "schedstat") or "0 0 0" for task in folders.iterdir()}


def _text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
