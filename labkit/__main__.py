"""The command line: `python -m labkit start|doctor|run|course|progress`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse a command line, do it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m labkit", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    from labkit.course import notebooks

    notebooks.configure(commands.add_parser("course", help="keep the course's notebooks in order"))
    options = parser.parse_args(arguments)
    return notebooks.main(options)


if __name__ == "__main__":
    sys.exit(main())
