"""What Linux says of a process that gets too little of the CPUs: exercise 1.5's readings.

A reading holds the texts of files, as a rank can read them of itself, before and after its work.
Where a text is None there is no such file: `cpu.max` is there in a cgroup of version 2 that is not
the root one, as in most containers. Sources: the manual page proc(5) for Cpus_allowed_list, the
Linux kernel's Documentation/scheduler/sched-stats.rst for schedstat, and its
Documentation/admin-guide/cgroup-v2.rst for cpu.max and cpu.stat.
"""

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from course.place import launch
from labkit.ranks import affinity

NAMES = ("quota", "mask", "neighbours", "none")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process read of itself."""

    cpus: int  # that the machine has
    allowed: str  # behind `Cpus_allowed_list:` in /proc/self/status, like "0-3,8"
    before: dict[int, str]  # thread -> its schedstat: ns on a CPU, ns waiting for one, time slices
    after: dict[int, str]
    cpu_max: str | None = None  # quota and period in µs, like "150000 100000" or "max 100000"
    stat_before: str | None = None  # cpu.stat: a name and a figure in each line
    stat_after: str | None = None


def readings() -> list[tuple[Reading, tuple[str, float], str]]:
    """Return readings written by hand, what each says, and what is special about it."""
    rows = json.loads(Path(__file__).with_name("readings.json").read_text(encoding="utf-8"))
    for fields in (row["reading"] for row in rows):
        for moment in ("before", "after"):
            fields[moment] = {int(thread): text for thread, text in fields[moment].items()}
    return [(Reading(**row["reading"]), (row["name"], row["cpus"]), row["special"]) for row in rows]


def two_launches() -> dict[str, Reading]:
    """Launch two ranks that compute, twice; return rank 0's readings.

    In one of the launches, drawn by lot, they may use one CPU only.
    """
    one_cpu = random.choice(("first", "second"))
    return {name: launch(_read, name == one_cpu, world_size=2)[0] for name in ("first", "second")}


def _read(one_cpu: bool) -> Reading:
    total = len(affinity.cpus())
    if one_cpu and affinity.available():
        affinity.pin(affinity.cpus()[:1])
    dist.barrier()
    before, stat_before = _counters()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    after, stat_after = _counters()
    cpu_max = _text("/sys/fs/cgroup/cpu.max")
    may_throttle = cpu_max is not None and "nr_throttled" in (stat_after or "")
    stats = (stat_before, stat_after) if may_throttle else (None, None)
    mask = ",".join(map(str, affinity.cpus()))
    return Reading(total, mask, before, after, cpu_max, *stats)


def _counters() -> tuple[dict[int, str], str | None]:
    threads = Path("/proc/self/task").glob("*")
    schedstat = {int(thread.name): _text(thread / "schedstat") or "0 0 0" for thread in threads}
    return schedstat, _text("/sys/fs/cgroup/cpu.stat")


def _text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
