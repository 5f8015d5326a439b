import itertools

import pytest

from course.lessons.eighty_gpus import experiment, logs, pictures, programs
from labkit.measure import records
from labkit.show import alt_text

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("servers", "cards"), [(3, 2), (2, 4), (5, 3)])
def test_each_ring_leaves_every_server_by_its_own_card(servers, cards):
    for ring in range(cards):
        order = programs.ring_order(ring, servers=servers, cards=cards)
        assert sorted(order) == list(range(servers * cards))
        arrows = itertools.pairwise([*order, order[0]])
        leaving = [src for src, dst in arrows if src // cards != dst // cards]
        assert [src % cards for src in leaving] == [ring] * servers


def test_pictures_have_words():
    tests = {"eight GPUs": [t for t in logs.seventeen_hosts() if t.gpus_per_host == 8 and t.busbw]}
    recorded = records.load(experiment.RECORDING)
    for ax in (
        pictures.busbw_by_gpus(["all_reduce", "alltoall"]),
        pictures.errors({"a": ([1e6, 2e6], [0.9, 1.1])}, title="the model on trial"),
        pictures.kinds({**tests, "none": []}, title="tests"),
        pictures.draw(recorded).axes[0],
        pictures.pairs(range(1, 18), collective="alltoall", gpus_per_host=8),
    ):
        assert len(alt_text.text_of(ax)) > 40
    assert "67 pairs below half of the best, 5 failed" in alt_text.text_of(ax)
