"""`python -m labkit edition`: run the lessons here and write them as pages to read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from nbformat import NotebookNode

from labkit.course import execute
from labkit.course.notebooks import LESSONS, ROOT

_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
_WIDGET = "application/vnd.jupyter.widget-view+json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "notebooks", nargs="*", type=Path, help="notebooks to run (all lessons when none is named)"
    )
    parser.add_argument("--out", type=Path, default=Path("build/html"), help="folder to write to")


def main(options: argparse.Namespace) -> int:
    """Run each notebook and write its page; return 0."""
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.notebooks or sorted((ROOT / LESSONS).glob("*.ipynb")):
        target = options.out / f"{path.stem}.html"
        target.write_text(page(execute.execute(path.resolve()).notebook), encoding="utf-8")
        print(target)
    return 0


def page(notebook: NotebookNode) -> str:
    """Return an executed notebook as one HTML page; pictures stand where widgets would.

    nbconvert's scripts load mathematics and diagrams from the network; the lessons have neither.
    """
    from nbconvert import HTMLExporter

    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output.data.pop(_WIDGET, None)
    text, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    return _SCRIPT.sub("", text)
