"""`python -m course sync`: bring notebooks into canonical form, derive exercises and badges."""

import argparse
from pathlib import Path

from course.catalogue import ROOT
from course.notebooks import files, tree


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's argument."""
    purpose = "run these solutions and keep what their checks print, for nbval; without a name, "
    purpose += "those that keep nothing yet"
    parser.add_argument("--outputs", nargs="*", type=Path, metavar="NOTEBOOK", help=purpose)


def main(options: argparse.Namespace) -> int:
    """Write what is derived, say what changed; return 1 where a notebook is broken."""
    failed = 0
    if options.outputs is not None:
        for path in options.outputs or tree.without_outputs():
            print(f"running {path.name}", flush=True)
            try:
                files.write(tree.with_outputs(path), path)
            except RuntimeError as error:  # the others are run all the same
                print(f"{error}\n{path.name} stays as it was")
                failed = 1
    try:
        for path in tree.sync():
            print(f"{'written' if path.exists() else 'removed'}: {path.relative_to(ROOT)}")
    except ValueError as error:
        print(error)
        failed = 1
    return failed
