"""Run single cells of a lesson with names of the test's choosing: can its claims fail?"""

import json
from pathlib import Path

from matplotlib import pyplot

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


class Cells:
    """A notebook whose cells can be run one by one; its imports are there from the start."""

    def __init__(self, name):
        document = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
        self.sources = {cell["id"]: "".join(cell["source"]) for cell in document["cells"]}
        self.imported = {}
        exec(self.sources["imports"], self.imported)

    def untried(self, file):
        """Return the ids of cells that claim something and that a file of tests never names."""
        text = Path(file).read_text()
        claiming = [cell for cell, source in self.sources.items() if "claim(" in source]
        return [cell for cell in claiming if f'"{cell}"' not in text]

    def run(self, *ids, **names):
        """Run cells one after the other; return all names that there are afterwards."""
        names = self.imported | names
        for cell in ids:
            exec(compile(self.sources[cell], cell, "exec"), names)
        pyplot.close("all")
        return names
