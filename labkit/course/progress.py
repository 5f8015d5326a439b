"""How far a learner has come: lessons run, exercises passed, and how well the predictions did."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.course import canonical, exercises, ledger_file
from labkit.course.ledger_file import Entry
from labkit.course.lessons import ROOT

_NUMBER = re.compile(r"# *(Exercises )?(\d\d[a-z]? · )?")


@dataclass(frozen=True, slots=True)
class Step:
    """One lesson and what was done of it."""

    number: str
    """As in its file name: `01`, `05b`."""
    title: str
    finished: bool
    exercises: tuple[str, ...]
    """Numbers of all its exercises."""
    passed: tuple[str, ...]
    """Those whose check passed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything that the ledger knows about a learner's way through the course."""

    steps: tuple[Step, ...]
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        return "\n".join(told(self))

    @property
    def counted(self) -> list[Entry]:
        """Predictions that were made before they could be looked up, and met a measurement."""
        return [entry for entry in self.entries if entry.counts]

    @property
    def typical_miss(self) -> float | None:
        """The median factor by which predictions were off; None without any."""
        misses = [entry.miss for entry in self.counted]
        return statistics.median(misses) if misses else None


def here(course: Path = ROOT) -> Progress:
    """Read the learner's progress from the ledger and the course's notebooks.

    Args:
        course: The folder with `notebooks/` and `exercises/`.
    """
    book = ledger_file.load()
    lessons = {_number(path): path for path in sorted((course / "notebooks").glob("*.ipynb"))}
    tasks = {_number(path): path for path in sorted((course / "exercises").glob("*.ipynb"))}
    steps = []
    for number in sorted({*lessons, *tasks}):
        numbers = _exercise_numbers(tasks[number]) if number in tasks else ()
        steps.append(
            Step(
                number=number,
                title=_title(lessons.get(number) or tasks[number]),
                finished=number in book["finished"],
                exercises=numbers,
                passed=tuple(n for n in numbers if n in book["passed"]),
            )
        )
    return Progress(tuple(steps), ledger_file.entries(book))


def told(progress: Progress) -> Iterator[str]:
    """Tell it in lines of text."""
    for step in progress.steps:
        done = "run to the end" if step.finished else "not finished"
        marks = "".join("■" if n in step.passed else "□" for n in step.exercises)
        passed = f"{marks} {len(step.passed)} of {len(step.exercises)} exercises passed"
        line = f"{step.number:<4}{step.title:<44.44}  {done:<15}"
        yield f"{line}{passed}".rstrip() if step.exercises else line.rstrip()
    made = [entry for entry in progress.entries if entry.predicted is not None]
    yield ""
    yield f"predictions: {len(made)} made, {len(progress.counted)} of them count"
    for entry in progress.counted:
        side = "above" if entry.predicted > entry.measured else "below"
        yield (
            f"  {entry.key:<24}{entry.predicted:>10.4g} against {entry.measured:.4g} {entry.unit}: "
            f"{entry.miss:.2f} times {side}"
        )
    if progress.typical_miss is not None:
        yield f"half of them are within a factor of {progress.typical_miss:.2f}"


def calibration(progress: Progress) -> list[tuple[str, float, float]]:
    """Return key, prediction and measurement of each prediction that counts."""
    return [(entry.key, entry.predicted, entry.measured) for entry in progress.counted]


def _number(path: Path) -> str:
    return path.stem.partition("_")[0]


def _title(path: Path) -> str:
    """Read a notebook's title from its first heading, without the number."""
    for cell in canonical.read(path).cells:
        for line in cell.source.splitlines():
            if cell.cell_type == "markdown" and line.startswith("# "):
                return _NUMBER.sub("", line)
    return path.stem.partition("_")[2].replace("_", " ")


def _exercise_numbers(path: Path) -> tuple[str, ...]:
    parts = (exercises.part_of(cell) for cell in canonical.read(path).cells)
    return tuple(part.number for part in parts if part and part.role == "statement")
