import argparse
from pathlib import Path

from pytest import fixture, mark

from course.commands import start
from course.notebooks import files
from tests.course.samples import lesson

MINE = "work/notebooks/01_a.ipynb: yours, kept"
BESIDE = f"{MINE}; the course's new version is beside it as 01_a.new.ipynb"


def test_start_gives_jupyterlab_its_own_options():
    parser = argparse.ArgumentParser()
    start.configure(parser)
    given = ["--no-browser", "--port=9999", "--ip=0.0.0.0"]
    command = start.jupyter(parser.parse_args(given))
    assert set(given) <= set(command)
    assert any("work/start.ipynb" in part for part in command)
    assert str(start.ROOT) in start.environment()["PYTHONPATH"]


@fixture
def course(tmp_path):
    write(tmp_path / "course/notebooks/01_a.ipynb", "x = 1")
    write(tmp_path / "course/exercises/01_a.ipynb", "y = 1")
    return tmp_path / "course"


@fixture
def work(tmp_path):
    return tmp_path / "work"


def write(path, *sources):
    files.write(lesson(*sources), path)


def source(path):
    return files.read(path).cells[0].source


def test_copies_are_made_once(course, work):
    made = start.refresh(course, work)
    assert made == ["work/notebooks/01_a.ipynb: copied", "work/exercises/01_a.ipynb: copied"]
    assert start.refresh(course, work) == []


def test_the_start_page_is_a_map_and_what_is_due(course, work):
    start.refresh(course, work)
    start.write_start_page(course, work)
    page, due = files.read(work / start.FIRST).cells
    assert "(notebooks/01_a.ipynb)" in page.source and "(exercises/01_a.ipynb)" in page.source
    assert "show_due()" in due.source and start.refresh(course, work) == []


def run_and_save(path):
    notebook = files.read(path)
    notebook.cells[0].execution_count = 7
    notebook.cells[0].metadata["scrolled"] = True
    files.write(notebook, path)


@mark.parametrize(
    ("touch", "told"), [(run_and_save, "brought up to date"), (Path.unlink, "copied")]
)
def test_what_no_learner_changed_follows_the_course(course, work, touch, told):
    start.refresh(course, work)
    touch(work / "notebooks/01_a.ipynb")
    write(course / "notebooks/01_a.ipynb", "x = 2")
    assert start.refresh(course, work) == [f"work/notebooks/01_a.ipynb: {told}"]
    assert source(work / "notebooks/01_a.ipynb") == "x = 2"


@mark.parametrize("change", [lambda path: write(path, "x = 3"), lambda path: path.write_text("no")])
def test_what_a_learner_changed_is_never_overwritten(course, work, change):
    start.refresh(course, work)
    mine = work / "notebooks/01_a.ipynb"
    change(mine)
    kept = mine.read_bytes()
    assert start.refresh(course, work) == []
    write(course / "notebooks/01_a.ipynb", "x = 2")
    assert start.refresh(course, work) == [BESIDE]
    assert mine.read_bytes() == kept
    assert source(work / "notebooks/01_a.new.ipynb") == "x = 2"
    assert start.refresh(course, work) == [], "told once"


def test_without_its_notes_it_takes_every_difference_for_the_learners(course, work):
    start.refresh(course, work)
    write(work / "notebooks/01_a.ipynb", "x = 'mine'")
    (work / ".copies.json").write_text("damaged")
    assert start.refresh(course, work) == [BESIDE]
    assert source(work / "notebooks/01_a.ipynb") == "x = 'mine'"
