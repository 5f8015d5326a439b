"""`python -m course edition`: run the lessons and build the course as a web site."""

import argparse
import sys
from pathlib import Path

from course.notebooks import edition


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    site = Path("build/edition")
    parser.add_argument("--out", type=Path, default=site, help=f"folder to write ({site})")
    purpose = (
        "take lessons as they ran last (OUT-runs), or as they ran on a calm machine (FOLDER, an "
    )
    purpose += "OUT-runs from there), where their cells are the same; run only the others"
    given = {"nargs": "?", "type": Path, "const": True, "default": False}
    parser.add_argument("--reuse", metavar="FOLDER", help=purpose, **given)


def main(options: argparse.Namespace) -> int:
    """Build the site, print where it lies; return 1 where it cannot be built."""
    try:
        front = edition.build(options.out, reuse=options.reuse)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{front}\nthe same to hand on, unpacked it opens without a server: {options.out}.zip")
    return 0
