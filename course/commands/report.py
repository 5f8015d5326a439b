"""`python -m course report FILES...`: one page of what other tools' logs say; it stands alone."""

import argparse
import gc
import sys
from pathlib import Path

from course.logs import logs, report
from course.logs.page import Page


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files", nargs="+", type=Path, help="logs of nccl-tests and of NCCL_DEBUG=INFO"
    )
    parser.add_argument(
        "--wire",
        type=float,
        metavar="GB/S",
        help="what one network card carries, to hold logs of several hosts against (if not given: "
        "the most that a run with one GPU per host reached)",
    )
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="page to write")
    parser.epilog = "Exits with 0 if all files were read, 1 if some were left out, 2 if none was."


def main(options: argparse.Namespace) -> int:
    """Write the page.

    Returns 0 if all files were read, 1 if some were left out, 2 if there is nothing to tell.
    """
    read: list[logs.Log] = []
    gc.disable()  # what is read stays: looking through it for garbage takes a third of the time
    try:
        for path in options.files:
            try:
                read += logs.read([path])
            except OSError as error:
                print(f"left out: {path}: {error.strerror or error}", file=sys.stderr)
            except logs.UnknownLog as error:
                print(f"left out: {error}", file=sys.stderr)
        return _write(read, options) or int(len(read) < len(options.files))
    finally:
        gc.enable()


def _write(read: list[logs.Log], options: argparse.Namespace) -> int:
    """Write the page of what was read; return 0 unless there is nothing to tell."""
    if not any(log.records or log.statements or log.failures[1:] for log in read):
        for problem in [problem for log in read for problem in log.problems][:20]:
            print(problem, file=sys.stderr)
        if read:
            print("report: no measurement could be read", file=sys.stderr)
        return 2
    given = report.Cards(options.wire * 1e9) if options.wire else None
    cards = given or report.Cards.inferred(record for log in read for record in log.records)
    page = Page("What was measured")
    for log in report.together(read):
        report.add(page, log, cards=cards)
        files = log.paths[0].name if len(log.paths) == 1 else f"{len(log.paths)} files"
        problems = f"{len(log.problems)} problems" if log.problems else "no problems"
        print(f"{files}: {log.tool}, {len(log.records)} records, {problems}")
    options.out.write_text(str(page), encoding="utf-8")
    print(f"{sum(len(log.records) for log in read)} records of {len(read)} files: {options.out}")
    return 0
