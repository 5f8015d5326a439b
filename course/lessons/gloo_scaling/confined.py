"""What Linux says of a process that gets too little of the CPUs: exercise 1.5's readings.

A reading holds the texts of files, as a rank can read them of itself, before and after its work.
Where a text is None there is no such file: `cpu.max` is there in a cgroup of version 2 that is not
the root one, as in most containers. Sources: the manual page proc(5) for Cpus_allowed_list, the
Linux kernel's Documentation/scheduler/sched-stats.rst for schedstat, and its
Documentation/admin-guide/cgroup-v2.rst for cpu.max and cpu.stat.
"""

import math
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from labkit.ranks import affinity
from labkit.ranks.launcher import launch

NAMES = ("quota", "mask", "neighbours", "none")
OTHERWISE = "take the rules of the statement one after the other; the first that fits counts"


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


def allowed(text: str) -> int:
    """Count the CPUs of a list like "0-3,8"."""
    ranges = [part.split("-") for part in text.strip().split(",")]
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


def quota(reading: Reading) -> float:
    """Return how many CPUs' worth of time cpu.max allows."""
    most, period = (reading.cpu_max or "max 100000").split()
    return float("inf") if most == "max" else int(most) / int(period)


def spent(reading: Reading) -> tuple[int, int]:
    """Return the ns of all threads on a CPU and waiting for one, between both readings."""
    new = {thread: text.split() for thread, text in reading.after.items()}
    old = {thread: text.split() for thread, text in reading.before.items()}
    on_cpu, waiting = (
        sum(int(now[k]) - int(old.get(thread, "00")[k]) for thread, now in new.items())
        for k in (0, 1)
    )
    return on_cpu, waiting


def throttled(reading: Reading) -> float:
    """Return the share of the periods in which the cgroup was throttled."""
    if reading.stat_before is None or reading.stat_after is None:
        return 0.0
    old, new = (
        dict(line.split() for line in text.splitlines())
        for text in (reading.stat_before, reading.stat_after)
    )
    periods, hits = (int(new[k]) - int(old[k]) for k in ("nr_periods", "nr_throttled"))
    return hits / periods if periods else 0.0


def answer(reading: Reading) -> tuple[str, float]:
    """Return what the exercise asks of a reading."""
    on_cpu, waiting = spent(reading)
    mask = allowed(reading.allowed)
    cpus = min(mask, quota(reading))
    if throttled(reading) >= 0.1:
        return "quota", cpus
    if waiting < on_cpu / 2:
        return "none", cpus
    return "mask" if mask < reading.cpus else "neighbours", cpus


def why(reading: Reading, got: float) -> str:
    """Say what a wrong number of CPUs usually means."""
    mask, right = allowed(reading.allowed), answer(reading)[1]
    most = (reading.cpu_max or "max").split()[0]
    short_period = min(mask, int(most) / 100_000) if most != "max" else math.nan
    known = [
        (mask, "the mask allows so many, but the quota fewer"),
        (quota(reading), "the quota allows so much, but the mask fewer"),
        (reading.cpus, "so many has the machine; how many may this process use?"),
        (short_period, "the period is the second figure of cpu_max, and not always 100000"),
    ]
    otherwise = 'the smaller of two: the CPUs of the mask ("0-3,8" are five), and quota / period'
    if right != int(right) and abs(got - right) < 1:
        otherwise = "a quota may allow a part of a CPU, like 1.25: return it as it is, not rounded"
    return next((text for value, text in known if value == got), otherwise)


def _stat(periods: int, hits: int, nice: str = "") -> str:
    """Write a cpu.stat as cgroup version 2 does."""
    used = f"usage_usec 9000000\nuser_usec 7000000\nsystem_usec 2000000\n{nice}"
    counts = f"nr_periods {periods}\nnr_throttled {hits}\nthrottled_usec 7\n"
    return f"{used}{counts}nr_bursts 0\nburst_usec 0\n"


_CALM = {"before": {7: "100 800000050 3"}, "after": {7: "900000100 802000050 40"}}
_WAITS = {"before": {7: "100 50 3"}, "after": {7: "500000100 450000050 40"}}
CASES: list[tuple[str, Reading, str]] = [
    (
        "one CPU of 48",
        Reading(48, "0", **_WAITS, cpu_max="max 100000", stat_before=_stat(0, 0),
                stat_after=_stat(0, 0)),
        "the threads wait, no period was throttled, and the mask has one CPU",
    ),
    (
        "a mask with room",
        Reading(48, "0-1,24-25", **_CALM, cpu_max="max 100000", stat_before=_stat(0, 0),
                stat_after=_stat(0, 0)),
        "a mask holds nobody back as long as the threads hardly wait",
    ),
    (
        "a mask that is tighter than the quota",
        Reading(48, "0-1", **_WAITS, cpu_max="400000 100000", stat_before=_stat(0, 0),
                stat_after=_stat(50, 0)),
        "no period was throttled, and the threads wait: for the two CPUs of the mask",
    ),
    (
        "all CPUs in the mask",
        Reading(48, "0-47", **_CALM, cpu_max="150000 100000", stat_before=_stat(10, 3),
                stat_after=_stat(110, 88)),
        "85 of 100 periods were throttled; a throttled thread need not show as waiting",
    ),
    (
        "throttled, but when?",
        Reading(48, "0-47", **_WAITS, cpu_max="400000 100000", stat_before=_stat(500, 480),
                stat_after=_stat(600, 480)),
        "cpu.stat counts since the cgroup was made: only the difference is yours. And a quota that "
        "is set, but not reached, holds nobody back",
    ),
    (
        "no cgroup file",
        Reading(48, "0-47", **_CALM),
        "no files, no quota; and the threads hardly wait",
    ),
    (
        "a mask and a quota",
        Reading(8, "2-3", **_WAITS, cpu_max="50000 100000", stat_before=_stat(7, 7),
                stat_after=_stat(57, 40)),
        "33 of 50 periods were throttled: the quota is the tighter one",
    ),
    (
        "a main thread that sleeps",
        Reading(4, "3", before={7: "100 50 3", 8: "5 5 1", 9: "0 0 0"},
                after={7: "200 60 4", 8: "400000000 390000000 90", 9: "300000000 280000000 70"}),
        "add up all threads: the main one sleeps while others work for it",
    ),
    (
        "a thread that is new",
        Reading(4, "0-3", before={7: "900000000 10 3"},
                after={7: "900000100 20 4", 8: "200000000 190000000 50"}),
        "a thread that was not there before began at zero; and what was spent before your first "
        "reading does not count",
    ),
    (
        "now and then",
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(100, 10),
                stat_after=_stat(200, 12)),
        "2 of 100 periods are less than a tenth",
    ),
    (
        "just a tenth",
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(100, 10),
                stat_after=_stat(200, 20)),
        "10 of 100 periods are a tenth: *at least* a tenth is asked",
    ),
    (
        "just half",
        Reading(4, "0-1", before={7: "100 50 3"}, after={7: "400000100 200000050 40"}),
        "200 ms are half of 400: *less* than half is asked",
    ),
    (
        "just under half",
        Reading(4, "0-3", before={7: "100 50 3"}, after={7: "400000101 200000050 40"}),
        "200000000 ns are less than half of 400000001: nothing is rounded",
    ),
    (
        "a period of 50 ms",
        Reading(48, "0-7", **_CALM, cpu_max="62500 50000", stat_before=_stat(0, 0),
                stat_after=_stat(20, 0)),
        "no period was throttled, and the threads hardly wait",
    ),
    (
        "a quota that was lifted meanwhile",
        Reading(8, "0-3", **_CALM, cpu_max="max 100000", stat_before=_stat(10, 10),
                stat_after=_stat(60, 50)),
        "40 of 50 periods were throttled, and rule 1 asks nothing else: cpu_max is what holds now",
    ),
    (
        "threads that wait unequally",
        Reading(4, "0-3", before={7: "0 0 0", 8: "0 0 0", 9: "0 0 0"},
                after={7: "400000000 220000000 9", 8: "300000000 50000000 9",
                       9: "50000000 50000000 9"}),
        "together they waited for 320 ms and were on a CPU for 750: add up first, then compare. "
        "Neither one thread nor the mean of their ratios decides",
    ),
    (
        "a thread that has ended, and worked",
        Reading(4, "0-3", before={7: "100 50 3", 8: "900000000 100 9"},
                after={7: "400000100 100000050 40"}),
        "thread 8 is only in `before`: it has ended, and does not count. Take the difference "
        "thread by thread, for those in `after`",
    ),
    (
        "a thread that has ended, and waited",
        Reading(4, "0-3", before={7: "100 50 3", 8: "900000000 900000000 9"},
                after={7: "400000100 100000050 40"}),
        "thread 8 is only in `before`: it has ended, and does not count",
    ),
    (
        "a mask, and a quota that is not reached",
        Reading(8, "0-3", **_WAITS, cpu_max="133333 100000", stat_before=_stat(0, 0),
                stat_after=_stat(50, 0)),
        "no period was throttled, the threads wait, and the mask has 4 of 8 CPUs",
    ),
    (
        "a quota, and a mask that is tighter",
        Reading(8, "5", **_WAITS, cpu_max="200000 100000", stat_before=_stat(0, 0),
                stat_after=_stat(50, 20)),
        "20 of 50 periods were throttled, and rule 1 asks nothing else",
    ),
    (
        "a long time",
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(0, 0),
                stat_after=_stat(1000, 10)),
        "10 of 1000 periods are less than a tenth: the share counts, not the number",
    ),
    (
        "6 of 100",
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(100, 10),
                stat_after=_stat(200, 16)),
        "6 of 100 periods are less than a tenth, and nothing is rounded",
    ),
    (
        "a short time",
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(0, 0),
                stat_after=_stat(8, 3)),
        "3 of 8 periods are more than a tenth, however few they are",
    ),
    (
        "1 of 11",
        Reading(4, "0-3", **_CALM, cpu_max="200000 100000", stat_before=_stat(0, 0),
                stat_after=_stat(11, 1)),
        "1 of 11 periods is less than a tenth: a tenth of 11 is 1.1, and nothing is rounded",
    ),
    (
        "five threads that work",
        Reading(4, "0-2", before={},
                after={7: "100000000 0 9", 8: "100000000 10000000 9", 9: "100000000 10000000 9",
                       10: "90000000 100000000 9", 11: "90000000 130000000 9"}),
        "add up all five: together they waited for 250 ms and were on a CPU for 480",
    ),
]  # fmt: skip
"""A title, a reading in the kernel's format (written by hand: a quota was not run), and a hint."""


def by_lot(number: int) -> Reading:
    """Draw a reading in the kernel's format, always the same for a number."""
    lot = random.Random(number)
    edges = sorted(lot.sample(range(64), 2 * lot.randint(1, 3)))
    parts = [
        str(first) if lot.random() < 0.4 else f"{first}-{last}"
        for first, last in zip(edges[::2], edges[1::2], strict=True)
    ]
    mask = ",".join(parts) if lot.random() < 0.8 else f"0-{edges[0] + 1}"
    cpus = allowed(mask) if mask.startswith("0-") and "," not in mask else 64

    def schedstat(worked: int, waited: int) -> str:
        return f"{worked} {waited} {lot.randrange(10**4)}"

    before, after, busy = {}, {}, lot.random() < 0.8
    for thread in lot.sample(range(5, 3000), lot.randint(1, 5)):
        old = [lot.randrange(10**10), lot.randrange(10**10)]
        here = lot.random()
        if here < 0.75:
            before[thread] = schedstat(*old)
        if here > 0.15 or not after:
            grown = [lot.randrange(10**9) * busy, lot.randrange(10**9) * lot.choice((0, 1, 1))]
            begun = old if thread in before else [0, 0]
            after[thread] = schedstat(*map(sum, zip(begun, grown, strict=True)))
    period = lot.choice((50_000, 100_000, 250_000))
    quota_of = lot.choice(("max", str(lot.randrange(1, 400) * period // 100)))
    begun, periods = lot.randrange(500), lot.choice((0, lot.randint(1, 200)))
    hits = min(periods, max(0, periods // 10 + lot.choice((-1, 0, 1, 2, 50))))
    nice = lot.choice(("", "nice_usec 0\n"))  # as kernels since 6.11 have it
    stats = [_stat(begun, begun // 3, nice), _stat(begun + periods, begun // 3 + hits, nice)]
    there = lot.random() < 0.8
    return Reading(
        cpus, mask, before, after,
        f"{quota_of} {period}" if lot.random() < 0.8 else None, *(stats if there else [None] * 2),
    )  # fmt: skip


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
    has_quota = cpu_max is not None and "nr_throttled" in (stat_after or "")
    return Reading(
        total,
        _list(affinity.cpus()),
        before,
        after,
        cpu_max,
        stat_before if has_quota else None,
        stat_after if has_quota else None,
    )


def _schedstat() -> dict[int, str]:
    folders = Path("/proc/self/task")
    if not folders.is_dir():
        return {}
    return {int(one.name): _text(one / "schedstat") or "0 0 0" for one in folders.iterdir()}


def _text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None


def _list(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))
