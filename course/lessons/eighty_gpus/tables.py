"""Tables of pairs of hosts, whose slow ones exercise 7.1 asks for, and limits that people set."""

import statistics
from collections.abc import Callable, Iterable

from course.lessons.eighty_gpus import logs

Figures = dict[tuple[int, int], float]
"""Pair of hosts -> GB/s."""
LIMITS: dict[str, Callable[[Iterable[float]], float]] = {
    "that is below half of the best: a slow pair may reach 60 %": lambda gbs: 0.5 * max(gbs),
    "that is below 80 % of the median, which slow pairs pull down where most are slow: which pairs "
    "do you trust to be healthy?": lambda gbs: 0.8 * statistics.median(gbs),
    "that is below 80 % of the mean, which every slow pair pulls down": lambda gbs: (
        0.8 * statistics.fmean(gbs)
    ),
    "that is below 80 % of the commonest figure, which may be a slow pair's": lambda gbs: (
        0.8 * statistics.mode(gbs)
    ),
    "that is below 80 % of a quartile, and nearly all pairs may be slow": lambda gbs: (
        0.8 * statistics.quantiles(gbs, n=4)[2]
    ),
}
"""Limits below which a pair is called slow, and what is wrong with each."""


def below(limit: float, figures: Figures) -> set[tuple[int, int]]:
    """Return the pairs below a limit."""
    return {pair for pair, gbs in figures.items() if gbs < limit}


def tables() -> list[Figures]:
    """Return the tables of 7.1, on which no two of the usual mistakes give the same pairs.

    The lesson's; one without a slow pair; one with a single healthy pair; and a faster one, whose
    slow pairs are slow in several ways.
    """
    tests = logs.select(logs.seventeen_hosts(), collective="alltoall", gpus_per_host=8)
    lesson = {test.pair: test.busbw["16GiB"] for test in tests}
    healthy = {(a, b): 20.0 + (5 * a + b) / 20 for a in range(6) for b in range(a)}
    single = {(a, b): 60.0 for a in range(8) for b in range(a)} | {(1, 0): 200.0}
    faster = {pair: 10 * gbs for pair, gbs in healthy.items()}
    slow = dict(zip(faster, (120.0, 74.0, 74.0, 74.0, 46.0, 28.0, 19.0), strict=False))
    return [lesson, healthy, single, faster | slow]
