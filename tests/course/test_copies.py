from pytest import fixture

from labkit.course import canonical, copies
from tests.course.samples import lesson


@fixture
def course(tmp_path):
    write(tmp_path / "course/notebooks/01_a.ipynb", "x = 1")
    write(tmp_path / "course/exercises/01_a.ipynb", "y = 1")
    return tmp_path / "course"


@fixture
def work(tmp_path):
    return tmp_path / "work"


def write(path, *sources):
    canonical.write(lesson(*sources), path)


def source(path):
    return canonical.read(path).cells[0].source


def whats(outcomes):
    return [(outcome.name, outcome.what) for outcome in outcomes]


def test_copies_are_made_once(course, work):
    made = copies.refresh(course, work)
    assert whats(made) == [("notebooks/01_a.ipynb", "new"), ("exercises/01_a.ipynb", "new")]
    assert source(work / "notebooks/01_a.ipynb") == "x = 1"
    assert copies.refresh(course, work) == []
    assert list(copies.told([])) == ["work/ is up to date."]


def test_an_untouched_copy_follows_the_course(course, work):
    copies.refresh(course, work)
    write(course / "notebooks/01_a.ipynb", "x = 2")
    assert whats(copies.refresh(course, work)) == [("notebooks/01_a.ipynb", "updated")]
    assert source(work / "notebooks/01_a.ipynb") == "x = 2"


def test_running_and_saving_is_no_change(course, work):
    copies.refresh(course, work)
    path = work / "notebooks/01_a.ipynb"
    notebook = canonical.read(path)
    notebook.cells[0].execution_count = 7
    notebook.cells[0].metadata["scrolled"] = True
    canonical.write(notebook, path)
    write(course / "notebooks/01_a.ipynb", "x = 2")
    assert whats(copies.refresh(course, work)) == [("notebooks/01_a.ipynb", "updated")]


def test_what_a_learner_changed_is_never_overwritten(course, work):
    copies.refresh(course, work)
    mine = work / "notebooks/01_a.ipynb"
    write(mine, "x = 'mine'")
    assert copies.refresh(course, work) == []
    write(course / "notebooks/01_a.ipynb", "x = 2")
    outcomes = copies.refresh(course, work)
    assert whats(outcomes) == [("notebooks/01_a.ipynb", "beside")]
    assert "01_a.new.ipynb" in next(copies.told(outcomes))
    assert source(mine) == "x = 'mine'"
    assert source(work / "notebooks/01_a.new.ipynb") == "x = 2"
    assert copies.refresh(course, work) == [], "told once"


def test_without_its_notes_it_takes_every_difference_for_the_learners(course, work):
    copies.refresh(course, work)
    write(work / "notebooks/01_a.ipynb", "x = 'mine'")
    (work / ".copies.json").write_text("damaged")
    assert whats(copies.refresh(course, work)) == [("notebooks/01_a.ipynb", "beside")]
    assert source(work / "notebooks/01_a.ipynb") == "x = 'mine'"


def test_a_deleted_copy_is_made_again(course, work):
    copies.refresh(course, work)
    (work / "notebooks/01_a.ipynb").unlink()
    assert whats(copies.refresh(course, work)) == [("notebooks/01_a.ipynb", "new")]


def test_a_copy_that_is_no_notebook_any_more_is_the_learners(course, work):
    copies.refresh(course, work)
    (work / "notebooks/01_a.ipynb").write_text("notes")
    write(course / "notebooks/01_a.ipynb", "x = 2")
    assert whats(copies.refresh(course, work)) == [("notebooks/01_a.ipynb", "beside")]
    assert (work / "notebooks/01_a.ipynb").read_text() == "notes"
