"""`python -m course edition`: run lessons that have changed; build the course as a web site."""

import argparse
import sys
from pathlib import Path

from course.notebooks import edition


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    site = Path("build/edition")
    parser.add_argument("--out", type=Path, default=site, help=f"folder to write ({site})")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--reuse",
        metavar="FOLDER",
        type=Path,
        help="take lessons as they ran on a calm machine (FOLDER, an OUT-runs from there) where "
        "their cells are the same; without it, as they ran here last (OUT-runs) where cells and "
        "code are the same",
    )
    which.add_argument("--anew", action="store_true", help="run all lessons, changed or not")


def main(options: argparse.Namespace) -> int:
    """Build the site, print where it lies; return 1 where it cannot be built."""
    try:
        front = edition.build(options.out, calm=options.reuse, anew=options.anew)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{front}\nthe same to hand on, unpacked it opens without a server: {options.out}.zip")
    return 0
