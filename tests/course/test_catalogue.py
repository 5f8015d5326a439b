"""A lesson is a folder and its notebooks: a toy one is found by every command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from pytest import fixture, mark, raises

from course import catalogue, notebooks
from tests.course.samples import cell, solutions

ROOT = catalogue.ROOT
TOY = {
    "__init__.py": '''
        """Lesson 09: a toy."""

        from course.catalogue import Lesson

        LESSON = Lesson(
            number="09",
            title="A toy",
            experiment="toy",
        )
    ''',
    "programs.py": '''
        """What the ranks run."""

        import torch
        import torch.distributed as dist

        from labkit.measure import timing


        def program():
            """Time a small sum."""
            data = torch.ones(4)
            return timing.time_calls(lambda: dist.all_reduce(data), warmup=1, iters=3)
    ''',
    "experiment.py": '''
        """Time one small sum."""

        from labkit.ranks.launcher import launch
        from course.lessons.toy.programs import program
        from course import runs
        from labkit.measure.records import Provenance, Record, Tier

        TITLE = "A toy measures itself"


        def run(*, quick, progress):
            """Measure."""
            progress("two ranks")

            def measure():
                samples = launch(program, world_size=2)
                return [Record("toy", "sum", {}, samples, Tier.MEASURED, Provenance.here())]

            return runs.watched(measure)
    ''',
    "pictures.py": '''
        """One picture."""

        from labkit.show import plots


        def draw(records):
            """Draw the ladder."""
            return plots.ladder(records, title="A toy, drawn").figure
    ''',
}


@fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course with a toy lesson: a folder, a notebook, a solution; nothing else."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("labkit", "course", "notebooks", "solutions", "exercises"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in TOY.items():
        path = copy / "course" / "lessons" / "toy" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in text.split("\n")[1:]))
    title = cell("title", "# 09 · A toy", kind="markdown")
    lesson = nbformat.v4.new_notebook(cells=[title, cell("sum", "print(1 + 1)")])
    notebooks.write(notebooks.canonical(lesson), copy / "notebooks" / "09_toy.ipynb")
    exercise = solutions()
    for item in exercise.cells[1:]:
        item.id, item.source = (
            item.id.replace("ex-1-", "ex-9-"),
            item.source.replace("1.1:", "9.1:"),
        )
    notebooks.write(exercise, copy / "solutions" / "09_toy.ipynb")
    return copy


def run_course(course: Path, *command: str) -> str:
    variables = os.environ | {"PYTHONPATH": str(course), "LABKIT_LEDGER": str(course / "l.json")}
    done = subprocess.run(
        [sys.executable, "-m", "course", *command], cwd=course, env=variables,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@mark.timeout(300)
def test_a_folder_and_its_notebooks_are_a_lesson(course):
    assert "predicted ms" in run_course(course, "run", "toy", "--quick")
    assert list(course.glob("work/runs/*/toy.png")), "its picture is drawn"
    run_course(course, "sync")
    assert ", 0 problems" in run_course(course, "check")
    assert "A toy" in run_course(course, "progress") and "0 of 1" in run_course(course, "progress")


def test_the_lessons_stand_in_the_order_of_their_numbers():
    numbers = [lesson.number for lesson in catalogue.find().values()]
    assert numbers == sorted(numbers) and len(numbers) == len(set(numbers))


def test_an_experiment_that_is_not_there_lists_those_that_are():
    with raises(ValueError, match="gloo-scaling"):
        catalogue.experiment("gloo-scalling")
