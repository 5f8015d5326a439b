"""Run what an experiment measures, and again where something disturbed it."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import replace

from course import other_programs
from labkit.measure.records import Record, Tier
from labkit.ranks import torchrun
from labkit.ranks.launcher import launch

Say = Callable[[str], object]
"""What is told, line by line, how a measurement goes on."""


def quiet(text: str) -> None:
    """Say nothing."""


def by_case(found: Iterable[Record]) -> dict[str, Record]:
    """Return records by the name of their case."""
    return {record.case: record for record in found}


class Disturbed(RuntimeError):
    """Other programs used the machine during every attempt; the message says how much."""


_asked: ContextVar[tuple[float, int] | None] = ContextVar("calm", default=None)
"""What `calm` was given."""


@contextlib.contextmanager
def calm(limit: float = 0.1, attempts: int = 5) -> Iterator[None]:
    """Have `watched`, within the block, repeat what other programs disturbed.

    They do where they use more than `limit` CPUs. A measurement is tried so often at most.

    Example:
        >>> with calm(limit=0.1, attempts=3):
        ...     records = watched(lambda: [])
    """
    token = _asked.set((limit, attempts))
    try:
        yield
    finally:
        _asked.reset(token)


def watched(measure: Callable[[], list[Record]], *, say: Say = print) -> list[Record]:
    """Measure, and note in each record how many CPUs other programs used meanwhile.

    Within `calm` a measurement that was disturbed is repeated. Watch one launch or a few, not an
    hour: the figure is an average, and a repetition repeats all of it. What was watched inside
    `measure` already, and what was not measured here and now, stays as it is.

    Raises:
        Disturbed: Within `calm`: no attempt was calm enough.
    """
    asked, attempts = _asked.get(), []
    limit, most = asked or (float("inf"), 1)
    while True:
        with other_programs.watch() as others:
            found = measure()
        cpus = _most(others.cpus)
        if cpus is None or cpus <= limit or not any(map(_unwatched, found)):
            break
        attempts.append(f"{cpus:.2f}")
        if len(attempts) == most:
            raise Disturbed(
                f"calm(limit={limit:g}): in {len(attempts)} attempts other programs used "
                f"{', '.join(attempts)} CPUs. Close them and try again, or raise the limit; "
                "`top` shows who they are."
            )
        say(f"Other programs used {cpus:.2f} CPUs: measuring again.")
    if asked is not None and cpus is None:
        say("This system does not tell what other programs use: nobody knows whether it was calm.")
    return [replace(record, others=cpus) if _unwatched(record) else record for record in found]


def _unwatched(record: Record) -> bool:
    return record.others is None and record.tier in (Tier.MEASURED, Tier.EMULATED)


def _most(cpus: float | None) -> float | None:
    """Return the most that any node saw; under torchrun the ranks must decide alike."""
    if not torchrun.is_here():
        return cpus
    seen = [answer for answer in launch(lambda: cpus) if answer is not None]
    return max(seen, default=None)
