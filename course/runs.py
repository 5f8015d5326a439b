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
    cpus = others.cpus
    on_nodes = launch(lambda: cpus) if torchrun.is_here() else [cpus]
    most = max((seen for seen in on_nodes if seen is not None), default=None)
    return [
        replace(record, others=most)
        if record.others is None and record.tier in (Tier.MEASURED, Tier.EMULATED)
        else record
        for record in records
    ]
