"""`python -m course pictures`: draw the recorded runs, for docs/pictures.md."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from course import catalogue
from course.catalogue import ROOT

FOLDER = ROOT / "docs" / "pictures"


def draw(folder: Path = FOLDER) -> Iterator[Path]:
    """Draw every recorded experiment into `folder`; yield each file written."""
    from labkit.show import alt_text

    for name, lesson in catalogue.experiments().items():
        if recorded := lesson.recorded():
            yield alt_text.save(lesson.draw(recorded), folder / f"{name}.png", dpi=110)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: none."""


def main(options: argparse.Namespace) -> int:
    """Draw them all, say where; return 0."""
    for path in draw():
        print(f"written: {path.relative_to(ROOT)}")
    return 0
