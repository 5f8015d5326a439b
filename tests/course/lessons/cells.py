"""Run single cells of a lesson with names of the test's choosing: can its claims fail?"""

import json
import re
from pathlib import Path

from matplotlib import pyplot
from pytest import raises

from course.predictions import judging

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
UNASKED = dict.fromkeys(("gate", "predict", "reconcile", "mark"), lambda *_, **__: None)
"""Nobody bets here, and nothing is kept."""


class ClaimFailed(AssertionError):
    """What a false claim raises here, where it can be caught."""


def claim(holds, expected, *, measured, records=(), exact=False, ratio=False):
    if not judging.judge(holds).outcome:
        raise ClaimFailed(f"{expected}: {measured}")


class Cells:
    """A notebook whose cells can be run one by one; its imports are there from the start."""

    def __init__(self, name, **given):
        """`given`: what stands in for imports, or what all cells find besides."""
        document = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
        self.texts = {cell["id"]: "".join(cell["source"]) for cell in document["cells"]}
        code = (cell for cell in document["cells"] if cell["cell_type"] == "code")
        self.sources = {cell["id"]: self.texts[cell["id"]] for cell in code}
        self.imported = {}
        exec(self.sources["imports"], self.imported)
        self.imported |= UNASKED | {"claim": claim} | given

    def hold(self, cell, *, true, false, words):
        """Run a cell twice: the claim that says `words` must hold, and then fail."""
        self.run(cell, **true)
        with raises(ClaimFailed, match=re.escape(words)):
            self.run(cell, **false)

    def run(self, *ids, **names):
        """Run cells one after the other; return all names that there are afterwards."""
        names = self.imported | names
        for cell in ids:
            exec(compile(self.sources[cell], cell, "exec"), names)
        pyplot.close("all")
        return names
