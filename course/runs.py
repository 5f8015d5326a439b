"""Run what an experiment measures, and note what other programs did meanwhile."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from course import other_programs
from labkit.measure.records import Record, Tier
from labkit.ranks import torchrun
from labkit.ranks.launcher import launch

Say = Callable[[str], object]
"""What is told, line by line, how a measurement goes on."""


def quiet(text: str) -> None:
    """Say nothing."""


def by_case(records: Iterable[Record]) -> dict[str, Record]:
    """Return records by the name of their case."""
    return {record.case: record for record in records}


def watched(measure: Callable[[], list[Record]]) -> list[Record]:
    """Measure, and note in each record how many CPUs other programs used meanwhile.

    Watch one launch or a few, not an hour: the figure is an average. What was watched inside
    `measure` already, and what was not measured here and now, stays as it is.
    """
    with other_programs.watch() as others:
        records = measure()
    cpus = _most(others.cpus)
    return [replace(record, others=cpus) if _unwatched(record) else record for record in records]


def _unwatched(record: Record) -> bool:
    return record.others is None and record.tier in (Tier.MEASURED, Tier.EMULATED)


def _most(cpus: float | None) -> float | None:
    """Return the most that any node saw under torchrun."""
    if not torchrun.is_here():
        return cpus
    seen = [answer for answer in launch(lambda: cpus) if answer is not None]
    return max(seen, default=None)
