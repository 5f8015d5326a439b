"""Find the lessons: every folder of `course.lessons` whose `__init__.py` says what it is.

Nothing lists them. Commands, pages and tests look here, so that a new lesson is a folder, its
notebooks and a row in the README's table.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from course import lessons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.runs import Say
    from labkit.measure.records import Record

ROOT = Path(__file__).resolve().parents[1]
"""The course: the folder with `notebooks/`, `solutions/` and `exercises/`."""
EVERYTHING = "pip install -r requirements.txt"  # what a clone needs
LESSONS_ALONE = "pip install 'labkit-distributed[lessons]'"  # what commands need without one


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a lesson's `__init__.py` says of it, as ``LESSON``."""

    number: str
    """As its notebooks' names begin: ``"01"``. Lessons stand in the order of their numbers."""
    title: str
    minutes: int
    """What its core takes with thinking, as players estimated."""
    experiment: str = ""
    """What `course run` calls the folder's module ``experiment``; empty where there is none."""
    package: str = ""  # "course.lessons.gloo_scaling"; `find` fills it in

    def notebook(self, folder: Path) -> Path | None:
        """Return the lesson's notebook in `notebooks/`, `exercises/` or `solutions/`, if any."""
        return next(folder.glob(f"{self.number}_*.ipynb"), None)

    @property
    def module(self) -> ModuleType:
        """The module ``experiment``, with ``run(*, quick, progress)``."""
        return importlib.import_module(f"{self.package}.experiment")

    @property
    def recording(self) -> Path:
        """The file of the recorded runs, whether there is one or not."""
        return ROOT.joinpath(*self.package.split("."), "recording.json")

    def recorded(self) -> list[Record]:
        """Load the recorded run of the experiment; empty where none is kept."""
        from labkit.measure import records

        if not self.recording.exists():
            return []
        return records.load(self.recording, recorded=True, experiment=self.experiment)

    def guilty(self, *, progress: Say, only: str = "") -> list[Record]:
        """Make the experiment in the worlds of the module ``guilty``, or in `only` one.

        It has ``WORLDS``, by the letter of who is guilty there, and ``measure(letter)``. A record's
        ``params["world"]`` has the letter; `course.runs.in_world` looks there.
        """
        if importlib.util.find_spec(f"{self.package}.guilty") is None:
            return []
        records, worlds = [], importlib.import_module(f"{self.package}.guilty")
        for letter in [only] if only else worlds.WORLDS:
            progress(f"a world in which {letter} is guilty")
            for record in worlds.measure(letter):
                records.append(replace(record, params=record.params | {"world": letter}))
        return records

    def draw(self, records: Sequence[Record]) -> Figure:
        """Draw records of the experiment, with the ``draw`` of the module ``pictures``."""
        return importlib.import_module(f"{self.package}.pictures").draw(records)


def environment(**variables: str) -> dict[str, str]:
    """Return the environment in which another Python finds this labkit, with more variables."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}


def without_clone() -> str:
    """Say what a course without its notebooks needs; empty where they are."""
    if (ROOT / "notebooks").is_dir():
        return ""
    return (
        f"there are no notebooks in {ROOT}: the course needs a clone of its repository, and there "
        f"`{EVERYTHING}`; an installed package has labkit and some commands."
    )


def find() -> dict[str, Lesson]:
    """Find all lessons, in the order of their numbers: package name -> lesson."""
    folders = pkgutil.iter_modules(lessons.__path__, prefix=f"{lessons.__name__}.")
    packages = [module.name for module in folders if module.ispkg]
    there = [replace(importlib.import_module(name).LESSON, package=name) for name in packages]
    return {lesson.package: lesson for lesson in sorted(there, key=lambda lesson: lesson.number)}


def experiments() -> dict[str, Lesson]:
    """Find the lessons that have an experiment, by its name, in the order of their numbers."""
    return {lesson.experiment: lesson for lesson in find().values() if lesson.experiment}


def experiment(name: str) -> Lesson:
    """Return the lesson that has that experiment; `ValueError` lists those there are."""
    known = experiments()
    if name not in known:
        raise ValueError(f"there is no experiment {name!r}; there are: {', '.join(known)}.")
    return known[name]
