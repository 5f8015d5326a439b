import argparse
from pathlib import Path

from pytest import fixture, mark

from course.commands import start
from course.notebooks import files
from tests.course.samples import lesson

COURSE, WORK = Path("course"), Path("work")
OURS, MINE = COURSE / "notebooks/01_a.ipynb", WORK / "notebooks/01_a.ipynb"
NAME = "notebooks/01_a.ipynb"
BESIDE = "yours, kept; the course's new version is beside it as 01_a.new.ipynb"


@fixture(autouse=True)
def made(tmp_path, monkeypatch):
    """A learner's first copies, in a folder of their own; returns what was told of them."""
    monkeypatch.chdir(tmp_path)
    write(OURS, "x = 1")
    write(COURSE / "exercises/01_a.ipynb", "y = 1")
    return refresh()


def refresh():
    return start.refresh(COURSE, WORK)


def write(path, *sources):
    files.write(lesson(*sources), path)


def source(path):
    return files.read(path).cells[0].source


def test_start_gives_jupyterlab_its_own_options():
    parser = argparse.ArgumentParser()
    start.configure(parser)
    given = ["--no-browser", "--port=9999", "--ip=0.0.0.0"]
    command = start.jupyter(parser.parse_args(given))
    assert set(given) <= set(command)
    assert any("work/start.ipynb" in part for part in command)
    assert str(start.ROOT) in start.environment()["PYTHONPATH"]


def test_copies_are_made_once_and_counted_and_what_stands_beside_ones_own_is_named(made):
    assert start.in_lines(made) == ["work/: 2 copied."]
    assert start.in_lines(refresh()) == ["work/: up to date."]
    touched = made | {"exercises/02_b.ipynb": "brought up to date", "notebooks/02_b.ipynb": BESIDE}
    counted = "work/: 2 copied, 1 brought up to date."
    assert start.in_lines(touched) == [counted, f"work/notebooks/02_b.ipynb: {BESIDE}"]


def test_the_start_page_is_a_map_and_what_is_due():
    start.write_start_page(COURSE, WORK)
    page, due = files.read(WORK / start.FIRST).cells
    assert "(notebooks/01_a.ipynb)" in page.source and "(exercises/01_a.ipynb)" in page.source
    assert "show_due()" in due.source and refresh() == {}


def run_and_save(path):
    notebook = files.read(path)
    notebook.cells[0].execution_count = 7
    notebook.cells[0].metadata["scrolled"] = True
    files.write(notebook, path)


TOUCHES = {run_and_save: "brought up to date", Path.unlink: "copied"}


@mark.parametrize(("touch", "told"), TOUCHES.items())
def test_what_no_learner_changed_follows_the_course(touch, told):
    touch(MINE)
    write(OURS, "x = 2")
    assert refresh() == {NAME: told}
    assert source(MINE) == "x = 2"


@mark.parametrize("change", [lambda: write(MINE, "x = 3"), lambda: MINE.write_text("no")])
def test_what_a_learner_changed_is_never_overwritten(change):
    change()
    kept = MINE.read_bytes()
    assert refresh() == {}
    write(OURS, "x = 2")
    assert refresh() == {NAME: BESIDE}
    assert MINE.read_bytes() == kept
    assert source(MINE.with_suffix(".new.ipynb")) == "x = 2"
    assert refresh() == {}, "told once"


def test_without_its_notes_it_takes_every_difference_for_the_learners():
    write(MINE, "x = 'mine'")
    (WORK / ".copies.json").write_text("damaged")
    assert refresh() == {NAME: BESIDE}
    assert source(MINE) == "x = 'mine'"
