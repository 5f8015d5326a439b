"""Run a notebook from start to end in a fresh kernel, and keep what its marked cells printed."""

from __future__ import annotations

import copy
import datetime
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from labkit.course import canonical
from labkit.course.lessons import ROOT


@dataclass(frozen=True, slots=True)
class Executed:
    """A notebook after a run."""

    notebook: NotebookNode
    """The notebook with all outputs of this run."""
    seconds: dict[str, float]
    """Seconds per code cell, by cell id."""


def execute(path: Path, *, cell_timeout: float = 300.0) -> Executed:
    """Run a notebook's cells in a fresh kernel whose working folder is the notebook's own.

    The run has a ledger of its own, so that it never writes into a learner's.

    Args:
        path: The notebook.
        cell_timeout: Seconds that one cell may take.

    Raises:
        RuntimeError: A cell raised, took too long, or ended the kernel; with the traceback.
    """
    notebook = copy.deepcopy(canonical.read(path))
    client = NotebookClient(
        notebook,
        timeout=cell_timeout,
        kernel_name="python3",
        record_timing=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        with _course_environment():
            client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise RuntimeError(f"{path.name} did not run to its end:\n{error}") from error
    return Executed(
        notebook, {cell.id: _seconds(cell) for cell in notebook.cells if "outputs" in cell}
    )


def store(executed: Executed, *, into: NotebookNode) -> NotebookNode:
    """Return `into` in canonical form, its marked cells with the outputs of this run.

    Raises:
        RuntimeError: A marked cell produced no output, so that a test would compare nothing.
    """
    notebook = copy.deepcopy(into)
    for cell, ran in zip(notebook.cells, executed.notebook.cells, strict=True):
        if not canonical.is_marked(cell):
            continue
        if not ran.outputs:
            raise RuntimeError(f"cell {cell.id!r} is marked {canonical.MARK} and shows nothing")
        cell.outputs = ran.outputs
    return canonical.canonical(notebook)


@contextmanager
def _course_environment():
    """Let kernels find labkit, and give them a ledger that is thrown away."""
    saved = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="labkit-ledger-") as folder:
        os.environ["LABKIT_LEDGER"] = str(Path(folder) / "ledger.json")
        paths = [str(ROOT), *filter(None, [saved.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(saved)


def _seconds(cell: NotebookNode) -> float:
    times = cell.metadata.get("execution", {})
    try:
        start, end = times["iopub.execute_input"], times["shell.execute_reply"]
    except KeyError:  # an empty cell is not sent to the kernel
        return 0.0
    return (_moment(end) - _moment(start)).total_seconds()


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
