"""docs/labkit.md: what it shows runs as it is written, block after block, in one session."""

import json
import re

import nbformat
from pytest import mark

from course.notebooks import files
from tests.ranks.nodes import MARKS, ROOT

pytestmark = mark.slow

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/labkit.md").read_text(), re.M | re.S)


def test_the_page_runs_in_a_notebook_whatever_torchrun_left_in_its_environment(monkeypatch):
    for name, value in MARKS.items():
        monkeypatch.setenv(name, value)
    cells = [nbformat.v4.new_code_cell(block) for block in BLOCKS]
    assert len(cells) > 8
    notebook = nbformat.v4.new_notebook(cells=cells)
    files.run(notebook, ROOT)
    shown = json.dumps([cell.outputs for cell in notebook.cells])
    assert "waiting in barrier #1 of group default; not there yet: rank 1" in shown
    assert "raised on 2 of 2 ranks (all)" in shown
