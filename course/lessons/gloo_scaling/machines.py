"""Machines on paper, to try exercise 1.3's prediction on; and what the usual mistakes predict."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from course.lessons.gloo_scaling.model import Saturation


@dataclass(frozen=True, slots=True)
class Figures:
    """What one pair's run and the machine's files say; the raw material of a prediction."""

    calls: int
    """Calls that each of the two ranks made."""
    wall: float
    """Seconds that they took."""
    on_cpu: float
    """Seconds on a CPU of *one* rank, all its threads, over all calls."""
    cpus: int
    """CPUs that the program sees where it is to run."""
    cpu_max: str
    """What /sys/fs/cgroup/cpu.max says there: "QUOTA PERIOD" in microseconds, or "max PERIOD"."""


CASES = {
    "the asker's 48 CPUs": Figures(1024, 0.26, 0.125, 48, "max 100000"),
    "a laptop": Figures(1024, 0.25, 0.125, 4, "max 100000"),
    "two CPUs, an expensive call": Figures(2048, 0.5, 0.5, 2, "max 100000"),
    "a container with 1.5 of 48 CPUs": Figures(512, 0.1875, 0.0625, 48, "150000 100000"),
    "a container allowed more than there is": Figures(4096, 1.0, 0.25, 2, "800000 100000"),
    "another period": Figures(1024, 0.75, 0.125, 16, "100000 50000"),
    "half a CPU, slow from the start": Figures(1024, 0.25, 0.125, 8, "50000 100000"),
    "three CPUs": Figures(1024, 0.3, 0.125, 3, "max 100000"),
    "a large host, a call that mostly waits": Figures(1024, 0.5, 0.03125, 128, "max 100000"),
}
PAIRS = (1, 2, 3, 5, 8, 40, 2000)


def quota(figures: Figures) -> float:
    """Return the CPUs' worth of time that the control group allows; infinite without a limit."""
    allowed, period = figures.cpu_max.split()
    return math.inf if allowed == "max" else int(allowed) / int(period)


def law(figures: Figures) -> Saturation:
    """Return the saturation law of these figures."""
    return Saturation(
        latency=figures.wall / figures.calls,
        cpu_per_call=figures.on_cpu / figures.calls,
        cores=min(figures.cpus, quota(figures)),
    )


def time_per_call(figures: Figures, pairs: int) -> float:
    """Return the right answer to the first question."""
    return law(figures).time(2 * pairs)


def first_slower(figures: Figures, cores: float | None = None) -> int:
    """Return the right answer to the second question."""
    right = law(figures) if cores is None else _on(cores, figures)
    return next(p for p in count(2) if right.time(2 * p) > right.time(2) * (1 + 1e-9))


def _busy(figures: Figures, pairs: int) -> float:
    right = law(figures)
    return 2 * pairs / right.cores * right.cpu_per_call


def _on(cores: float, figures: Figures) -> Saturation:
    return replace(law(figures), cores=cores)


def _assuming_the_period(figures: Figures) -> float:
    period = int(figures.cpu_max.split()[1])
    return min(figures.cpus, quota(figures) * period / 100_000)


LAWS: dict[str, Callable[[Figures, int], float]] = {
    "the max is missing: while CPUs are free, the latency decides": _busy,
    "the law is missing: this is the time of one pair, however many there are": (
        lambda f, p: law(f).latency
    ),
    "the larger of the two counts, not their sum: latency and queue overlap": (
        lambda f, p: law(f).latency + _busy(f, p)
    ),
    "a pair has two ranks, and each of them needs the CPU": lambda f, p: law(f).time(p),
    "these are the CPUs that the container shows. cpu.max may allow fewer: quota / period": (
        lambda f, p: _on(f.cpus, f).time(2 * p)
    ),
    "a quota above the number of CPUs gives no further CPUs: take the smaller of the two": (
        lambda f, p: _on(f.cpus if quota(f) == math.inf else quota(f), f).time(2 * p)
    ),
    "the period is not always 100000 µs: a quota of 100000 in 50000 µs is two CPUs": (
        lambda f, p: _on(_assuming_the_period(f), f).time(2 * p)
    ),
    "wall and on_cpu are of all calls together: divide by their number": (
        lambda f, p: f.calls * law(f).time(2 * p)
    ),
    "these are whole ranks on the busiest core; left free, ranks move, and the average counts: "
    "2 x pairs / cores, also where that is no whole number": (
        lambda f, p: max(law(f).latency, math.ceil(2 * p / law(f).cores) * law(f).cpu_per_call)
    ),
    "these are microseconds; seconds are asked for": lambda f, p: 1e6 * law(f).time(2 * p),
}
"""What the usual mistakes give."""

KNEES: dict[str, Callable[[Figures], float]] = {
    "this is the last number that is as fast as one pair; asked for is the first that is not": (
        lambda f: first_slower(f) - 1
    ),
    "the knee is a number of ranks, asked for are pairs": lambda f: int(law(f).knee) + 1,
    "these are the CPUs that the container shows: look into cpu.max": (
        lambda f: first_slower(f, f.cpus)
    ),
    "at the knee itself a call is not slower yet: the time must have *grown*": (
        lambda f: max(2, math.ceil(law(f).knee / 2))
    ),
    "one pair cannot be slower than one pair: where even one is above the knee, two are the first "
    "that are slower": lambda f: int(law(f).knee / 2) + 1,
    "a fraction of a pair cannot call: the first *whole* number": lambda f: law(f).knee / 2,
}
"""The same for the second question."""
