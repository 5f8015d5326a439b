"""The README's pictures, drawn from runs that are committed with their provenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labkit.course import lessons
from labkit.course.lessons import ROOT
from labkit.show import alt_text

FOLDER = "pictures"


def recorded() -> list[str]:
    """List the experiments of which a run is kept, in the order of the lessons."""
    return [name for name, found in lessons.experiments().items() if found.recorded()]


def draw_all(folder: Path = ROOT / FOLDER) -> Iterator[Path]:
    """Draw every recorded experiment into `folder`; yield the files as they are written."""
    for name in recorded():
        found = lessons.experiment(name)
        yield alt_text.save(found.draw(found.recorded()), folder / f"{name}.png", dpi=110)
