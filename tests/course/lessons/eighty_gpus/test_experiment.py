import itertools

import pytest

from course.lessons.eighty_gpus import experiment, pictures, programs
from labkit.show import alt_text

pytestmark = pytest.mark.slow

ONE, EACH, LEVELS, ALL = experiment.CASES


@pytest.mark.parametrize(("servers", "cards"), [(3, 2), (2, 4), (5, 3)])
def test_each_ring_leaves_every_server_by_its_own_card(servers, cards):
    for ring in range(cards):
        order = programs.ring_order(ring, servers=servers, cards=cards)
        assert sorted(order) == list(range(servers * cards))
        arrows = itertools.pairwise([*order, order[0]])
        leaving = [src for src, dst in arrows if src // cards != dst // cards]
        assert [src % cards for src in leaving] == [ring] * servers


def test_pictures_have_words():
    pairs = {"collective": "alltoall", "gpus_per_host": 8}
    for ax in (
        pictures.busbw_by_gpus(["all_reduce", "alltoall"]),
        pictures.rings(1),
        pictures.rings(2),
        pictures.errors({"a": ([1e6, 2e6], [0.9, 1.1])}, title="the model on trial"),
        pictures.pairs(range(1, 18), **pairs),
    ):
        assert len(alt_text.text_of(ax)) > 40
    assert "67 pairs below half of the best, 5 failed" in alt_text.text_of(ax)


@pytest.mark.parametrize(("count", "used"), [(1, [1, 3, 5]), (2, [0, 1, 2, 3, 4, 5])])
def test_the_drawing_of_rings_names_the_cards_that_they_leave_by(count, used):
    assert f"by the cards of ranks {used}" in alt_text.text_of(pictures.rings(count))
