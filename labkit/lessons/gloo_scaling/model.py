"""What a small blocking call should cost when ranks share CPUs: the law of lesson 01."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labkit.measure.records import Record


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


def ranks_per_core(placement: str, pairs: int, cores: float) -> float:
    """Return how many ranks the busiest core serves."""
    return {
        "free": max(1.0, 2 * pairs / cores),
        "one core": 2 * pairs,
        "together": 2 * math.ceil(pairs / cores),
        "apart": math.ceil(2 * pairs / cores),
    }[placement]


def with_predictions(sweep: Sequence[Record]) -> list[Record]:
    """Set `Record.predicted` of every point to what the CPU time measured at p = 1 predicts.

    Ranks per core x CPU time per call, and never less than the call takes at p = 1. The points at
    p = 1 themselves get none: there is nothing to predict.
    """
    alone = {r.params["placement"]: r for r in sweep if r.params["pairs"] == 1}

    def law(record: Record) -> float | None:
        one, pairs = alone.get(record.params["placement"]), record.params["pairs"]
        if one is None or pairs == 1:
            return None
        ranks = ranks_per_core(record.case, pairs, one.provenance.machine.cores)
        return max(one.summary.median, ranks * one.values["on_cpu"])

    return [dataclasses.replace(record, predicted=law(record)) for record in sweep]


def others(record: Record) -> float:
    """Return how many CPUs other programs used meanwhile; 0 where the system does not tell."""
    return record.others or 0.0


def identity(record: Record) -> float:
    """Return CPU time used over CPU time there was; 1 when the ranks keep the CPUs busy.

    With saturated CPUs a call takes ``ranks x CPU per call / cores``: an identity, not a model. A
    core gives a second of CPU time per second, no more. What other processes used is not ours.
    """
    pairs, placement = record.params["pairs"], record.params["placement"]
    cores = record.provenance.machine.cores
    ours = {"one core": 1, "together": min(pairs, cores)}.get(placement, min(2 * pairs, cores))
    there_was = ours if ours < cores else cores - others(record)
    return record.values["ours"] / there_was
