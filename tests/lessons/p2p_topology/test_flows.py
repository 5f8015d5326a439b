import itertools

import networkx as nx
import pytest

from labkit.lessons.p2p_topology import flows
from labkit.lessons.p2p_topology.presets import DGX1, NVSWITCH, PCIE_TREE, PRESETS, PUZZLE, RTX3090

NV2 = PUZZLE.bandwidth(0, 4)
SYS = PUZZLE.bandwidth(0, 2)


def total(paths):
    return sum(way.rate for way in paths)


def test_the_model_gives_the_published_durations():
    published = {1: 4.3e-3, 2: 53.3e-3, 4: 8.5e-3}
    for dst, seconds in published.items():
        assert flows.direct_time(PUZZLE, 0, dst, nbytes=400_000_000) == pytest.approx(
            seconds, rel=0.1
        )


def test_the_shared_neighbours_are_the_best_relays():
    ways = flows.relays(PUZZLE, 0, 2)
    assert {ways[0].gpus, ways[1].gpus} == {(0, 5, 2), (0, 7, 2)}
    assert ways[0].rate == ways[1].rate == NV2
    assert ways[2].rate == SYS
    assert flows.best_relay(PUZZLE, 0, 2).rate / SYS == pytest.approx(6.2, abs=0.1)


def test_a_relay_needs_a_third_gpu():
    from labkit.lessons.p2p_topology.topology import Topology

    pair = Topology.parse("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X")
    with pytest.raises(ValueError, match="third GPU"):
        flows.best_relay(pair, 0, 1)


def test_the_maximum_flow_uses_all_twelve_links():
    paths = flows.maximum_flow(PUZZLE, 0, 2, nvlink_only=True)
    assert total(paths) == pytest.approx(12 * PUZZLE.rates.nvlink, rel=1e-6)
    assert [len(way.hops) for way in paths] == [2, 2, 3, 3, 3, 3]


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
        graph = topology.graph(nvlink_only=True)
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
