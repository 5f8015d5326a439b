"""`python -m course triage`: numbers or files, held against the rows of the field guide.

Without files it asks four numbers. With files it reads the `checkup.json` of `examples/checkup.py`,
nccl-tests' output, NCCL's own log, and traces (Chrome JSON) of torch.profiler, those of all ranks
together. It prints a board: the rows as suspects, what each file says of them, and what to do next.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from course import field_guide
from course.logs import evidence, logs, nccl_debug, traces
from course.logs.evidence import Finding
from course.logs.logs import Log
from course.predictions.board import Board, Experiment
from course.runs import quiet
from labkit.measure import records
from labkit.measure.untrusted import one_line

_PLANNED = {
    "checkup": Experiment(
        "the checkup", "123457",
        "your step in examples/checkup.py under torchrun, then triage checkup.json",
    ),
    "log": Experiment("NCCL's own log", "68", "the job once more under NCCL_DEBUG=INFO"),
    "benchmark": Experiment(
        "nccl-tests", "6",
        "each host alone, all at once, then pairs: alltoall_perf -b 1G -e 1G, then report",
    ),
    "stacks": Experiment("where the ranks are", "8", "ncclras -v; py-spy dump on every rank"),
}  # fmt: skip
"""What can be done, in the order in which it is best done; what a file is stands for it."""


def read_checkup(path: Path) -> dict[str, float]:
    """Take the arguments of `evidence.of_numbers` from a checkup's record; the median rank's.

    Communication is what is exposed: waiting and moving that no computing hides.

    Raises:
        ValueError: It is no record of a checkup; in one line.
    """
    found = records.load(path, experiment="checkup")
    try:
        values = found[-1].values
        names = ("input", "compute", "exposed", "wait", "queued for CPU")
        medians = [1e3 * statistics.median(map(float, values[name])) for name in names]
        calls = 1e3 * float(values["calls"]) * float(values["latency"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(one_line(f"{path} holds no record of a checkup: {error!r}")) from None
    entered, compute, exposed, wait, queued = medians
    without = entered + compute
    return {
        "step": without + exposed, "without": without, "wait": min(wait, exposed), "calls": calls,
        "queued": queued,
    }  # fmt: skip


def _read_file(path: Path) -> tuple[str, list[Finding]] | Log:
    """Say what a file is, by the names of `_PLANNED`, and what it says of the rows.

    Logs are returned as they were read: what several say together is more.

    Raises:
        OSError: It cannot be opened.
        ValueError: It is nothing that can be read.
    """
    with path.open("rb") as file:
        begins = file.read(4096).lstrip()
    if begins.startswith(b"{") and b'"records"' in begins:
        return "checkup", evidence.of_numbers(**read_checkup(path))
    if b"rank  input ms" in begins:
        raise ValueError(f"{path} is what the checkup printed: give its checkup.json instead.")
    (log,) = logs.read([path])
    return log


def board_of(read: dict[str, tuple[str, list[Finding]]]) -> Board:
    """Put what was read on a board: by name of the file what it is, and what it says.

    Several findings for a row are one test: it stands if one of them speaks for it.
    """
    made = {kind for kind, _ in read.values()}
    experiments = {chr(ord("A") + i): Experiment(name) for i, name in enumerate(read)}
    for name, planned in _PLANNED.items():
        if name not in made:
            experiments[chr(ord("A") + len(experiments))] = planned
    rows = field_guide.rows()
    names = {str(number): row.suspect for number, row in rows.items()}
    board = Board("Why is it slow? (rows of the field guide)", names, experiments, say=quiet)
    for letter, (_, findings) in zip(experiments, read.values(), strict=False):
        for number in rows:
            judged = [one for one in findings if one.row == number and one.guilty is not None]
            for_it = [one for one in judged if one.guilty]
            if judged:
                chosen = for_it or judged
                more = f" (and {len(chosen) - 1} more)" if chosen[1:] else ""
                board.test(
                    str(number),
                    letter,
                    field_guide.plain(rows[number].ask),
                    bool(for_it),
                    found=chosen[0].says + more,
                    exact=True,
                )
    return board


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="*", type=Path, help="checkup.json, logs, traces")
    parser.epilog = "Exits with 0 if all files were read, 1 if some were left out, 2 if none was."


def main(options: argparse.Namespace) -> int:
    """Ask four numbers, or read files; print the board and what to do next.

    Returns 0 if all files were read, 1 if some were left out, 2 if there was nothing to read.
    """
    jobs: dict[str, Callable[[], tuple[str, list[Finding]] | Log]] = {}
    ranks = []
    for path in options.files:
        events = traces.read(path)
        if events is None:
            name = path.name if path.name not in jobs else str(path)
            jobs[name] = partial(_read_file, path)
        else:
            ranks.append(events)
    if ranks:
        numbers = partial(traces.numbers, ranks)
        jobs = {f"traces, {len(ranks)} of them": lambda: _checkup(numbers), **jobs}
    read: dict[str, tuple[str, list[Finding]]] = {}
    of_tools: dict[str, list[Log]] = {}
    failed = 0
    for name, job in (jobs or {"four numbers": lambda: _checkup(_asked)}).items():
        try:
            found = job()
            if isinstance(found, Log):
                of_tools.setdefault(found.tool, []).append(found)
            else:
                read[name] = found
        except OSError as error:
            print(f"{name}: {error.strerror or error}", file=sys.stderr)
            failed = 1
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = 1
    for tool, some in of_tools.items():
        plain = tool == nccl_debug.TOOL
        name = f"{len(some)} logs of {'NCCL, as of one job' if plain else tool}"
        name = some[0].paths[0].name if len(some) == 1 else name
        read[name] = "log" if plain else "benchmark", evidence.of_logs(some)
    if read:
        _print(read)
    return failed if read else 2


def _checkup(numbers: Callable[[], dict]) -> tuple[str, list[Finding]]:
    return "checkup", evidence.of_numbers(**numbers())


def _print(read: dict[str, tuple[str, list[Finding]]]) -> None:
    board, rows = board_of(read), field_guide.rows()
    files = ", ".join(
        f"{letter} = {name}" for letter, name in zip(board.experiments, read, strict=False)
    )
    print(f"{board}\n\nRead: {files}")
    findings = [one for _, found in read.values() for one in found]
    said: dict[str, list[int]] = {}
    for one in sorted(findings, key=lambda one: (not one.guilty, one.row)):
        said.setdefault(one.says, []).append(one.row)
    for says, numbers in said.items():
        print(f"  {', '.join(map(str, dict.fromkeys(numbers))):<7}  {says}")
    stand = [row for letter, row in zip(board.suspects, rows.values(), strict=True)
             if board.state(letter) == "stands"]  # fmt: skip
    stand.sort(key=lambda row: row.row != 8)  # what died or hangs comes before what is slow
    if not stand:
        undecided = f"Nothing read speaks for or against a row. {board.next()}"
        print(f"\n{board.verdict() if board.tests else undecided}")
        return
    guilty = [one for one in findings if one.guilty and one.then]
    for row in stand:
        print(f"\nRow {row.row}. {field_guide.plain(row.ask)}")
        then = next((one.then for one in guilty if one.row == row.row), row.measure)
        print(f"  Next: {field_guide.plain(then)}")
        print(f"  If so: {field_guide.plain(row.if_so)}")
        if row.cases and then is row.measure:  # numbers alone spoke: a case has them, too
            print(f"  Nearest case: python -m course case {row.cases[0]}")
    if len(stand) == 1:
        print("\nOne row stands: a suspect, not a proof.")
    else:
        print(
            f"\n{len(stand)} rows stand. Take row {stand[0].row} first, and read again after it: "
            "what it mends may have been the cause of another."
        )


_QUESTIONS = {
    "step": "1. One step takes (ms): ",
    "without": "2. Without communication (no_sync, or one rank) it takes (ms): ",
    "wait": "3. Of the difference, a rank waits for the last one for (ms; Enter: not known): ",
    "calls": "4. Number of calls × the latency of one (ms; Enter: not known): ",
}


def _asked() -> dict[str, float | None]:
    answers: dict[str, float | None] = {}
    for name, question in _QUESTIONS.items():
        while name not in answers:
            text = input(question).strip().replace("ms", "").strip()
            try:
                answers[name] = float(text) if text or name in ("step", "without") else None
            except ValueError:
                print(f"  {text!r} is no number of milliseconds.")
    return answers
