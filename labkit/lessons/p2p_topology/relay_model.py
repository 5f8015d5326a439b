"""What a relay in chunks costs: filling the pipe against paying for every chunk.

With large chunks the second hop starts late; with small ones each chunk's fixed cost is paid many
times. Between the two lies an optimum.
"""

import math
from collections.abc import Sequence


def relay_time(rates: Sequence[float], *, nbytes: int, chunk: int, alpha: float = 0.0) -> float:
    """Return the seconds that nbytes take over a chain of links, chunk by chunk.

    A chunk takes t_i = alpha + c/B_i on hop i; the first one crosses all hops, and each of the
    others follows one turn of the slowest hop later:

        T = sum_i t_i + (S/c - 1) max_i t_i

    This is the time of a pipeline whose stages are the hops (as for GPipe's micro-batches).

    Args:
        rates: B_i of each hop, in bytes per second.
        nbytes: S.
        chunk: c, in bytes; the last chunk may be smaller.
        alpha: Fixed cost of a chunk on a hop, in seconds.

    Example:
        >>> relay_time([1e6, 1e6], nbytes=1_000_000, chunk=1_000_000)
        2.0
        >>> relay_time([1e6, 1e6], nbytes=1_000_000, chunk=10_000)
        1.01
    """
    if not chunk > 0:
        raise ValueError(f"chunk={chunk} must be at least 1 byte.")
    chunk = min(chunk, nbytes)
    turns = [alpha + chunk / rate for rate in rates]
    return sum(turns) + (nbytes / chunk - 1) * max(turns)


def best_chunk(rates: Sequence[float], *, nbytes: int, alpha: float) -> float:
    """Return the chunk in bytes that makes `relay_time` smallest.

    With G = the sum of 1/B over all hops but the slowest, and S/c chunks, the part of T that
    depends on c is c G + S alpha / c, which is smallest at

        c = sqrt(S alpha / G)

    Raises:
        ValueError: there is a single hop (one chunk is best) or alpha is not above 0 (the smallest
            chunk is best).

    Example:
        >>> round(best_chunk([1e8, 1e8], nbytes=10_000_000, alpha=1e-4))
        316228
    """
    if len(rates) < 2:
        raise ValueError("one hop has nothing to overlap with: send everything in one chunk.")
    if not alpha > 0:
        raise ValueError(f"alpha={alpha}: if chunks cost nothing, the smallest is best.")
    waiting = sum(1 / rate for rate in rates) - 1 / min(rates)
    return min(math.sqrt(nbytes * alpha / waiting), float(nbytes))
