from pytest import fixture

from course.notebooks import files, tree
from tests.course.samples import lesson, printed, solutions


@fixture
def course(tmp_path):
    """A course of one lesson and one solutions notebook, synced; without an address."""
    files.write(lesson("x = 1"), tmp_path / "notebooks/01_sample.ipynb")
    files.write(printed(solutions()), tmp_path / "solutions/01_solutions.ipynb")
    (tmp_path / "README.md").write_text(
        "# Course\n<!-- badges -->\n<!-- end of badges -->\n| 01 | a lesson |\n"
    )
    tree.sync(tmp_path)
    return tmp_path
