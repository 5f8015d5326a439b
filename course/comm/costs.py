"""What communication should cost: a message, and each algorithm made of messages.

A message of S bytes takes ``alpha + beta S`` seconds. An algorithm is rounds, bytes on the busiest
link and bytes to add up; on n ranks, each with one link that carries beta seconds per byte each way
at once:

    T = rounds * alpha  +  wire * S * beta  +  reduced * S * gamma

alpha is the time of a message without content, gamma the time to add one byte to another. The
functions are named like the algorithms in `course.comm.algorithms` that they describe.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations
in MPICH", IJHPCA 19 (2005) [TRG]; E. Chan et al., "Collective communication: theory, practice, and
experience", Concurrency and Computation 19 (2007) [Chan]; P. Patarasuk, X. Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", JPDC 69 (2009) [PY].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """The time of one message: ``alpha + beta * nbytes``.

    Source: R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
    Parallel Computing 20 (1994).

    Example:
        >>> link = AlphaBeta(alpha=10e-6, beta=1e-9)
        >>> round(link.time(1_000_000) * 1e6)
        1010

        A message of 1 MB over a link of 10 us and 1 GB/s takes 1010 us: the latency hardly matters.
    """

    alpha: float
    """Seconds per message, however small."""
    beta: float
    """Seconds per byte; its inverse is the bandwidth in bytes per second."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second for messages so large that the latency vanishes."""
        return 1 / self.beta

    @property
    def half_nbytes(self) -> float:
        """The message size at which latency and bandwidth cost the same: ``alpha / beta``.

        Below it a message is latency-bound, above it bandwidth-bound; there it reaches half of the
        bandwidth (Hockney's n-half).
        """
        return self.alpha / self.beta

    def time(self, nbytes: float) -> float:
        """Return the seconds that a message of ``nbytes`` takes."""
        return self.alpha + self.beta * nbytes

    @classmethod
    def fit(cls, nbytes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
        """Fit both parameters to measured times, by least squares of the *relative* error.

        Sizes span many powers of two. A plain least-squares line would be decided by the largest
        alone, and its alpha would be noise; dividing each equation by its time gives every size a
        vote.

        Raises:
            ValueError: If there are fewer than two different sizes, or a time is not positive.
        """
        sizes, times = np.asarray(nbytes, float), np.asarray(seconds, float)
        if len(np.unique(sizes)) < 2 or sizes.shape != times.shape:
            raise ValueError(
                f"a fit needs a time for each of at least two sizes, got {len(sizes)} sizes "
                f"and {len(times)} times."
            )
        if not (times > 0).all():
            raise ValueError("a fit needs positive times.")
        relative = np.column_stack([1 / times, sizes / times])
        (alpha, beta), *_ = np.linalg.lstsq(relative, np.ones_like(times), rcond=None)
        if alpha <= 0:  # the line would start below zero: let the smallest message say what it is
            alpha = float(times[sizes == sizes.min()].min())
            beta = float(
                np.median((times - alpha)[sizes > sizes.min()] / sizes[sizes > sizes.min()])
            )
        return cls(float(alpha), float(max(beta, 1e-15)))


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of one call, for a given number of ranks.

    Costs of steps that follow each other add up: `reduce + broadcast`.
    """

    rounds: float
    """Messages that must follow each other: how often alpha is paid."""
    wire: float
    """Bytes that pass the busiest link one after another, in units of S."""
    reduced: float = 0.0
    """Bytes that the busiest rank adds up one after another, in units of S."""

    def seconds(self, nbytes: float, *, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """Return the time for S = `nbytes`; alpha, beta and gamma as at the top of this module."""
        return self.rounds * alpha + nbytes * (self.wire * beta + self.reduced * gamma)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.rounds + other.rounds, self.wire + other.wire, self.reduced + other.reduced
        )


def recursive_doubling_all_reduce(n: int) -> Cost:
    """Whole tensors, exchanged pairwise in log2(n) rounds [TRG, section 4.5]."""
    depth = math.floor(math.log2(n))
    return Cost(rounds=depth, wire=depth, reduced=depth) + _fold(n)


def _fold(n: int) -> Cost:
    """What a world size that is no power of two costs more: S to a partner, and S back."""
    return Cost(rounds=2, wire=2, reduced=1) if n & (n - 1) else Cost(rounds=0, wire=0)
