"""How often each test and claim of a lesson decides, and how often wrongly. Not a test.

    python -m tools.bench_verdicts 02 --runs 20
    python -m tools.bench_verdicts 02 --runs 10 --bursts
    python -m tools.bench_verdicts 02 --runs 20 --seconds 150 --keep runs.jsonl

Runs the lesson's own cells again and again, gates open, and counts for every test of its board and
for every claim: decided, not judged, wrong. A test is wrong where it decides otherwise than the
lesson's recording does, or than most runs where there is none; a claim, where
it does not hold. On a calm machine each should decide in at least 19 of 20 runs, beside bursts none
may be wrong. Where a test does not decide, make its effect larger, not its limit softer.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from course import other_programs
from course.predictions.board import Board
from labkit.measure.tables import Table
from tests import printed

ROOT = Path(__file__).resolve().parents[1]
BUSY, PERIOD = 2.0, 5.0
"""Seconds: so long, every so often, the bursts use all CPUs."""


def main(arguments: list[str] | None = None) -> int:
    """Run a lesson, print the table; return 1 where something was decided wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lesson", help="its number, as in `notebooks/`: 02")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run later")
    parser.add_argument("--bursts", action="store_true", help="both CPUs busy 2 s of every 5")
    parser.add_argument("--cells", default="", help="only these, by id and comma; else all")
    parser.add_argument("--keep", type=Path, help="add the lines to a file, and count all of it")
    options = parser.parse_args(arguments)
    (path,) = (ROOT / "notebooks").glob(f"{options.lesson}_*.ipynb")
    cells = code_of(path, options.cells)
    begin, lines = time.monotonic(), []
    with bursts() if options.bursts else contextlib.nullcontext():
        for number in range(options.runs):
            if time.monotonic() - begin > options.seconds:
                break
            with other_programs.watch() as used:
                run = one_run(cells)
            lines += run
            print(f"run {number + 1}: {len(run)} judged, others {used.cpus:.2f}", file=sys.stderr)
    if options.keep:
        with options.keep.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        lines = [json.loads(line) for line in options.keep.read_text().splitlines()]
    table = count(lines, expected(path.stem.partition("_")[2]))
    print(table)
    return int(any(row[-1] for row in table.rows))


def code_of(path: Path, only: str = "") -> dict[str, str]:
    """Return the code cells of a notebook by id: all, or those that are named."""
    document = json.loads(path.read_text())
    cells = {c["id"]: "".join(c["source"]) for c in document["cells"] if c["cell_type"] == "code"}
    chosen = only.split(",") if only else [name for name in cells if name not in ("hosted", "done")]
    return {name: cells[name] for name in chosen}


def one_run(cells: dict[str, str]) -> list[dict]:
    """Run the cells in a ledger of their own; return what they judged, a line for each."""
    from IPython.display import display
    from matplotlib import pyplot

    with tempfile.TemporaryDirectory() as folder:
        variables = {"LABKIT_LEDGER": f"{folder}/ledger", "COURSE_GATES": "open"}
        names: dict = {"display": display}  # a kernel has it without import
        text = io.StringIO()
        with mock.patch.dict(os.environ, variables), contextlib.redirect_stdout(text):
            for name, source in cells.items():
                exec(compile(source, name, "exec"), names)
        pyplot.close("all")
        boards = {id(value): value for value in names.values() if isinstance(value, Board)}
        return printed.claims(text.getvalue()) + [
            {"suspect": letter, "experiment": experiment, "state": test.state, "found": test.found}
            for board in boards.values()
            for (letter, experiment), test in board.tests.items()
        ]


def expected(lesson: str) -> dict[str, str]:
    """Return what each test of the lesson's recorded board came to, by its name."""
    if not (ROOT / "course" / "lessons" / lesson / "evidence.py").exists():
        return {}
    evidence = importlib.import_module(f"course.lessons.{lesson}.evidence")
    board = evidence.INVESTIGATION.recorded()
    return {f"{x} {letter}": test.state for (letter, x), test in board.tests.items()}


def count(lines: list[dict], right: dict[str, str]) -> Table:
    """Count by test and claim: decided, not judged, wrong."""
    states: dict[str, Counter] = defaultdict(Counter)
    for line in lines:
        if "suspect" in line:
            states[f"{line['experiment']} {line['suspect']}"][line["state"]] += 1
        else:
            states[line["expected"]][line["verdict"]] += 1
    rows = []
    for name, seen in states.items():
        runs, left = sum(seen.values()), seen.pop("not judged", 0)
        usual = right.get(name) or ("held" if seen["held"] else max(seen, key=seen.get, default=""))
        rows.append([name, runs, runs - left, left, runs - left - seen[usual]])
    return Table(["test or claim", "runs", "decided", "not judged", "wrong"], rows)


@contextlib.contextmanager
def bursts() -> Iterator[None]:
    """Keep every CPU busy for `BUSY` of every `PERIOD` seconds, by programs that are not ours.

    A shell starts them and ends at once: what descends from this process would count as ours. They
    end with this block, and by themselves when this process is gone.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted"
        wanted.touch()
        script = shlex.join([sys.executable, "-c", _BURST, str(wanted), str(os.getpid())])
        for _ in range(os.cpu_count() or 1):
            subprocess.run(["sh", "-c", f"{script} &"], check=True, stdout=subprocess.DEVNULL)
        yield
    time.sleep(0.3)  # they see that the folder is gone


_BURST = f"""
import os, sys, time
while os.path.exists(sys.argv[1]) and os.path.exists("/proc/" + sys.argv[2]):
    begin = time.monotonic()
    while time.monotonic() % {PERIOD} < {BUSY} and time.monotonic() - begin < 0.2:
        pass
    if time.monotonic() % {PERIOD} >= {BUSY}:
        time.sleep(0.1)
"""


if __name__ == "__main__":
    sys.exit(main())
