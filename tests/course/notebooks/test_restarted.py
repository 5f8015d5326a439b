"""A kernel that has just been started says which cells to run first."""

from nbclient.exceptions import CellExecutionError
from pytest import mark, raises

from course.notebooks import files, restarted
from tests.course.samples import lesson


@mark.slow
@mark.parametrize(
    ("cells", "says"),
    [
        (["gate('02.cause')"], "no cell that this kernel has run names 'gate'"),
        (["x = 1", "print(y)"], "run the cells above first, the folded ones as well"),
        (["def f():\n    return 2", "del f", "f()"], "Traceback (most recent call last)"),
    ],
)
def test_an_unknown_name_says_which_cells_to_run(cells, says):
    notebook = lesson(*cells)
    with raises(CellExecutionError):
        files.run(notebook, PYTHONSTARTUP=restarted.__file__)
    (shown,) = notebook.cells[-1].outputs
    text = "\n".join(shown.traceback)
    assert says in text and shown.ename == "NameError"
    assert ("Traceback" in text) != ("no cell that" in text)
