"""What a blocking call should cost at least when ranks share CPUs; the tables of exercise 1.2."""

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


OURS = {1: 420e-6, 2: 410e-6, 4: 800e-6, 6: 1200e-6, 8: 1600e-6}  # seconds on one CPU, by pairs
TABLES = {
    "a job with two CPUs": ({1: 400e-6, 2: 250e-6, 4: 400e-6, 8: 800e-6}, 2.0),
    "half a CPU": ({1: 830e-6, 2: 820e-6, 4: 1600e-6, 8: 3200e-6}, 0.5),
    "one row is spoilt": ({2: 140e-6, 4: 200e-6, 6: 300e-6, 8: 1600e-6}, 4.0),
    "nobody queues": ({1: 420e-6, 2: 420e-6, 4: 421e-6, 8: 422e-6}, None),
    "an even number of rows, in no order, and one that only they have": (
        {8: 1000e-6, 1: 420e-6, 16: 1800e-6, 2: 410e-6, 4: 400e-6}, 1.8),
    "nobody queues, but one row is spoilt": ({2: 420e-6, 4: 700e-6, 8: 422e-6}, None),
    "exactly one and a half times": ({1: 2**-11, 4: 2**-11, 6: 1.5 * 2**-11}, 2**11 * 800e-6),
}  # fmt: skip
"""A job's seconds per call by pairs, and what exercise 1.2 asks of it."""
