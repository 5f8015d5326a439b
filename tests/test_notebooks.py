"""Every notebook runs, keeps to the spine, and gives nothing away; so do unsolved exercises."""

import json
import re
import time
from datetime import datetime
from pathlib import Path

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient
from pytest import fixture, mark, param, skip

from course import author, claims, exercises, hosted, ledger_file, notebooks, other_programs, start
from tests import spine
from tests.conftest import CLAIMS, notebook_environment

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))
LESSONS = [path for path in author.kept(ROOT) if path.parent.name != author.SOLUTIONS]
CORE = [path for path in LESSONS if path.stem.partition("_")[0] in spine.CAPS]
CORE = [path for path in CORE if path.parent.name == author.LESSONS]
MOST_SECONDS = 40
"""That all cells of a core notebook may take on a calm machine with two CPUs."""
MEASURE = ("01_gloo_scaling", "04_p2p_topology")  # solutions whose checks hold times


def name(path):
    return str(path.relative_to(ROOT))


def test_notebooks_are_canonical_and_exercises_follow_from_solutions():
    assert list(author.problems(ROOT)) == []


def by_name(paths):
    return [param(path, id=name(path)) for path in paths]


@mark.parametrize("path", by_name(CORE))
def test_a_core_notebook_keeps_to_its_caps(path):
    assert spine.too_long(notebooks.read(path), path.stem.partition("_")[0]) == []


@mark.parametrize("path", by_name([path for path in LESSONS if path.parent.name == "deeper"]))
def test_a_deeper_notebook_keeps_to_its_cap(path):
    texts = [cell for cell in notebooks.read(path).cells if cell.cell_type == "markdown"]
    assert sum(spine.words(cell.source) for cell in texts) <= 2500


@mark.parametrize("path", by_name(LESSONS))
def test_nothing_is_seen_before_it_is_asked(path):
    """In the notebook itself, with its first cells as a hosted copy has them."""
    notebook = notebooks.read(path)
    copies = [notebook, hosted.fronted(notebook, "https://github.com/a/b", name(path))]
    for copy in copies:
        found = [*spine.order(copy), *spine.given_away(copy), *spine.verdicts_in_sight(copy)]
        assert found == []


def test_copies_in_work_hold_no_outputs_and_no_dead_links(tmp_path):
    start.refresh(ROOT, tmp_path)
    copies = [path for path in tmp_path.rglob("*.ipynb") if path.parent.name != "solutions"]
    assert len(copies) >= len(LESSONS) + len(EXERCISES)
    for path in copies:
        cells = notebooks.read(path).cells
        assert not any(cell.get("outputs") for cell in cells), path.name
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (path.parent / link).exists(), f"{path.name} links {link}"


def test_what_is_given_away_would_be_seen():
    from tests.course.samples import cell

    def walk(*cells, **results):
        found = nbformat.v4.new_notebook(cells=cells)
        return [*spine.order(found), *spine.given_away(found, results)]

    ask = cell("ask", 'predict("9.a", "How many?", "times")')
    vote = cell("vote", 'choose("9.b", "Why?", ["the late rank", "the bytes"])')
    run = cell("run", 'gate("9.a")\nprint(1)')
    end = cell("end", 'reconcile("9.a", 320.5 / 48.9, tier="PUBLISHED")')
    both = cell("both", 'gate("9.b")\nreconcile("9.b", "b", tier="MEASURED")')
    assert walk(ask, run, end) == walk(vote, both) == []
    assert "never reconciled" in walk(ask, run)[0]
    assert "ask it, then gate" in walk(run, ask, end)[0]
    late = cell("run", 'print(1)\ngate("9.a")')
    assert "first line" in walk(ask, late, end)[0]
    spoilt = cell("title", "# Why 6.55 times?", kind="markdown")
    assert "'6.55 times'" in walk(spoilt, ask, run, end)[0]
    drawn = cell("drawn", 'draw(title="It is the bytes")')
    assert "the bytes" in walk(vote, drawn, both)[0]
    folded = nbformat.v4.new_notebook(cells=[both])
    assert "9.b: fold both" in next(spine.verdicts_in_sight(folded))
    both.metadata["tags"] = [spine.FOLDED]
    assert [*spine.verdicts_in_sight(folded)] == []
    computed = cell("end", 'reconcile("9.a", f(), tier="MEASURED")')
    assert walk(spoilt, ask, run, computed) == []
    assert walk(spoilt, ask, run, computed, **{"9.a": 6.551})
    run.outputs = [nbformat.v4.new_output("stream", text="6.55")]
    assert "stored output" in walk(ask, run, end)[0]


def kept():
    """All lessons and solutions."""
    for path in author.kept(ROOT):
        if path.parent.name != author.SOLUTIONS:
            beside = path.parent.name == "deeper" or path.stem in ("gpus", "workshop_two_hours")
            marks = [mark.alone, mark.slow] if beside else [mark.lesson]
        else:
            marks = [mark.slow, *[mark.timed] * (path.stem in MEASURE)]
        yield param(path, marks=marks, id=name(path))


@fixture(scope="session")
def executed(tmp_path_factory):
    """Run a notebook, once for all tests; returns it with its outputs."""
    folder, done = tmp_path_factory.mktemp("executed"), {}

    def execute(path):
        if path not in done:
            place = folder / path.parent.name / path.stem  # a lesson's notebooks share their stem
            place.mkdir(parents=True)
            files = {"LABKIT_LEDGER": "ledger", "COURSE_CLAIMS": "claims"}
            variables = {key: str(place / file) for key, file in files.items()}
            done[path] = notebooks.execute(path, **variables), variables
        return done[path]

    return execute


@mark.timeout(600)
@mark.parametrize("path", list(kept()))
def test_it_runs_and_gives_nothing_away(path, executed, notebook_seconds, record_property):
    start = time.perf_counter()
    with other_programs.watch() as used:
        ran, variables = executed(path)
    notebook_seconds(name(path), time.perf_counter() - start)
    made = Path(variables["COURSE_CLAIMS"])
    lines = made.read_text().splitlines() if made.exists() else []
    record_property(CLAIMS, lines)
    failed = [line for line in map(json.loads, lines) if line["verdict"] == claims.NOT_HELD]
    assert failed == []
    book = ledger_file.load(Path(variables["LABKIT_LEDGER"]))
    results = {
        entry.key: entry.measured for entry in book.entries.values() if entry.tier != "MEASURED"
    }
    assert list(spine.given_away(notebooks.read(path), results)) == []
    took = sum(map(seconds, ran.cells))
    calm = claims.verdict(False, others=used.cpus) == claims.NOT_HELD
    if path in CORE and took > MOST_SECONDS:
        assert not calm, f"its cells take {took:.0f} s, {MOST_SECONDS} at most"
        skip(f"{claims.NOT_JUDGED}: {took:.0f} s while others used {used.cpus:.1f} CPUs")


def seconds(cell):
    """What a cell took; an empty one is not sent to the kernel."""
    times = cell.metadata.get("execution", {})
    if "iopub.execute_input" not in times:
        return 0.0
    begin, end = (times[name] for name in ("iopub.execute_input", "shell.execute_reply"))
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


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
