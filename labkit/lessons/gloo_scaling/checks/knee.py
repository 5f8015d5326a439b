"""Exercise 1.3: the law of lesson 01 from raw figures, and where its curve bends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from labkit.comm.alpha_beta import Saturation
from labkit.course import checking


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
    "the asker's 48 CPUs": Figures(1024, 0.25, 0.125, 48, "max 100000"),
    "a laptop": Figures(1024, 0.25, 0.125, 4, "max 100000"),
    "two CPUs, an expensive call": Figures(2048, 0.5, 0.5, 2, "max 100000"),
    "a container with 1.5 of 48 CPUs": Figures(512, 0.1875, 0.0625, 48, "150000 100000"),
    "a container allowed more than there is": Figures(4096, 1.0, 0.25, 2, "800000 100000"),
    "another period": Figures(1024, 0.75, 0.125, 16, "100000 50000"),
    "half a CPU, slow from the start": Figures(1024, 0.25, 0.125, 8, "50000 100000"),
}
PAIRS = (1, 2, 3, 5, 8, 40)


def quota(figures: Figures) -> float:
    """Return the CPUs' worth of time that the control group allows; infinite without a limit."""
    allowed, period = figures.cpu_max.split()
    return float("inf") if allowed == "max" else int(allowed) / int(period)


def law(figures: Figures) -> Saturation:
    """Return the saturation law of these figures."""
    return Saturation(
        latency=figures.wall / figures.calls,
        cpu_per_call=figures.on_cpu / figures.calls,
        cores=min(figures.cpus, quota(figures)),
    )


def check_knee(
    time_per_call: Callable[[int, Figures], float], first_slower: Callable[[Figures], int]
) -> None:
    """Judge a prediction.

    Args:
        time_per_call: ``(pairs, figures)`` -> seconds per call.
        first_slower: ``(figures)`` -> the smallest number of pairs at which a call takes longer
            than with one pair alone.

    Raises:
        CheckFailed: Says for which figures it is wrong.
    """
    with checking.exercise("1.3", par="exact, from one run of one pair") as verdict:
        got = [time_per_call(pairs, figures) for figures in CASES.values() for pairs in PAIRS]
        _judge_times(got)
        _judge_knees([first_slower(figures) for figures in CASES.values()])
        verdict.reached = f"{len(got)} times and {len(CASES)} knees, all exact"


def _judge_times(got: list[float]) -> None:
    asked = [(name, pairs) for name in CASES for pairs in PAIRS]
    meaning = _explained(
        got,
        {why: [wrong(CASES[name], pairs) for name, pairs in asked] for why, wrong in LAWS.items()},
        otherwise="T = max(latency, ranks / cores x CPU per call), with all figures per call",
    )
    for (name, pairs), answer in zip(asked, got, strict=True):
        expected = law(CASES[name]).time(2 * pairs)
        scaled = answer * 1e6 if isinstance(answer, int | float) else answer
        what = f"{name}, {pairs} pairs: time per call"
        checking.close_to(
            scaled, expected * 1e6, within=1e-6, what=what, unit="µs", meaning=meaning
        )


def _judge_knees(got: list[int]) -> None:
    meaning = _explained(
        got,
        {why: [wrong(figures) for figures in CASES.values()] for why, wrong in KNEES.items()},
        otherwise="the first number of pairs with time_per_call(pairs) > time_per_call(1)",
    )
    for (name, figures), answer in zip(CASES.items(), got, strict=True):
        expected = _first(law(figures))
        if answer != expected:
            raise checking.CheckFailed(f"{name}: {expected} pairs", repr(answer), meaning)


def _explained(got: list[float], mistakes: dict[str, list[float]], *, otherwise: str) -> str:
    """Return the mistake that leads to exactly these answers, all of them."""
    return next(
        (
            why
            for why, wrong in mistakes.items()
            if all(_equal(a, b) for a, b in zip(got, wrong, strict=True))
        ),
        otherwise,
    )


def _equal(got: float, wrong: float) -> bool:
    return isinstance(got, int | float) and abs(got - wrong) <= 1e-6 * abs(wrong)


def _first(right: Saturation) -> int:
    return next(p for p in count(2) if right.time(2 * p) > right.time(2) * (1 + 1e-9))


def _busy(figures: Figures, pairs: int) -> float:
    right = law(figures)
    return 2 * pairs / right.cores * right.cpu_per_call


def _with_cores(figures: Figures, cores: float) -> Saturation:
    return replace(law(figures), cores=cores)


def _assuming_the_period(figures: Figures) -> float:
    period = int(figures.cpu_max.split()[1])
    return min(figures.cpus, quota(figures) * period / 100_000)


LAWS: dict[str, Callable[[Figures, int], float]] = {
    "the max is missing: while CPUs are free, the latency decides": _busy,
    "the law is missing: this is the time of one pair, however many there are": lambda figures, _: (
        law(figures).latency
    ),
    "the larger of the two counts, not their sum: latency and queue overlap": lambda figures, p: (
        law(figures).latency + _busy(figures, p)
    ),
    "a pair has two ranks, and each of them needs the CPU": lambda figures, p: law(figures).time(p),
    "these are the CPUs that the container shows. cpu.max may allow fewer: quota / period": (
        lambda figures, p: _with_cores(figures, figures.cpus).time(2 * p)
    ),
    "a quota above the number of CPUs gives no further CPUs: take the smaller of the two": (
        lambda figures, p: _with_cores(
            figures, figures.cpus if quota(figures) == float("inf") else quota(figures)
        ).time(2 * p)
    ),
    "the period is not always 100000 µs: a quota of 100000 in 50000 us is two CPUs": (
        lambda figures, p: _with_cores(figures, _assuming_the_period(figures)).time(2 * p)
    ),
    "wall and on_cpu are of all calls together: divide by their number": lambda figures, p: (
        figures.calls * law(figures).time(2 * p)
    ),
}
"""What the usual mistakes give."""

KNEES: dict[str, Callable[[Figures], int]] = {
    "this is the last number that is as fast as one pair; asked for is the first that is not": (
        lambda figures: _first(law(figures)) - 1
    ),
    "the knee is a number of ranks, asked for are pairs": lambda figures: (
        int(law(figures).knee) + 1
    ),
    "these are the CPUs that the container shows: look into cpu.max": lambda figures: _first(
        _with_cores(figures, figures.cpus)
    ),
    "at the knee itself a call is not slower yet: the time must have *grown*": lambda figures: max(
        2, math.ceil(law(figures).knee / 2)
    ),
    "one pair cannot be slower than one pair: where even one is above the knee, two are the first "
    "that are slower": lambda figures: int(law(figures).knee / 2) + 1,
}
"""The same for the second question."""
