"""Marks for one value of `parametrize`: `[1, 2, slow(8)]`."""

from pytest import mark, param


def slow(value):
    return param(value, marks=mark.slow)


def seldom(*values):
    """Give values, one for each name, that a neighbour or a lesson shows as well."""
    return param(*values, marks=mark.exhaustive)
