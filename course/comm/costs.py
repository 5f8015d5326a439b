"""What a message should cost: S bytes take ``alpha + beta S`` seconds."""

from __future__ import annotations

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

    alpha: float  # seconds per message, however small
    beta: float  # seconds per byte; its inverse is the bandwidth in bytes per second

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
            lengths = f"{len(sizes)} sizes and {len(times)} times"
            raise ValueError(f"a fit needs a time for each of at least two sizes, got {lengths}.")
        if not (times > 0).all():
            raise ValueError("a fit needs positive times.")
        slope, start = np.polyfit(sizes, times, deg=1, w=1 / times)
        if start > 0:
            return cls(float(start), float(max(slope, 1e-15)))
        small = sizes == sizes.min()  # the smallest message says what the latency is
        alpha = times[small].min()
        beta = np.median((times - alpha)[~small] / sizes[~small])
        return cls(float(alpha), float(max(beta, 1e-15)))
