"""Every notebook runs and shows what is stored; unsolved exercises keep their contract."""

import time
from pathlib import Path

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient
from pytest import fixture, mark, param

from course import author, exercises, notebooks
from tests.conftest import notebook_environment

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))


def name(path):
    return str(path.relative_to(ROOT))


def test_notebooks_are_canonical_and_exercises_follow_from_solutions():
    assert list(author.problems(ROOT)) == []


MEASURE = ("01_gloo_scaling", "04_p2p_topology")  # solutions whose checks hold times


def kept():
    """All lessons and solutions."""
    for path in author.kept(ROOT):
        timed = path.parent.name == "solutions" and path.stem in MEASURE
        yield param(path, marks=mark.timed if timed else (), id=name(path))


@mark.timeout(1800)  # the first one waits for other lanes
@mark.parametrize("path", list(kept()))
def test_it_runs_and_shows_what_is_stored(path, executed, notebook_seconds):
    _, failure = executed(path, notebook_seconds)
    assert not failure, failure


@fixture(scope="module")
def kernel(tmp_path_factory):
    """One kernel for all exercises, so that PyTorch is imported once."""
    kernel = KernelManager(kernel_name="python3")
    ledger = tmp_path_factory.mktemp("unsolved") / "ledger.json"
    kernel.start_kernel(env=notebook_environment(ledger), cwd=str(ROOT / "exercises"))
    yield kernel
    kernel.shutdown_kernel(now=True)


@mark.timeout(600)
@mark.parametrize("path", EXERCISES, ids=name)
def test_unsolved_exercises_fail_with_exactly_their_error(path, kernel, notebook_seconds):
    start = time.perf_counter()
    failed = failures(notebooks.read(path), kernel)
    notebook_seconds(name(path), time.perf_counter() - start)
    assert broken(notebooks.read(path), failed) == []


def failures(notebook, kernel):
    """Run all cells, also after errors; return the error output of each that failed, by cell id."""
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # what others left behind
    client = NotebookClient(notebook, km=kernel, timeout=300, allow_errors=True)
    client.execute()
    client.kc.stop_channels()
    return {
        cell.id: output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    }


def broken(notebook, failed):
    """Name what departs from the contract of an unsolved notebook.

    The first cell of an exercise that fails must fail with `NotImplementedError("exercise N.M")`;
    what follows in that exercise may fail because of it; nothing else may.
    """
    found, seen = [], set()
    for cell in notebook.cells:
        part, error = exercises.part_of(cell), failed.get(cell.id)
        if error is None:
            continue
        if part is None:
            found.append(f"{cell.id}: {error.ename}: {error.evalue}")
        elif part.number not in seen:
            seen.add(part.number)
            expected = f"exercise {part.number}"
            if error.ename != "NotImplementedError" or not error.evalue.startswith(expected):
                found.append(f"{cell.id}: {error.ename}: {error.evalue}, not {expected!r}")
    parts = [part for cell in notebook.cells if (part := exercises.part_of(cell))]
    numbers = {part.number for part in parts}
    return found + [f"exercise {n} passes unsolved" for n in sorted(numbers - seen)]


def error(kind, value):
    return nbformat.v4.new_output("error", ename=kind, evalue=value, traceback=[])


def test_a_broken_contract_would_be_seen():
    from tests.course.samples import cell, solutions

    notebook = exercises.derive(solutions())
    right = {"ex-1-1-check": error("NotImplementedError", "exercise 1.1")}
    assert broken(notebook, right) == []
    assert broken(notebook, {}) == ["exercise 1.1 passes unsolved"]
    assert "NameError" in broken(notebook, {"ex-1-1-check": error("NameError", "x")})[0]
    notebook.cells.append(cell("an-aside", "1 / 0"))
    assert "an-aside" in broken(notebook, right | {"an-aside": error("ZeroDivisionError", "")})[0]
