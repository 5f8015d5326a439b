"""The command line: `python -m labkit start | doctor | run | progress | ...`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "start": ("start", "check the machine, copy the lessons, open JupyterLab"),
    "doctor": ("doctor", "say what this machine can do for the course"),
    "run": ("run", "run experiments without a notebook"),
    "progress": ("progress", "show lessons run, exercises passed, predictions; write a hand-in"),
    "report": ("report", "make one HTML page of what this machine measured"),
    "class": ("classroom", "make one HTML page of what a class handed in"),
    "case": ("labkit.lessons.casebook.play", "play a case of the casebook in the terminal"),
    "course": ("author", "keep the course in order: notebooks, exercises, recordings, pictures"),
}
"""Name -> module, of `labkit.course` if it has no dot, and a line of help.

Each module has `configure(parser)` and `main(options) -> int`.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what a command line asks; return the exit status.

    Only the module of the command that is asked for is imported: `doctor` must be able to say that
    torch is missing.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="python -m labkit",
        description="Why is my all-reduce slow? A course that answers by running it.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about.capitalize() + ".")
        if name == asked:
            command.set_defaults(main=_configured(module, command))
    options = parser.parse_args(arguments)
    return options.main(options)


def _configured(module: str, command: argparse.ArgumentParser):
    path = module if "." in module else f"labkit.course.{module}"
    implementation = importlib.import_module(path)
    implementation.configure(command)
    return implementation.main


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, like `head`, has gone
        sys.exit(141)
