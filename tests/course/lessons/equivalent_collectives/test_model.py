"""The ring in rounds, the published table, and what it may have moved."""

import re

import pytest

from course.lessons.equivalent_collectives import model, pictures
from labkit.show import plots


def test_the_table_has_twenty_steps_whose_sums_are_the_published_ones():
    totals = {}
    for step in model.steps():
        key = step.way, step.algorithm, step.nbytes
        totals[key] = totals.get(key, 0) + step.seconds
    assert len(model.steps()) == 20
    for way in model.ROWS:
        row = model.FIGURES[way]
        printed = [float(x) for x in re.findall(r"\((\d+\.\d)\)", row.quotation)] or row.value
        assert [round(totals[way, *column] * 1e3, 1) for column in model.COLUMNS] == list(printed)


def test_a_ratio_does_not_say_who_moved_what():
    pairs = [(1 / 16, 1), (1 / 8, 2), (1 / 4, 4), (0.36, 5.76)]
    judged = [model.judged(model.rates(*pair)) for pair in pairs]
    assert {above for above, _ in judged} == {0}
    assert len({round(worst, 6) for _, worst in judged}) == 1
    assert model.judged(model.rates(0.37, 5.92))[0] > 0  # a third of the label, and no more
    assert model.judged(model.rates()) == (5, pytest.approx(30.1, abs=0.1))
    assert "0 of 20 are above" in plots.alt_text.text_of(pictures.on_trial(1 / 16, 1))


def test_pictures_have_words():
    assert "105.7" in plots.alt_text.text_of(pictures.puzzle())
    assert len(model.claims().rows) == 6
