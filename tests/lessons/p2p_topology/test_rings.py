import itertools

import pytest

from labkit.lessons.p2p_topology.presets import DGX1, NVSWITCH, PRESETS, PUZZLE, RTX3090
from labkit.lessons.p2p_topology.rings import Cluster, best_ring, hottest, ring_hops, ring_rate


def test_counting_order_meets_the_slow_links():
    assert ring_rate(PUZZLE, range(8)) == PUZZLE.bandwidth(0, 2)
    assert PUZZLE.link(*hottest(PUZZLE, range(8))) == "SYS"


def test_the_puzzle_has_a_ring_of_wide_links_only():
    order = best_ring(PUZZLE)
    assert {PUZZLE.link(*hop) for hop in ring_hops(PUZZLE, order)} == {"NV4"}
    assert ring_rate(PUZZLE, order) / ring_rate(PUZZLE, range(8)) == pytest.approx(12.4, abs=0.1)


@pytest.mark.parametrize("topology", [PUZZLE, DGX1, RTX3090], ids=["puzzle", "dgx1", "3090"])
def test_no_other_ring_is_faster(topology):
    best = ring_rate(topology, best_ring(topology))
    for rest in itertools.islice(itertools.permutations(range(1, 8)), 0, None, 7):
        slowest = min(topology.bandwidth(*hop) for hop in ring_hops(topology, [0, *rest]))
        assert slowest <= best * (1 + 1e-9)


def test_an_order_must_visit_everybody_once():
    with pytest.raises(ValueError, match="each of the 8 GPUs once"):
        ring_rate(PUZZLE, [0, 1, 2, 3, 4, 5, 6, 6])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_ring(name):
    assert sorted(best_ring(PRESETS[name])) == list(range(8))


def test_behind_a_switch_every_ring_is_best():
    assert ring_rate(NVSWITCH, [0, 5, 2, 7, 4, 1, 6, 3]) == ring_rate(NVSWITCH, range(8))


def test_one_host_does_not_notice_its_network_cards():
    assert Cluster(1, nics=1).ring_time(1 << 30) == Cluster(1, nics=8).ring_time(1 << 30)


def test_the_ring_by_hand():
    cluster = Cluster(2, nics=2, nic_rate=50e9, alpha_network=1e-5)
    assert cluster.hottest == "network cards"
    # 16 GPUs: 30 steps of 10 us and S/16 over 100 GB/s.
    assert cluster.ring_time(1_600_000_000) == pytest.approx(30 * (1e-5 + 1e-3))


def test_large_messages_reach_the_slowest_stage_and_no_more():
    for hosts in (2, 16, 512):
        for nics in (1, 2, 4, 8):
            cluster = Cluster(hosts, nics=nics)
            for seconds in (cluster.ring_time(1 << 40), cluster.tree_time(1 << 40)):
                busbw = cluster.busbw(seconds, 1 << 40)
                assert 0.9 * cluster.rate < busbw <= cluster.rate


def test_rings_pay_for_every_gpu_and_trees_for_the_logarithm():
    small = 1 << 20
    rings = [Cluster(hosts, nics=8).ring_time(small) for hosts in (2, 32, 512)]
    trees = [Cluster(hosts, nics=8).tree_time(small) for hosts in (2, 32, 512)]
    assert rings[2] > 100 * rings[0]
    assert trees[2] < 5 * trees[0]
