"""How late is the latest of n ranks?"""

from collections.abc import Sequence


def expected_latest(delays: Sequence[float], n: int) -> float:
    """Return how late the latest of n ranks is on average, each by one of the delays at random.

    The k-th smallest of m delays is the latest if all n ranks draw it or a smaller one, and not all
    a smaller one: with probability (k/m)^n - ((k-1)/m)^n.
    """
    m = len(delays)
    chances = [(k / m) ** n - ((k - 1) / m) ** n for k in range(1, m + 1)]
    return sum(chance * delay for chance, delay in zip(chances, sorted(delays), strict=True))
