"""What the lesson calls PUBLISHED stands in its source's own words, at an address."""

import re

import pytest

from labkit.lessons.p2p_topology import published
from labkit.lessons.p2p_topology.topology import PUZZLE, nvlinks
from labkit.measure.published import Published

FIGURES = {name: value for name, value in vars(published).items() if isinstance(value, Published)}
FIGURES |= {
    f"{machine}, {way}": figure
    for machine, both in published.ELSEWHERE.items()
    for way, figure in zip(("on", "off"), both, strict=True)
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_stands_in_its_quotation(name):
    figure = FIGURES[name]
    values = figure.value if isinstance(figure.value, tuple) else (figure.value,)
    stated = {float(word) for word in re.findall(r"\d+(?:\.\d+)?", figure.quotation)}
    assert all(any(abs(value - one) < 1e-9 for one in stated) for value in values)
    assert figure.source.address.startswith("https://github.com/")
    assert figure.unit and figure.source.when


@pytest.mark.parametrize("name", ["ON", "OFF", "BOTH_ON"])
def test_matrices_are_whole_and_fit_the_links(name):
    figure = FIGURES[name]
    matrix = PUZZLE.with_measured(figure.quotation)
    assert figure.value[8] * 1e9 == matrix.bandwidth(1, 0)
    if name != "OFF":  # a misread digit would show: one class, one rate, but for the odd entry
        for kind in ("NV4", "NV2", "SYS"):
            pairs = [(i, j) for i in range(8) for j in range(8) if PUZZLE.link(i, j) == kind]
            rates = [matrix.bandwidth(*pair) for pair in pairs if (name, *pair) != ("ON", 2, 3)]
            assert len(pairs) == (24 if kind == "SYS" else 16), nvlinks(kind)
            assert max(rates) < 1.01 * min(rates)
