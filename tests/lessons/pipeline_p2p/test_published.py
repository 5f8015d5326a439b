"""What lesson 05 calls PUBLISHED stands in its source's own words, at an address."""

import re

import pytest

from labkit.lessons.pipeline_p2p import published
from labkit.measure.published import Published

FIGURES = {name: value for name, value in vars(published).items() if isinstance(value, Published)}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_stands_in_its_quotation(name):
    figure = FIGURES[name]
    values = figure.value if isinstance(figure.value, tuple) else (figure.value,)
    stated = {float(word) for word in re.findall(r"\d+(?:\.\d+)?", figure.quotation)}
    stated |= {float(1 << int(word)) for word in re.findall(r"\(1 << (\d+)\)", figure.quotation)}
    assert {float(value) for value in values} <= stated
    assert figure.unit


def test_the_four_ways_are_the_ones_of_the_thread():
    assert len(published.WAYS) == 4
    assert all(figure.source is published.THREAD for figure in published.WAYS.values())
