"""`python -m labkit progress`: lessons run, exercises passed, predictions made; a hand-in."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit.course import handin, ledger_file, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--hand-in", type=Path, metavar="FILE", help="write a small JSON file for your instructor"
    )
    parser.add_argument("--name", default="", help="a name to hand in under (none if not given)")


def main(options: argparse.Namespace) -> int:
    """Print the learner's progress, and write the hand-in if it is asked for; return 0."""
    for line in progress.told(progress.here()):
        print(line)
    print(f"\nkept in {ledger_file.location()}")
    if options.hand_in:
        print(f"to hand in: {handin.save(handin.here(options.name), options.hand_in)}")
    return 0
