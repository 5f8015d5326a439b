from nbformat.v4 import new_notebook
from pytest import fixture, raises

from labkit.course import canonical, execute, notebooks
from tests.course.samples import ANSWER, cell, lesson, solutions


def marked(source):
    return cell("marked", source, tags=[canonical.MARK])


@fixture
def course(tmp_path):
    """A course of one lesson and one solutions notebook, formatted and synced."""
    canonical.write(lesson("x = 1"), tmp_path / "notebooks/01_sample.ipynb")
    canonical.write(solutions(), tmp_path / "solutions/01_sample.ipynb")
    for path in notebooks.kept(tmp_path):
        path.write_text(notebooks.formatted(path))
    notebooks.sync(tmp_path)
    return tmp_path


def test_a_synced_course_has_no_problems_and_sync_is_done_once(course):
    assert list(notebooks.problems(course)) == []
    assert notebooks.sync(course) == []


def test_an_edited_exercise_is_told_and_mended(course):
    path = course / "exercises/01_sample.ipynb"
    path.write_text(path.read_text().replace("exercise 1.1", "exercise 9.9"))
    assert "differs from its solution" in next(notebooks.problems(course))
    assert notebooks.sync(course) == [path]
    assert list(notebooks.problems(course)) == []


def test_an_exercise_without_solution_is_told_and_removed(course):
    (course / "exercises/02_orphan.ipynb").write_text("{}")
    assert "has no solutions notebook" in next(notebooks.problems(course))
    notebooks.sync(course)
    assert not (course / "exercises/02_orphan.ipynb").exists()


def test_a_marked_cell_without_output_is_told(course):
    path = course / "notebooks/01_sample.ipynb"
    canonical.write(canonical.canonical(new_notebook(cells=[marked("print(1)")])), path)
    assert "cell 'marked' is marked and has no stored output" in next(notebooks.problems(course))


def test_a_notebook_saved_by_a_person_is_told(course):
    path = course / "notebooks/01_sample.ipynb"
    notebook = canonical.read(path)
    notebook.cells[0].metadata["scrolled"] = True
    canonical.write(notebook, path)
    assert "not in canonical form" in next(notebooks.problems(course))


def test_unclosed_markers_are_told_with_file_and_cell(course):
    path = course / "solutions/01_sample.ipynb"
    broken = ANSWER.replace("### END SOLUTION", "")
    canonical.write(solutions(answer=broken), path)
    assert any("01_sample.ipynb: cell 'ex-1-1-answer'" in p for p in notebooks.problems(course))
    with raises(ValueError, match=r"01_sample\.ipynb: cell 'ex-1-1-answer': line 3"):
        notebooks.sync(course)


def test_run_stores_exactly_the_marked_outputs(tmp_path):
    path = tmp_path / "notebooks/01_sample.ipynb"
    notebook = lesson("import os\nprint(os.environ['LABKIT_LEDGER'])")
    notebook.cells.append(marked("print(6 * 7)"))
    canonical.write(notebook, path)
    executed = execute.execute(path)
    assert executed.notebook.cells[0].outputs, "the run itself keeps everything"
    stored = execute.store(executed, into=canonical.read(path))
    assert stored.cells[0].outputs == []
    assert stored.cells[1].outputs[0].text == "42\n"
    assert set(executed.seconds) == {"step-0", "marked"}


def test_a_failing_cell_and_a_silent_marked_cell_are_errors(tmp_path):
    path = tmp_path / "01_sample.ipynb"
    canonical.write(lesson("1 / 0"), path)
    with raises(RuntimeError, match="ZeroDivisionError"):
        execute.execute(path)
    canonical.write(new_notebook(cells=[marked("x = 1")]), path)
    with raises(RuntimeError, match=r"'marked' is marked .* and shows nothing"):
        execute.store(execute.execute(path), into=canonical.read(path))
