"""Find the lessons: every folder of `course.lessons` whose `__init__.py` says what it is.

Nothing lists them. `run`, `report`, `progress` and the tests look here, so that a new lesson is a
folder, its notebooks and a row in the README's table.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from course import lessons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from labkit.measure.records import Record

ROOT = Path(__file__).resolve().parents[1]
"""The course: the folder with `notebooks/`, `solutions/` and `exercises/`."""
ORDER = ("00", "02", "03", "06", "04", "07", "01", "05", "05b", "08")
"""Numbers of the lessons as we recommend to take them: one's own DDP job first."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a lesson's `__init__.py` says of it, as ``LESSON``."""

    number: str
    """As its notebooks' names begin: ``"01"``."""
    title: str
    experiments: tuple[str, ...] = ()
    """What `labkit run` calls them. The first is the module ``experiment`` of the folder; each
    further one has a module of its own name, with ``_`` for ``-``."""

    def notebook(self, folder: Path) -> Path | None:
        """Return the lesson's notebook in `notebooks/`, `exercises/` or `solutions/`, if any."""
        return next(folder.glob(f"{self.number}_*.ipynb"), None)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of one lesson, not yet imported."""

    name: str
    package: str
    """The lesson's package: ``"course.lessons.gloo_scaling"``."""
    module_name: str

    @property
    def module(self) -> ModuleType:
        """The module with ``TITLE`` and ``run(*, quick, progress)``."""
        return importlib.import_module(f"{self.package}.{self.module_name}")

    @property
    def recording(self) -> Path:
        """Where the lesson keeps its recorded runs, whether there is one or not."""
        folder = Path(importlib.import_module(self.package).__file__).parent
        return folder / "recording.json"

    def recorded(self) -> list[Record]:
        """Load the recorded run; empty where none is kept."""
        from labkit.measure import records

        path = self.recording
        return records.load(path, recorded=True, experiment=self.name) if path.exists() else []

    def draw(self, records: Sequence[Record]) -> Figure:
        """Draw records of this experiment, with the ``draw`` of the lesson's ``pictures``."""
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
        "`pip install -r requirements.txt`; an installed package has labkit and some commands."
    )


def find() -> dict[str, Lesson]:
    """Find all lessons, in the order of their numbers: package name -> lesson."""
    folders = (
        f"{lessons.__name__}.{module.name}"
        for module in pkgutil.iter_modules(lessons.__path__)
        if module.ispkg
    )
    by_folder = {folder: importlib.import_module(folder).LESSON for folder in folders}
    return dict(sorted(by_folder.items(), key=lambda item: item[1].number))


def recommended() -> list[Lesson]:
    """List the lessons in the order in which we recommend them; others come last."""
    places = {number: place for place, number in enumerate(ORDER)}
    return sorted(find().values(), key=lambda one: (places.get(one.number, 99), one.number))


def experiments() -> dict[str, Experiment]:
    """Find the experiments of all lessons, by name, in the order of the lessons."""
    return {
        name: Experiment(name, package, name.replace("-", "_") if i else "experiment")
        for package, lesson in find().items()
        for i, name in enumerate(lesson.experiments)
    }


def experiment(name: str) -> Experiment:
    """Return the experiment of that name.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    known = experiments()
    if name not in known:
        raise ValueError(f"there is no experiment {name!r}; there are: {', '.join(known)}.")
    return known[name]
