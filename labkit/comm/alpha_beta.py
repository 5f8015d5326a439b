"""The time of calls whose ranks share CPU cores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
