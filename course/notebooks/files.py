"""Notebooks as files: the one form in which they are kept, and how they are run.

A notebook in canonical form

- names the kernel `python3` and nothing about the machine that saved it;
- gives every cell a readable, unique id that never changes (`the-puzzle`, `ex-1-1-answer`);
- keeps of a cell's metadata only `tags` and `nbgrader`;
- keeps no outputs: a stored result would spoil the learner's prediction. Only a cell that nbval is
  to compare (tagged `nbval-check-output`: the checks of solutions) keeps the text that it printed.

`canonical` is idempotent, so `course check` may ask whether a file equals its own canonical form.
"""

import contextlib
import copy
import itertools
import json
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import nbformat.warnings
from nbformat import NotebookNode

from course.catalogue import environment
from course.notebooks.hosted import ASKS, FOLDED

COMPARED = "nbval-check-output"  # the tag of a cell whose output nbval holds to the stored one
KEPT_CELL_METADATA = ("nbgrader", "tags")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

_STABLE_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_DRAWN_ID = re.compile(r"[0-9a-f]{8}([0-9a-f-]{24,28})?")  # what nbformat and JupyterLab draw


def read(path: Path) -> NotebookNode:
    """Read a notebook as nbformat 4.

    Raises `ValueError`, with the path, where it is none, or an id is missing or used twice.
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

    JupyterLab shows a cell with the tag `hide-cell` or `hide-input` folded. A cell that still has
    the id that JupyterLab drew for it gets one from its first words.
    """
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    taken = {cell.get("id") for cell in notebook.cells}
    for cell in notebook.cells:
        if _DRAWN_ID.fullmatch(cell.get("id", "")):
            cell.id = _readable_id(cell, taken)
            taken.add(cell.id)
        cell.source = cell.source.strip("\n")
        given = cell.metadata
        cell.metadata = {key: given[key] for key in KEPT_CELL_METADATA if given.get(key)}
        if {ASKS, FOLDED} & {*cell.metadata.get("tags", [])}:
            cell.metadata["jupyter"] = {"source_hidden": True}
        if cell.cell_type == "code":
            compared = COMPARED in cell.metadata.get("tags", [])
            printed = [out for out in cell.outputs if compared and out.get("name") == "stdout"]
            cell.outputs, cell.execution_count = printed, 1 if printed else None
    return notebook


def _readable_id(cell: NotebookNode, taken: set[str]) -> str:
    """Make an id of a cell's first words, with a number where another cell has it."""
    words = re.findall(r"[a-z][a-z0-9]*", cell.source.lower())[:3] or [cell.cell_type]
    name = "-".join(words)
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)


def problems(notebook: NotebookNode) -> Iterator[str]:
    """Name what `canonical` cannot repair: ids that an author has to choose."""
    seen: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        cell_id, first_line = cell.get("id", ""), cell.source.strip().split("\n")[0][:50]
        named = f"cell {index} ({first_line!r}) has the id {cell_id!r}"
        if not (_STABLE_ID.fullmatch(cell_id) or _DRAWN_ID.fullmatch(cell_id)):
            wanted = "lower-case words joined by hyphens, like 'the-puzzle'"
            yield f"{named}; give it a short, meaningful one: {wanted}"
        if cell.cell_type == "code" and cell.source.rstrip().endswith(";"):
            yield f"cell {cell_id!r} ends in ';', which hides the picture that it shows"
        if cell_id in seen:
            yield f"{named}, which an earlier cell has too"
        seen.add(cell_id)


@contextlib.contextmanager
def sockets() -> Iterator[dict[str, str]]:
    """Yield where a kernel listens: at files, as others may take a port before it has started."""
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        yield {"transport": "ipc", "ip": f"{folder}/socket"}


def run(notebook: NotebookNode, folder: Path | None = None, **variables: str) -> None:
    """Run a notebook's cells in a fresh kernel, in a folder; the outputs come into the notebook.

    Raises one of `nbclient.exceptions` where a cell raised, took more than five minutes, or ended
    the kernel.
    """
    from nbclient import NotebookClient
    from traitlets.config import Config

    with sockets() as listening:
        config, place = Config(KernelManager=listening), {"metadata": {"path": str(folder or "")}}
        client = NotebookClient(
            notebook, config=config, timeout=300, kernel_name="python3", resources=place
        )
        client.execute(env=environment(**variables))


def execute(path: Path, **variables: str) -> NotebookNode:
    """Run a notebook's cells in a fresh kernel, in the notebook's folder; return its outputs, too.

    It has a ledger of its own, never a learner's, and these variables besides. `RuntimeError` says
    with the traceback that a cell raised, took too long, or ended the kernel.
    """
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = read(path)
    try:
        with tempfile.TemporaryDirectory(prefix="labkit-ledger-") as folder:
            defaults = {"LABKIT_LEDGER": f"{folder}/ledger.jsonl", "COURSE_GATES": "open"}
            run(notebook, path.parent, **defaults | variables)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise RuntimeError(f"{path.name} did not run to its end:\n{error}") from error
    return notebook
