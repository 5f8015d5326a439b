import itertools
import statistics

import pytest

from course.lessons.eighty_gpus import experiment, model, pictures, programs, published
from course.runs import by_case
from labkit.measure.records import Tier
from labkit.show import alt_text
from tests.fabric.test_fabric import needs_hosts

ONE, EACH, LEVELS, ALL = experiment.CASES


@pytest.mark.timed
@needs_hosts
def test_cards_multiply_what_can_be_summed_and_nothing_else():
    found = {1: by_case(experiment.measure([ALL], cards=1, iters=1))}
    found[2] = by_case(experiment.measure(cards=2, iters=2))
    gain = experiment.busbw(found[2][EACH]) / experiment.busbw(found[2][ONE])
    assert gain == pytest.approx(2, rel=0.1)
    for case in (ONE, EACH, LEVELS):
        record = found[2][case]
        assert min(record.seconds) == pytest.approx(record.predicted, rel=0.1)
    assert max(found[2][ONE].values["carried"]) == pytest.approx(10 / 6, rel=0.05)
    assert max(found[2][EACH].values["carried"]) == pytest.approx(5 / 6, rel=0.05)
    assert max(found[2][LEVELS].values["carried"]) == pytest.approx(4 / 6, rel=0.05)
    for cards in (1, 2):  # (n - g)/n is the same for three servers
        assert max(found[cards][ALL].values["carried"]) == pytest.approx(4 / 6, rel=0.05)
    assert {record.tier for record in found[2].values()} == {Tier.EMULATED}


@pytest.mark.parametrize(("servers", "cards"), [(3, 2), (2, 4), (5, 3)])
def test_each_ring_leaves_every_server_by_its_own_card(servers, cards):
    for ring in range(cards):
        order = programs.ring_order(ring, servers=servers, cards=cards, rings=cards)
        assert sorted(order) == list(range(servers * cards))
        arrows = itertools.pairwise([*order, order[0]])
        leaving = [src for src, dst in arrows if src // cards != dst // cards]
        assert [src % cards for src in leaving] == [ring] * servers


def test_the_tuner_computes_what_nccl_writes():
    # by hand, from tuning.cc: 1 host x 8, ring, Simple: 8.4 + 14 x 3.4 µs, and S / (360 x 8/14)
    one_host = model.Tuner(1, 8, 360.0, 16)
    by_hand = 8.4 + 14 * 3.4 + 2**30 / (1000 * 360 * 8 / 14)
    assert one_host.microseconds(2**30, "ring", "Simple") == pytest.approx(by_hand)
    # 10 hosts x 8, tree, LL128: 14 + 2 (7 x 1.25 + 3 x 8.5); 391.2 x .92 x 120/128 / 2, x 0.9
    ten = model.Tuner(10, 8, 391.2, 16)
    bandwidth = 391.2 * 0.92 * 120 / 128 / 2 * 0.9
    by_hand = 14 + 2 * (7 * 1.25 + 3 * 8.5) + 2**25 / (1000 * bandwidth)
    assert ten.microseconds(2**25, "tree", "LL128") == pytest.approx(by_hand)
    # the plateau of a ring is one of networks: 1.4 x the latency of 10 hosts x 1
    latency = 1.4 * (8.4 + 18 * 14.0)
    single = model.Tuner(10, 1, 48.9, 2).microseconds(2**30, "ring", "Simple")
    assert single == pytest.approx(latency + 2**30 / (1000 * 48.9 * 10 / 18))


def test_the_tuner_ranks_rings_above_trees_for_large_tensors_on_one_card():
    tuner = model.Tuner(10, 1, 48.9, 2)
    assert tuner.best(2**30) == ("ring", "Simple")
    assert tuner.best(2**10)[0] == "tree"


def test_the_carried_figures_are_the_sources():
    rows = published.h100()
    (one,) = published.pick(rows, collective="all_reduce", hosts=10, gpus_per_host=1, bytes=2**34)
    assert one["busbw_gbs"] == published.ONE_CARD.value
    assert len(published.polaris()) > 500
    pairs = published.pick(
        published.sick_cluster(), collective="sendrecv", gpus_per_host=4, bytes=2**30
    )
    usual = statistics.median(row["busbw_gbs"] for row in pairs)
    slow = [row for row in pairs if row["busbw_gbs"] < 0.8 * usual]
    assert sum(3 in (row["first"], row["second"]) for row in slow) == 11
    tests = published.sick_cluster_gpus()
    assert len(tests) == 3 * 131 and {test["first_to"] for test in tests[-131:]} == {"df"}


def test_pictures_have_words():
    rows = published.pick(
        published.sick_cluster(), collective="sendrecv", gpus_per_host=4, bytes=2**30
    )
    for ax in (
        pictures.puzzle(),
        pictures.errors({"a": ([1e6, 2e6], [0.9, 1.1])}, title="the model on trial"),
        pictures.scale({2: 30.0, 8: 80.0}, {"ring": {2: 1.0, 8: 2.0}}),
        pictures.sick(rows, title="sendrecv"),
    ):
        assert len(alt_text.text_of(ax)) > 40
