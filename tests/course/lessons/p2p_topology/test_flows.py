import itertools
from collections import Counter

import networkx as nx
import pytest

from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.flows import Cluster, Ring, best_chunk, best_ring, relay_time
from course.lessons.p2p_topology.topology import (
    DGX1,
    NVSWITCH,
    PCIE_TREE,
    PRESETS,
    PUZZLE,
    RTX3090,
    Topology,
    nvlinks,
)

MB = 1_000_000

NV2 = PUZZLE.bandwidth(0, 4)
SYS = PUZZLE.bandwidth(0, 2)


def total(paths):
    return sum(way.rate for way in paths)


def test_the_shared_neighbours_are_the_best_relays():
    ways = flows.relays(PUZZLE, 0, 2)
    assert {ways[0].gpus, ways[1].gpus} == {(0, 5, 2), (0, 7, 2)}
    assert ways[0].rate == ways[1].rate == NV2
    assert ways[2].rate == SYS
    assert ways[0].rate / SYS == pytest.approx(6.2, abs=0.1)


def test_a_relay_needs_a_third_gpu():
    pair = Topology.parse("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X")
    assert flows.relays(pair, 0, 1) == []


def test_the_maximum_flow_uses_all_twelve_links():
    paths = flows.maximum_flow(PUZZLE, 0, 2, nvlink_only=True)
    assert total(paths) == pytest.approx(12 * PUZZLE.rates.nvlink, rel=1e-6)
    assert [len(way.hops) for way in paths] == [2, 2, 3, 3, 3, 3]
    load = Counter()
    for way in paths:
        load.update(dict.fromkeys(way.hops, way.rate))
    assert all(rate <= PUZZLE.bandwidth(*hop) * 1.000001 for hop, rate in load.items())


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(("src", "dst"), [(0, 1), (0, 2), (7, 3)])
def test_paths_of_a_flow_fit_the_links_and_lead_there(name, src, dst):
    topology = PRESETS[name]
    paths = flows.maximum_flow(topology, src, dst)
    used = {}
    for way in paths:
        assert (way.gpus[0], way.gpus[-1]) == (src, dst)
        for hop in way.hops:
            for resource, rate in topology.resources(*hop).items():
                used.setdefault(resource, [rate, 0.0])[1] += way.rate
    assert all(load <= rate * (1 + 1e-6) for rate, load in used.values())
    assert total(paths) >= topology.bandwidth(src, dst) * (1 - 1e-6)


def test_the_flow_is_as_large_as_an_independent_algorithm_says():
    for topology in (PUZZLE, DGX1):
        graph = nx.DiGraph()
        for i, j in itertools.permutations(range(8), 2):
            if nvlinks(topology.link(i, j)):
                graph.add_edge(i, j, bandwidth=topology.bandwidth(i, j))
        for src, dst in itertools.permutations(range(8), 2):
            expected = nx.maximum_flow_value(
                graph, src, dst, capacity="bandwidth", flow_func=nx.algorithms.flow.dinitz
            )
            paths = flows.maximum_flow(topology, src, dst, nvlink_only=True)
            assert total(paths) == pytest.approx(expected, rel=1e-6)


def test_there_is_no_nvlink_path_where_there_are_no_nvlinks():
    assert flows.maximum_flow(PCIE_TREE, 0, 2, nvlink_only=True) == []
    assert flows.maximum_flow(RTX3090, 0, 2, nvlink_only=True) == []


def test_behind_a_switch_a_gpu_sends_no_more_than_its_links_carry():
    assert total(flows.maximum_flow(NVSWITCH, 0, 2)) == pytest.approx(NVSWITCH.bandwidth(0, 2))
    rates = flows.fair_rates(NVSWITCH, [[0, 1], [0, 2], [3, 2]])
    assert rates == pytest.approx([NVSWITCH.bandwidth(0, 1) / 2] * 3)


def test_transfers_on_private_links_do_not_meet():
    ways = [[0, 1], [0, 2], [0, 4]]
    assert flows.fair_rates(PUZZLE, ways) == [PUZZLE.bandwidth(*way) for way in ways]


def test_fair_shares_of_a_link_and_what_is_left_for_the_others():
    # 5 -> 2 is NV4 and has two users; one of them is held to NV2/2 by 0 -> 5, which it shares.
    ways = [[0, 5], [0, 5, 2], [5, 2]]
    assert flows.fair_rates(PUZZLE, ways) == pytest.approx([NV2 / 2, NV2 / 2, 1.5 * NV2])


def test_pcie_transfers_share_the_port_of_a_gpu_and_fabric_links_do_not():
    assert flows.fair_rates(PUZZLE, [[0, 2], [0, 3]]) == [SYS / 2, SYS / 2]
    assert flows.fair_rates(PUZZLE.as_fabric(), [[0, 2], [0, 3]]) == [SYS, SYS]


def test_who_stays_takes_over_what_becomes_free():
    size = int(NV2)  # one second alone
    assert flows.finish_times(PUZZLE, [[0, 5], [0, 5]], nbytes=[size, size]) == pytest.approx(
        [2, 2]
    )
    times = flows.finish_times(PUZZLE, [[0, 5], [0, 5]], nbytes=[size, 2 * size])
    assert times == pytest.approx([2, 3])


def test_one_chunk_stores_and_forwards():
    assert relay_time([MB, MB, MB], nbytes=MB, chunk=MB) == pytest.approx(3.0)
    assert relay_time([MB, MB, MB], nbytes=MB, chunk=9 * MB) == pytest.approx(3.0)


def test_by_hand():
    # 4 chunks of 0.25 MB; hops take 0.25 + 0.1 and 0.125 + 0.1: 0.35 + 0.225 + 3 * 0.35.
    assert relay_time([MB, 2 * MB], nbytes=MB, chunk=MB // 4, alpha=0.1) == pytest.approx(1.625)


def test_small_free_chunks_cost_one_transfer():
    assert relay_time([MB, MB], nbytes=MB, chunk=100) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("rates", [[MB, MB], [MB, 2 * MB], [3 * MB, MB, 2 * MB]])
def test_the_best_chunk_is_the_lowest_point_of_the_curve(rates):
    chunk = best_chunk(rates, nbytes=10 * MB, alpha=1e-3)
    best = relay_time(rates, nbytes=10 * MB, chunk=round(chunk), alpha=1e-3)
    for factor in (0.25, 0.5, 2, 4):
        other = relay_time(rates, nbytes=10 * MB, chunk=round(chunk * factor), alpha=1e-3)
        assert best < other


def test_where_there_is_no_optimum_it_says_so():
    with pytest.raises(ValueError, match="one hop"):
        best_chunk([MB], nbytes=MB, alpha=1e-3)
    with pytest.raises(ValueError, match="alpha=0"):
        best_chunk([MB, MB], nbytes=MB, alpha=0)
    with pytest.raises(ValueError, match="chunk=0"):
        relay_time([MB, MB], nbytes=MB, chunk=0)


def test_counting_order_meets_the_slow_links():
    assert Ring(PUZZLE, range(8)).rate == PUZZLE.bandwidth(0, 2)
    assert PUZZLE.link(*Ring(PUZZLE, range(8)).hottest) == "SYS"


def test_the_puzzle_has_a_ring_of_wide_links_only():
    best = best_ring(PUZZLE)
    assert {PUZZLE.link(*hop) for hop in best.hops} == {"NV4"}
    assert best.rate / Ring(PUZZLE, range(8)).rate == pytest.approx(12.4, abs=0.1)


@pytest.mark.parametrize("topology", [PUZZLE, DGX1, RTX3090], ids=["puzzle", "dgx1", "3090"])
def test_no_other_ring_is_faster(topology):
    best = best_ring(topology).rate
    for rest in itertools.islice(itertools.permutations(range(1, 8)), 0, None, 7):
        slowest = min(topology.bandwidth(*hop) for hop in Ring(topology, [0, *rest]).hops)
        assert slowest <= best * (1 + 1e-9)


def test_an_order_must_visit_everybody_once():
    with pytest.raises(ValueError, match="each of the 8 GPUs once"):
        Ring(PUZZLE, [0, 1, 2, 3, 4, 5, 6, 6])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_ring(name):
    assert sorted(best_ring(PRESETS[name]).order) == list(range(8))


def test_behind_a_switch_every_ring_is_best():
    assert Ring(NVSWITCH, [0, 5, 2, 7, 4, 1, 6, 3]).rate == Ring(NVSWITCH, range(8)).rate


def test_one_host_does_not_notice_its_network_cards():
    assert Cluster(1, nics=1).ring_time(1 << 30) == Cluster(1, nics=8).ring_time(1 << 30)


def test_the_ring_by_hand():
    cluster = Cluster(2, nics=2, nic_rate=50e9, alpha_network=1e-5)
    assert cluster.rate == 100e9 < cluster.nvlink_rate
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
