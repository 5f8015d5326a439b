"""What a blocking call should cost at least when ranks share CPUs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saturation:
    """The bounds on the time of a call that every rank repeats, when ranks share CPUs.

    A call costs each rank ``cpu_per_call`` seconds on a CPU. A CPU that serves n ranks needs at
    least n times as long for one call of each. And if the work of a call does not depend on n, no
    call is faster than it is alone:

        T >= max(alone, n * cpu_per_call)

    These are the asymptotic bounds of a closed queueing system with one bottleneck: the truth lies
    above them, most of all near the knee. Source: E. D. Lazowska et al., "Quantitative System
    Performance" (1984), chapter 5.

    Example:
        >>> law = Saturation(alone=200e-6, cpu_per_call=100e-6)
        >>> [round(law.time(ranks) * 1e6) for ranks in (1, 2, 4, 8)]
        [200, 200, 400, 800]
    """

    alone: float  # seconds of a call that never waits for a CPU
    cpu_per_call: float  # seconds on a CPU per call and rank, all threads together

    def time(self, ranks: float) -> float:
        """Return the seconds from call to call when so many ranks per CPU call all the time."""
        return max(self.alone, ranks * self.cpu_per_call)

    @property
    def knee(self) -> float:
        """The number of ranks per CPU from which the CPUs are full."""
        return self.alone / self.cpu_per_call
