"""`python -m course report FILES...`: one page of what nccl-tests measured; it stands alone."""

import argparse
import sys
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="+", type=Path, help="logs of nccl-tests")
    carries = "what one network card carries, to hold logs of several hosts against (if not given: "
    carries += "the most that a run with one GPU per host reached)"
    parser.add_argument("--wire", type=float, metavar="GB/S", help=carries)
    numbered = "number the hosts, for a page that others may see"
    parser.add_argument("--anonymous", action="store_true", help=numbered)
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="page to write")
    parser.epilog = "Exits with 0 if all files were read, 1 if some were left out, 2 if none was."


def main(options: argparse.Namespace) -> int:
    """Write the page; return 0 if all files were read, 1 if some were not, 2 if none could be."""
    from course.logs import logs, report
    from course.logs.page import Page

    read = []
    for path in options.files:
        try:
            read.append(logs.read(path))
        except OSError as error:
            print(f"left out: {path}: {error.strerror or error}", file=sys.stderr)
        except logs.UnknownLog as error:
            print(f"left out: {error}", file=sys.stderr)
    named = logs.together(read)
    log = logs.anonymous(named) if options.anonymous else named
    if not log.records and not log.failures[1:]:
        for line in [*log.problems[:20], "report: no measurement could be read"]:
            print(line, file=sys.stderr)
        return 2
    page = Page("What was measured")
    report.add(page, log, card=options.wire * 1e9 if options.wire else None)
    options.out.write_text(str(page), encoding="utf-8")
    problems = f"{len(log.problems)} problems" if log.problems else "no problems"
    print(f"{len(log.records)} records of {len(read)} files, {problems}: {options.out}")
    return int(len(read) < len(options.files))
