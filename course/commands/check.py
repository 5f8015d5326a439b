"""`python -m course check`: say what is not as it should be in notebooks and derived files."""

import argparse

from course.notebooks import tree


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare no argument: it looks at everything."""


def main(options: argparse.Namespace) -> int:
    """Print a line for each problem; return 1 where there is one."""
    objections = list(tree.problems())
    summary = f"{len(tree.kept())} notebooks checked, {len(objections)} problems"
    print(*objections, summary, sep="\n")
    return int(bool(objections))
