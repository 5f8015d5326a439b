"""Run what an experiment measures: here or as recorded, and again where something disturbed it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.launch import torchrun
from labkit.measure import records
from labkit.measure.records import Record

T = TypeVar("T")


def by_case(found: Iterable[Record]) -> dict[str, Record]:
    """Return records by the name of their case."""
    return {record.case: record for record in found}


def measured_or_recorded(
    measure: Callable[[Fabric | None], list[Record]],
    fabric: Fabric | None,
    *,
    recording: Path,
    experiment: str,
    keep: Callable[[Record], bool] = lambda record: True,
    say: Callable[[str], object] = print,
) -> list[Record]:
    """Measure on a fabric; where none can be made, say so and return the recorded run instead.

    Never a mixture of both. Under torchrun the ranks have a network of their own, so `measure` gets
    None, as it does for `fabric=None` (loopback); it may raise `FabricUnavailable` then.

    Args:
        measure: Gets the fabric, started, and returns what it measured on it.
        fabric: The hosts and links to make, not yet started.
        recording: The record file of the lesson.
        experiment: Whose records in that file.
        keep: Which of them `measure` would have measured.
        say: Told why nothing runs here.

    Raises:
        LookupError: There is no fabric here, and nothing of the kind was recorded.
    """
    try:
        if fabric is None or torchrun.is_here():
            return measure(None)
        with fabric:
            return measure(fabric)
    except FabricUnavailable as reason:
        say(f"{reason}\nShown instead: what another machine measured (RECORDED).")
    found = records.load(recording, recorded=True, experiment=experiment)
    kept = [record for record in found if keep(record)]
    if not kept:
        raise LookupError(
            f"nothing can run here, and {recording} holds none of the {len(found)} "
            f"records of {experiment!r} that were asked for."
        )
    return kept


def repeat_if_disturbed(
    measure: Callable[[], T],
    *,
    unrest: Callable[[T], float],
    limit: float,
    attempts: int = 3,
    say: Callable[[str], object] = print,
) -> T:
    """Measure; while `unrest` is above `limit`, say so and measure again. The calmest run counts.

    Args:
        measure: One run.
        unrest: How disturbed a run was, in a measure of its own: 1.3 for calls of one case that
            differ 1.3-fold, say. It must not depend on what one hopes to see.
        limit: Above it a run is disturbed.
        attempts: Runs at most.
        say: Told of each repetition.
    """
    runs = [measure()]
    while unrest(runs[-1]) > limit and len(runs) < attempts:
        say(f"disturbed ({unrest(runs[-1]):.2f}, calm is {limit:g}): measuring again")
        runs.append(measure())
    return min(runs, key=unrest)
