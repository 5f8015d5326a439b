"""docs/labkit.md and README: what they show runs as it is written, in one session."""

import json
import re

import nbformat
from pytest import mark

from course.notebooks import files
from tests.nbval_cells import fork_kernels
from tests.ranks.nodes import MARKS, ROOT

pytestmark = mark.slow


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def test_the_readmes_cell_and_the_page_run_whatever_torchrun_left_in_the_environment(
    monkeypatch, pytestconfig
):
    fork_kernels(monkeypatch, pytestconfig)
    for name, value in MARKS.items():
        monkeypatch.setenv(name, value)
    (first,) = blocks("README.md")
    cells = [nbformat.v4.new_code_cell(block) for block in (first, *blocks("docs/labkit.md"))]
    assert len(cells) > 9
    notebook = nbformat.v4.new_notebook(cells=cells)
    files.run(notebook, ROOT)
    (result,) = notebook.cells[0].outputs
    assert f"# {result.data['text/plain']}: 0 + 1 + 2 + 3" in first
    shown = json.dumps([cell.outputs for cell in notebook.cells])
    assert "waiting in barrier #1 of group default; not there yet: rank 1" in shown
    assert "raised on 2 of 2 ranks (all)" in shown
