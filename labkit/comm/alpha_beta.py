"""What communication should cost: a latency, a bandwidth, and the CPU that both of them need.

Two small models. `AlphaBeta` is the field's oldest: S bytes take ``alpha + beta * S`` seconds.
`Saturation` adds what it leaves out on a machine whose ranks share cores: every call also costs CPU
time, and a core gives one second of it per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

        Args:
            nbytes: Message sizes.
            seconds: Times, of the same length.

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
class Saturation:
    """The time of a blocking call that every rank repeats, when ranks share CPU cores.

    A call costs each rank ``cpu_per_call`` seconds on a CPU. A core that serves ``ranks / cores``
    ranks needs that many times as long for one call of each, unless the call's latency is longer:

        T = max(latency, ranks / cores * cpu_per_call)

    This is the operational law of a saturated server: utilisation 1 means throughput = 1 / demand.
    Source: E. D. Lazowska et al., "Quantitative System Performance" (1984), chapter 5.

    Example:
        >>> law = Saturation(latency=200e-6, cpu_per_call=100e-6, cores=2)
        >>> [round(law.time(ranks) * 1e6) for ranks in (2, 4, 8, 16)]
        [200, 200, 400, 800]

        Up to four ranks the latency hides the CPU's work; from there on every rank adds to it.
    """

    latency: float
    """Seconds of a call that finds a free CPU for everything it has to do."""
    cpu_per_call: float
    """Seconds on a CPU per call and rank, all threads together."""
    cores: float
    """CPUs that the ranks share."""

    def time(self, ranks: int) -> float:
        """Return the seconds per call when ``ranks`` ranks call all the time."""
        return max(self.latency, ranks / self.cores * self.cpu_per_call)

    @property
    def knee(self) -> float:
        """The number of ranks from which time grows with every rank."""
        return self.latency * self.cores / self.cpu_per_call

    def curve(self, ranks: Iterable[int]) -> list[float]:
        """Return `time` for each number of ranks."""
        return [self.time(count) for count in ranks]
