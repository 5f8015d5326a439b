"""The one form in which a notebook is kept: stable ids, no noise, only the outputs that count.

A notebook in canonical form

- names the kernel `python3` and nothing about the machine that saved it;
- gives every cell a readable, unique id that never changes (`the-puzzle`, `ex-1-1-answer`);
- keeps of a cell's metadata only `tags` and `nbgrader`;
- keeps outputs only in code cells with the tag `nbval-check-output`. Those results are
  deterministic and a test compares them; every other cell is stored without outputs, because
  a stored timing would spoil the learner's prediction.

`canonical` is idempotent, so `course check` may ask whether a file equals its own canonical form.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import nbformat.warnings
from nbformat import NotebookNode

MARK = "nbval-check-output"
KEPT_CELL_METADATA = ("nbgrader", "tags")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

_COMMENT = re.compile(r"^\s*# NBVAL_", re.MULTILINE)  # the first line of a cell is the learner's
_STABLE_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_DRAWN_ID = re.compile(r"[0-9a-f]{8}([0-9a-f-]{24,28})?")  # what nbformat and JupyterLab draw


def is_marked(cell: NotebookNode) -> bool:
    """Tell whether a cell keeps its outputs: a code cell with the tag `nbval-check-output`."""
    return cell.cell_type == "code" and MARK in cell.metadata.get("tags", [])


def read(path: Path) -> NotebookNode:
    """Read a notebook as nbformat 4.

    Raises:
        ValueError: The file is not a notebook, or a cell's id is missing or used twice; names
            the file.
    """
    try:
        with warnings.catch_warnings():  # nbformat repairs ids silently, with random ones
            warnings.simplefilter("error", nbformat.warnings.DuplicateCellId)
            warnings.simplefilter("error", nbformat.warnings.MissingIDFieldWarning)
            return nbformat.read(path, as_version=4)
    except Warning as problem:
        raise ValueError(f"{path}: {problem}") from problem
    except (json.JSONDecodeError, nbformat.reader.NotJSONError, AttributeError, KeyError) as error:
        raise ValueError(f"{path} is not a notebook: {error}") from error


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook exactly as `dumps` prints it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(notebook), encoding="utf-8")


def dumps(notebook: NotebookNode) -> str:
    """Print a notebook as JSON: one space of indent, sorted keys, a final newline."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def canonical(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook's canonical form; the argument stays as it is.

    Execution counts become the cell's place among the code cells: what a run of all cells gives.
    """
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    count = 0
    for cell in notebook.cells:
        cell.source = cell.source.strip("\n")
        cell.metadata = nbformat.from_dict(
            {key: cell.metadata[key] for key in KEPT_CELL_METADATA if cell.metadata.get(key)}
        )
        if cell.cell_type != "code":
            continue
        count += 1
        cell.outputs = list(_outputs(cell, count)) if is_marked(cell) else []
        cell.execution_count = count if cell.outputs else None
    return notebook


def problems(notebook: NotebookNode) -> Iterator[str]:
    """Name what `canonical` cannot repair: ids and marks that an author has to choose."""
    seen: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        cell_id = cell.get("id", "")
        where = f"cell {index} ({_first_line(cell)!r})"
        if not _STABLE_ID.fullmatch(cell_id) or _DRAWN_ID.fullmatch(cell_id):
            yield (
                f"{where} has the id {cell_id!r}; give it a short, meaningful one: lower-case "
                "words joined by hyphens, like 'the-puzzle'"
            )
        if cell_id in seen:
            yield f"{where} has the id {cell_id!r}, which an earlier cell has too"
        seen.add(cell_id)
        if cell.cell_type == "code" and _COMMENT.search(cell.source):
            yield f"{where} has an NBVAL comment; give the cell the tag {MARK!r} instead"


def _outputs(cell: NotebookNode, count: int) -> Iterator[NotebookNode]:
    """Yield a marked cell's outputs: pieces of a stream joined, run-specific fields reset."""
    last = None
    for output in cell.outputs:
        output.pop("transient", None)
        if output.output_type == "execute_result":
            output.execution_count = count
        if (
            last is not None
            and last.output_type == output.output_type == "stream"
            and last.name == output.name
        ):
            last.text += output.text
            continue
        if last is not None:
            yield last
        last = output
    if last is not None:
        yield last


def _first_line(cell: NotebookNode) -> str:
    return cell.source.strip().split("\n")[0][:50]
