"""A lesson is a folder and its notebooks: a toy one is found by every command."""

import dataclasses
import re
import shutil
from pathlib import Path
from textwrap import dedent

import nbformat
from pytest import fixture, mark

from course import catalogue, runs
from course.notebooks import files
from tests.course.samples import cell, solutions
from tests.ranks.nodes import python

ROOT = catalogue.ROOT
SPEAK_OF_LESSONS = [
    *(f"tests/test_{name}.py" for name in ("links", "notebooks", "packaging")),
    "tests/course/test_catalogue.py",
    *(f"tests/course/commands/test_{name}.py" for name in ("progress", "run", "start")),
    *("tests/course/notebooks/test_tree.py", "tests/course/lessons/test_all_lessons.py"),
]
"""Others look for what the toy has not: a board, published figures."""
CELLS = {
    "imports": """
        from course.lessons.toy import experiment
        from course.predictions.ledger import finished, gate, predict, reconcile
    """,
    "ask": """
        predict("09.time", "How long does a sum of 16 bytes take?", "µs")
        predict("09.ranks", "How many ranks does it take?", "ranks")
    """,
    "run": """
        gate("09.time")
        record, = experiment.run(quick=True, progress=print)
    """,
    "end": """
        gate("09.ranks")
        reconcile("09.time", record.summary.median * 1e6, records=[record])
        reconcile("09.ranks", record.world_size, records=[record])
        finished("09")
    """,
}
ALL = """
import sys
from course.__main__ import main
sys.exit(any([main(words.split()) for words in sys.argv[1:]]))
"""
CHECK = """
from course.checks import checking

def check_double(function):
    with checking.exercise("9.1", function, par="one multiplication"):
        six = checking.ask(function, 3)
        checking.hold(six == 6, "twice 3", six, "the sum was forgotten")

check_double(double)
"""


@fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course with a toy lesson: a folder, its notebooks, a row in the table."""
    copy = tmp_path_factory.mktemp("copy") / "course"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", ".*", "work", "build"))
    for name in (".ci", ".github", ".devcontainer"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / ".zenodo.json", copy)
    shutil.copytree(Path(__file__).with_name("toy"), copy / "course" / "lessons" / "toy")
    cells = [cell(name, dedent(source).strip()) for name, source in CELLS.items()]
    cells.insert(0, cell("title", "# 09 · A toy", kind="markdown"))
    lesson = nbformat.v4.new_notebook(cells=cells)
    files.write(files.canonical(lesson), copy / "notebooks" / "09_toy.ipynb")
    exercise = solutions(check=CHECK)
    for item in exercise.cells[1:]:
        item.id = item.id.replace("ex-1-", "ex-9-")
        item.source = item.source.replace("1.1:", "9.1:")
    files.write(exercise, copy / "solutions" / "09_solutions.ipynb")
    page, tasks = "notebooks/09_toy.ipynb", "exercises/09_exercises.ipynb"
    rows = {
        "README.md": f"| 09 | [A toy]({page}) | | [1]({tasks}) | any machine |\n",
        "INSTRUCTORS.md": "| 09 | 5 | `run`: the only run | the bytes | how many are there? |\n",
    }
    for name, row in rows.items():
        text = (copy / name).read_text()
        end = text.index("\n", text.index("\n| 08 |") + 1) + 1
        (copy / name).write_text(text[:end] + row + text[end:])
    return copy


def run(course, *arguments):
    variables = {"PYTHONPATH": str(course), "LABKIT_LEDGER": str(course / "l.json")}
    done = python(*arguments, cwd=course, timeout=600, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@mark.exhaustive
@mark.timeout(600)
def test_a_folder_and_its_notebooks_are_a_lesson(course):
    steps = CONTRIBUTING.partition("\n1. `course/lessons/toy/")[2].partition("\n### ")[0]
    commands = re.findall(r"`python -m course ([^`]+)`", steps)
    assert commands == ["run toy", "sync", "sync --outputs", "check"]
    printed = run(course, "-c", ALL, *commands, "progress")
    assert "case  ranks" in printed and "running 09_solutions.ipynb" in printed
    assert list(course.glob("work/runs/*/toy.png")), "its picture is drawn"
    assert ", 0 problems" in printed
    assert "\n09  A toy" in printed and "0 of 1" in printed
    names = ("notebooks/09_toy", "exercises/09_exercises", "solutions/09_solutions")
    notebooks = [f"{name}.ipynb" for name in names]
    options = ["-n0", "-p", "no:cacheprovider", "-m", "not (slow or exhaustive)"]
    tested = run(course, "-m", "pytest", *options, *notebooks, *SPEAK_OF_LESSONS)
    for name in notebooks:
        assert f"{name} ." in tested, "its cells were run"


LESSONS = {lesson.number: lesson for lesson in catalogue.find().values()}
INSTRUCTORS = (ROOT / "INSTRUCTORS.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_contributors_are_told_all_that_a_lesson_says_of_itself():
    first_step = re.search(r"^1\. `course/lessons/toy/.*", CONTRIBUTING, re.MULTILINE)[0]
    given = [field.name for field in dataclasses.fields(catalogue.Lesson)]
    given.remove("package")  # which `find` fills in
    assert re.findall(r"its (\w+)", first_step) == given


@mark.parametrize("number", LESSONS)
def test_instructors_have_a_row_of_it_with_its_minutes_and_the_cell_never_to_skip(number):
    row = re.search(rf"^\| {number} \| (.*?) \| `(\S+)`: ", INSTRUCTORS, re.MULTILINE)
    cells = files.read(LESSONS[number].notebook(ROOT / "notebooks")).cells
    assert row[2] in [cell.id for cell in cells]
    assert row[1] in (str(LESSONS[number].minutes), "10 a case")


def test_a_record_says_in_whose_world_it_was_made(monkeypatch):
    lesson = catalogue.experiment("p2p-topology")
    own = lesson.recorded()[0]
    monkeypatch.setattr(f"{lesson.package}.guilty.measure", lambda letter: [own])
    worlds = lesson.guilty(progress=runs.quiet)
    assert [record.params["world"] for record in worlds] == ["a", "b", "c", "d"]
    assert runs.in_world([own, *worlds], "c") == [worlds[2]]
    assert runs.in_world([own, *worlds], "") == [own]
