"""A kernel that has just been started says which cells to run first."""

from pytest import mark

from course.notebooks import files, restarted
from tests.course.samples import lesson

UNKNOWN = {
    "gate('02.cause')": "no cell that this kernel has run names 'gate'",
    "x = 1\nprint(y)": "run the cells above first, the folded ones as well",
    "def f():\n    return 2\ndel f\nf()": "no cell that this kernel has run names 'f'",
    "f()": "Traceback (most recent call last)",
}


@mark.slow
def test_an_unknown_name_says_which_cells_to_run():
    notebook = lesson(*UNKNOWN)
    for cell in notebook.cells:
        cell.metadata["tags"] = ["raises-exception"]
    files.run(notebook, PYTHONSTARTUP=restarted.__file__)
    for cell, says in zip(notebook.cells, UNKNOWN.values(), strict=True):
        (shown,) = cell.outputs
        text = "\n".join(shown.traceback)
        assert says in text and shown.ename == "NameError"
        assert ("Traceback" in text) != ("no cell that" in text)
