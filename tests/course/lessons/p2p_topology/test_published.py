"""The published matrices are whole."""

import pytest

from course.lessons.p2p_topology import published
from course.lessons.p2p_topology.topology import PUZZLE, nvlinks


@pytest.mark.parametrize("name", ["ON", "OFF", "BOTH_ON"])
def test_matrices_are_whole_and_fit_the_links(name):
    figure = getattr(published, name)
    matrix = PUZZLE.with_measured(figure.quotation)
    assert figure.value[8] * 1e9 == matrix.bandwidth(1, 0)
    if name != "OFF":  # a misread digit would show: one class, one rate, but for the odd entry
        for kind in ("NV4", "NV2", "SYS"):
            pairs = [(i, j) for i in range(8) for j in range(8) if PUZZLE.link(i, j) == kind]
            rates = [matrix.bandwidth(*pair) for pair in pairs if (name, *pair) != ("ON", 2, 3)]
            assert len(pairs) == (24 if kind == "SYS" else 16), nvlinks(kind)
            assert max(rates) < 1.01 * min(rates)
