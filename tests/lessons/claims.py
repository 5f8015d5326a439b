"""A lesson's claims, tried on figures that bear them out and on others.

The cells of the notebook are taken as they are: what a learner reads is what is tested.
"""

import re

from pytest import raises

from labkit.course import notebooks
from labkit.course.checking import ClaimFailed, claim
from labkit.course.lessons import ROOT


class Ledger:
    """Takes what a cell keeps."""

    def reconcile(self, *args, **options):
        pass


class Claims:
    """The code cells of one lesson, by their ids."""

    def __init__(self, name, **given):
        """`given`: what the cells find besides `claim` and a ledger."""
        found = notebooks.read(ROOT / "notebooks" / f"{name}.ipynb")
        self.cells = {cell.id: cell.source for cell in found.cells if cell.cell_type == "code"}
        self.given = {"claim": claim, "ledger": Ledger(), **given}

    def run(self, name, given):
        exec(self.cells[name], {**self.given, **given})

    def hold(self, name, *, true, false, said):
        """Run the cell twice: the claim that says `said` must hold, and then fail."""
        self.run(name, true)
        with raises(ClaimFailed, match=re.escape(said)):
            self.run(name, false)

    def claiming(self):
        return {name for name, source in self.cells.items() if "claim(" in source}
