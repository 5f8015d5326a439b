"""The published table and NCCL's constants, as the lesson lays them out."""

import re

from course.lessons.equivalent_collectives import published


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
