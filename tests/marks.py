"""Marks for one value of `parametrize`: `[1, 2, slow(8)]`."""

from pytest import mark, param


def slow(value):
    return param(value, marks=mark.slow)


def seldom(value):
    """Give a value that a neighbour or a lesson shows as well."""
    return param(value, marks=mark.exhaustive)
