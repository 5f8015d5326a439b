"""`python -m course check`: say what is not as it should be in notebooks and derived files."""

import argparse
from collections import Counter
from pathlib import Path

from course.catalogue import ROOT
from course.notebooks import tree


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's argument."""
    told = "print the lines of Python by folder instead"
    parser.add_argument("--sizes", action="store_true", help=told)


def main(options: argparse.Namespace) -> int:
    """Print a line for each problem; return 1 where there is one."""
    if options.sizes:
        for folder, lines in sizes(ROOT).items():
            print(f"{lines:7,}  {folder}")
        return 0
    objections = list(tree.problems())
    summary = f"{len(tree.kept())} notebooks checked, {len(objections)} problems"
    print(*objections, summary, sep="\n")
    return int(bool(objections))


def sizes(root: Path) -> dict[str, int]:
    """Count lines of Python that are not blank: folder -> those of its files and its folders'."""
    found: Counter[str] = Counter()
    for top in ("course", "labkit", "tests", "tools"):
        for path in (root / top).rglob("*.py"):
            lines = sum(map(bool, map(str.strip, path.read_text(encoding="utf-8").splitlines())))
            found.update({f.as_posix(): lines for f in path.relative_to(root).parents[:-1]})
    return dict(sorted(found.items()))
