"""`python -m labkit progress`: lessons run, exercises passed, predictions made."""

from __future__ import annotations

import argparse

from labkit.course import ledger_file, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: none."""


def main(options: argparse.Namespace) -> int:
    """Print the learner's progress; return 0."""
    for line in progress.told(progress.here()):
        print(line)
    print(f"\nkept in {ledger_file.location()}")
    return 0
