"""Run single cells of a lesson with names of the test's choosing: can its claims fail?"""

import ast
import inspect
import re
from pathlib import Path

from matplotlib import pyplot
from pytest import raises

from course.notebooks import files
from course.predictions import judging

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
UNASKED = dict.fromkeys(("gate", "predict", "reconcile", "mark"), lambda *_, **__: None)
"""Nobody bets here, and nothing is kept."""


class ClaimFailed(AssertionError):
    """What a false claim raises here, where it can be caught."""


def claim(holds, expected, *, measured, records=(), exact=False, ratio=False):
    if not judging.judge(holds).outcome:
        raise ClaimFailed(f"{expected}: {measured}")


def as_read(source, name):
    """A program of a text, without what only people read: comments, its docstring, types."""
    [program] = [line for line in ast.parse(source).body if getattr(line, "name", None) == name]
    if ast.get_docstring(program):
        del program.body[0]
    program.returns = None
    for argument in [node for node in ast.walk(program) if isinstance(node, ast.arg)]:
        argument.annotation = None
    return ast.unparse(program)


class Cells:
    """A notebook whose cells can be run one by one; its imports are there from the start."""

    def __init__(self, name, **given):
        """`given`: what stands in for imports, or what all cells find besides."""
        cells = files.read(NOTEBOOKS / f"{name}.ipynb").cells
        self.texts = {cell.id: cell.source for cell in cells}
        self.sources = {cell.id: cell.source for cell in cells if cell.cell_type == "code"}
        self.imported = {}
        exec(self.sources["imports"], self.imported)
        self.imported |= UNASKED | {"claim": claim} | given

    def hold(self, cell, *, true, false, words):
        """Run a cell twice: the claim that says `words` must hold, and then fail."""
        self.run(cell, **true)
        with raises(ClaimFailed, match=re.escape(words)):
            self.run(cell, **false)

    def both(self, cell, program):
        """Return a program as a cell shows it, and as the package has it."""
        texts = self.sources[cell], inspect.getsource(program)
        return [as_read(text, program.__name__) for text in texts]

    def run(self, *ids, **names):
        """Run cells one after the other; return all names that there are afterwards."""
        names = self.imported | names
        for cell in ids:
            exec(compile(self.sources[cell], cell, "exec"), names)
        pyplot.close("all")
        return names
