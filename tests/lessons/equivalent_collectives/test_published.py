"""The figures of others: what we stamp PUBLISHED stands in the words that we quote."""

import re

import pytest

from labkit.lessons.equivalent_collectives import published
from labkit.measure.published import Published

FIGURES = [
    (name, figure)
    for name, value in vars(published).items()
    for figure in (value.values() if isinstance(value, dict) else [value])
    if isinstance(figure, Published)
]


@pytest.mark.parametrize("figure", [figure for _, figure in FIGURES], ids=[n for n, _ in FIGURES])
def test_each_value_stands_in_the_quotation(figure):
    values = figure.value if isinstance(figure.value, tuple) else (figure.value,)
    words = {float(word) for word in re.findall(r"\d*\.?\d+", figure.quotation)}
    assert {float(value) for value in values} <= words
    assert figure.source.address.startswith("https://github.com/")
    commit = re.search(r"/blob/([0-9a-f]{7})/", figure.source.address)[1]
    assert f"commit {commit}" in figure.source.when


def test_the_table_has_twenty_steps_whose_sums_are_the_published_ones():
    totals = {}
    for step in published.steps():
        key = step.way, step.algorithm, step.nbytes
        totals[key] = totals.get(key, 0) + step.seconds
    assert len(published.steps()) == 20
    for way, row in published.ROWS.items():
        printed = [float(x) for x in re.findall(r"\((\d+\.\d)\)", row.quotation)] or row.value
        found = [round(totals[way, *column] * 1e3, 1) for column in published.COLUMNS]
        assert found == list(printed)
    assert "105.7 + 106.1" in str(published.table())


def test_protocols_say_what_they_trade():
    rows = {row[0]: row[2:4] for row in published.protocols().rows}
    assert rows == {"LL": ["50%", 6.6], "LL128": ["92%", 14.0], "Simple": ["100%", 8.4]}
