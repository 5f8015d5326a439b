"""The command line: `python -m course start | doctor | run | progress | ...`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from course import catalogue

COMMANDS = {
    "start": "check the machine, copy the lessons, open JupyterLab",
    "doctor": "say what this machine can do for the course",
    "run": "run experiments without a notebook",
    "gpus": "measure each thread's question on your GPUs, on one page",
    "progress": "show lessons run, exercises passed, predictions; write a hand-in",
    "case": "play a case of the casebook in the terminal",
    "report": "make one HTML page of nccl-tests' logs",
    "class": "make one HTML page of what a class handed in",
    "sync": "bring notebooks into canonical form, derive exercises and badges",
    "pictures": "draw the recorded runs, for docs/pictures.md",
    "record": "run experiments on a calm machine, keep their records in the lessons",
    "edition": "run the lessons and build the course as a web site",
    "check": "say what is not as it should be in notebooks and derived files",
}
"""Name -> a line of help.

Each is a module of `course.commands`, which has `configure(parser)` and `main(options) -> int`.
"""
FROM_A_CLONE = ("start", "sync", "pictures", "record", "edition", "check")
"""Commands that read or write what only a clone of the repository has."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what a command line asks; return the exit status.

    Only the module of the command that is asked for is imported: `doctor` must be able to say that
    torch is missing.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="python -m course",
        description="Why is my all-reduce slow? A course that answers by running it.",
        epilog=f"{', '.join(FROM_A_CLONE)} need a clone of the course's repository. Without one, "
        f"the others need: {catalogue.LESSONS_ALONE}",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    if chosen in FROM_A_CLONE and (problem := catalogue.without_clone()):
        print(f"course {chosen}: {problem}", file=sys.stderr)
        return 1
    try:
        for name, purpose in COMMANDS.items():
            description = f"{purpose[:1].upper()}{purpose[1:]}."
            command = commands.add_parser(name, help=purpose, description=description)
            if name == chosen:
                module = "classroom" if name == "class" else name  # `class` is a word of Python's
                implementation = importlib.import_module(f"course.commands.{module}")
                implementation.configure(command)
                command.set_defaults(main=implementation.main)
        options = parser.parse_args(arguments)
        if options.command is None:
            parser.print_help()
            return 0
        return options.main(options)
    except ModuleNotFoundError as error:
        remedy = catalogue.LESSONS_ALONE if catalogue.without_clone() else catalogue.EVERYTHING
        print(f"The course needs {error.name}, which is not installed: {remedy}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None:  # no file that somebody named
            raise
        print(f"course {chosen}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, EOFError):  # Ctrl-C, Ctrl-D
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, like `head`, has gone
        sys.exit(141)
