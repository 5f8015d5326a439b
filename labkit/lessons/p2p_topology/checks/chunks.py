"""Exercise 4.3: the chunk size that makes a relay fastest."""

from __future__ import annotations

import random
from collections.abc import Callable

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.p2p_topology.relay_model import best_chunk, relay_time


def check_best_chunk(chunk_of: Callable[..., float]) -> None:
    """Judge exercise 4.3: `chunk_of(rates, nbytes, alpha)` in bytes, for any number of hops."""
    generator = random.Random(4)
    with checking.exercise("4.3", par="the least time beyond S/B, within 5 %") as verdict:
        worst = 1.0
        for hops in (2, 2, 3, 4, 6):
            rates = [generator.uniform(1e7, 5e8) for _ in range(hops)]
            nbytes, alpha = generator.choice([10**6, 10**8, 10**9]), generator.uniform(1e-6, 1e-4)
            worst = max(worst, _judge_chunk(chunk_of, rates, nbytes, alpha))
        verdict.reached = f"{(worst - 1) * 100:.1g} % above the least at worst"


def _judge_chunk(chunk_of, rates: list[float], nbytes: int, alpha: float) -> float:
    def extra(chunk: float) -> float:
        """Return the seconds beyond S/B, which no chunk size can save."""
        whole = nbytes / min(rates)
        return relay_time(rates, nbytes=nbytes, chunk=chunk, alpha=alpha) - whole

    best = best_chunk(rates, nbytes=nbytes, alpha=alpha)
    got = chunk_of(rates, nbytes, alpha)
    if not isinstance(got, int | float) or not got > 0:
        raise CheckFailed("a number of bytes above 0", repr(got), "the function must return c")
    ratio = extra(got) / extra(best)
    if ratio > 1.05:
        raise CheckFailed(
            f"{len(rates)} hops, S = {nbytes:,} B, alpha = {alpha * 1e6:.1f} us: chunks of about "
            f"{best:,.0f} B",
            f"{got:,.0f} B, which costs {extra(got) * 1e3:.3g} ms beyond S/B instead of "
            f"{extra(best) * 1e3:.3g} ms",
            _why_wrong_chunk(got, rates, nbytes, alpha),
        )
    return ratio


def _why_wrong_chunk(got: float, rates: list[float], nbytes: int, alpha: float) -> str:
    def near(other: float) -> bool:
        return abs(got / other - 1) < 0.02

    others = sum(1 / rate for rate in rates) - 1 / min(rates)
    if near(nbytes * alpha / others):
        return "the root is missing: set the derivative G - S alpha / c^2 to 0 and solve for c"
    if near((nbytes * alpha / sum(1 / rate for rate in rates)) ** 0.5):
        return "the slowest hop is in G too: its S/B is paid whatever the chunk, so leave it out"
    if near((nbytes * alpha * min(rates)) ** 0.5) or near(
        (nbytes * alpha * min(rates) / (len(rates) - 1)) ** 0.5
    ):
        return "all hops were taken to be as slow as the slowest: G is the sum of the others' 1/B"
    if near((nbytes * alpha * max(rates)) ** 0.5):
        return "only one of the hops is in G: sum 1/B over all but the slowest"
    return "minimise c G + S alpha / c, with G the sum of 1/B over all hops but the slowest"
