"""The puzzle's server and what was published of it."""

import pytest

from course.lessons.p2p_topology.topology import PUZZLE, nvlinks
from course.published import load

FIGURES = load("p2p_topology")


def test_every_gpu_uses_all_its_links():
    assert {sum(map(nvlinks, row)) for row in PUZZLE.classes} == {12}


@pytest.mark.parametrize("name", ["p2p_on", "p2p_off", "both_ways"])
def test_published_matrices_are_whole_and_fit_the_links(name):
    rows = [line.split() for line in FIGURES[name].quotation.splitlines()[2:]]
    assert [row[0] for row in rows] == list("01234567")
    assert [float(figure) for row in rows for figure in row[1:]] == list(FIGURES[name].value)
    matrix = PUZZLE.with_measured(FIGURES[name].value)
    if name != "p2p_off":  # a misread digit would show: one class, one rate, but for the odd entry
        for kind in ("NV4", "NV2", "SYS"):
            pairs = [(i, j) for i in range(8) for j in range(8) if PUZZLE.link(i, j) == kind]
            rates = [matrix.bandwidth(*p) for p in pairs if (name, *p) != ("p2p_on", 2, 3)]
            assert len(pairs) == (24 if kind == "SYS" else 16)
            assert max(rates) < 1.01 * min(rates)
