"""The ring in rounds, the published table, and what a wire allows."""

import re

import pytest

from course.lessons.equivalent_collectives import checks, model, pictures
from course.lessons.equivalent_collectives.model import Court
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


@pytest.mark.parametrize(
    "claim, hosts, network, possible",
    [
        ("480", 1, "8 cards a host", False),
        ("480", 1, "8 cards, and the switch adds", True),
        ("480", 2, "1 card a host", False),
        ("367", 1, "1 card a host", True),
        ("852", 1, "8 cards, and the switch adds", False),
        ("852", 2, "8 cards, and the switch adds", False),
        ("53", 2, "1 card a host", True),
    ],
)
def test_the_court(claim, hosts, network, possible):
    name = next(name for name in model.CLAIMS if name.startswith(claim))
    text = plots.alt_text.text_of(pictures.court(name, hosts, network))
    assert ("impossible" not in text) == possible


def test_the_courts_bounds_are_the_fields():
    assert Court(8, 1, 8, adds=False).gpu == 450
    assert Court(8, 1, 8, adds=True).gpu == pytest.approx(450 * 1.75 / 1.125)
    # nccl-tests issue 196: on two hosts a tree's busbw exceeds the card's speed
    assert Court(16, 2, 1, adds=False).host == pytest.approx(50 * 1.875)
    everywhere = [name for name in model.CLAIMS if "852" in name]
    for hosts in (1, 2, 4):
        for cards, adds in pictures.NETWORKS.values():
            busbw, ranks = model.CLAIMS[everywhere[0]]
            assert "impossible" in Court(ranks, hosts, cards, adds).verdict(busbw)


def test_pictures_have_words():
    assert "105.7" in plots.alt_text.text_of(pictures.puzzle())
    assert len(checks.claims().rows) == 6
