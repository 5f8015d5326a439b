"""What a small blocking call should cost when ranks share CPUs: the law of lesson 01."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labkit.measure.records import Record


@dataclass(frozen=True, slots=True)
class Saturation:
    """The time of a blocking call that every rank repeats, when ranks share CPU cores.

    A call costs each rank ``cpu_per_call`` seconds on a CPU. A core that serves ``ranks / cores``
    ranks needs that many times as long for one call of each, unless what happens off the CPU takes
    longer anyway:

        T = max(latency + think, ranks / cores * cpu_per_call)

    These are the asymptotic bounds of a closed queueing system with one bottleneck. Source: E. D.
    Lazowska et al., "Quantitative System Performance" (1984), chapter 5.

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
    think: float = 0.0
    """Seconds that a rank does something else before each call, without a CPU."""

    def time(self, ranks: int) -> float:
        """Return the seconds from call to call when ``ranks`` ranks call all the time."""
        return max(self.latency + self.think, ranks / self.cores * self.cpu_per_call)

    @property
    def knee(self) -> float:
        """The number of ranks from which time grows with every rank."""
        return (self.latency + self.think) * self.cores / self.cpu_per_call

    def curve(self, ranks: Iterable[int]) -> list[float]:
        """Return `time` for each number of ranks."""
        return [self.time(count) for count in ranks]


def ranks_per_core(placement: str, pairs: int, cores: float) -> float:
    """Return how many ranks a core serves: the busiest, or where the scheduler decides, each."""
    return {
        "free": max(1.0, 2 * pairs / cores),
        "one core": 2 * pairs,
        "together": 2 * math.ceil(pairs / cores),
        "apart": math.ceil(2 * pairs / cores),
    }[placement]


def with_predictions(sweep: Sequence[Record]) -> list[Record]:
    """Set `Record.predicted` of every point to what one pair alone, in the same place, predicts.

    That pair itself gets no prediction: there is nothing to predict.
    """
    alone = {record.params["placement"]: record for record in sweep if record.params["pairs"] == 1}

    def law(record: Record) -> float | None:
        one = alone.get(record.params["placement"])
        if one is None or one is record:
            return None
        cores = one.provenance.machine.cores
        served = ranks_per_core(record.params["placement"], record.params["pairs"], cores)
        return Saturation(one.summary.median, one.values["on_cpu"], 1).time(served)

    return [dataclasses.replace(record, predicted=law(record)) for record in sweep]


def calm(records: Sequence[Record], limit: float = 0.25) -> bool:
    """Say whether other programs used few CPUs while these were measured, as far as is known."""
    return all((record.others or 0.0) <= limit for record in records)


def balance(record: Record) -> float:
    """Return the CPU time that the ranks used over that of the CPUs within their reach.

    Near 1 they kept those CPUs busy: bookkeeping, not a model. What other programs took is missing.
    """
    pairs, cores = record.params["pairs"], record.provenance.machine.cores
    reach = {"one core": 1, "together": pairs}.get(record.params["placement"], 2 * pairs)
    return record.values["ours"] / min(reach, cores)
