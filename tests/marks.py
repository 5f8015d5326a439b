"""Marks for one value of `parametrize`: `[1, 2, slow(8)]`; and what a test needs of its Python."""

import sys
from pathlib import Path

from pytest import mark, param


def slow(value):
    return param(value, marks=mark.slow)


def seldom(*values):
    """Give values, one for each name, that a neighbour or a lesson shows as well."""
    return param(*values, marks=mark.exhaustive)


def is_closed_to_others():
    """Whether other accounts cannot start this Python: a folder on the way to it is its owner's."""
    paths = (Path(sys.executable), Path(sys.executable).resolve())
    return any(not folder.stat().st_mode & 1 for path in paths for folder in path.parents)
