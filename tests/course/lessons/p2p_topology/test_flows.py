"""What moving bytes over a topology should take."""

import itertools
from collections import Counter

import networkx as nx
import pytest

from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.flows import relay_time
from course.lessons.p2p_topology.topology import PUZZLE, nvlinks
from tests.course.lessons.cells import Cells

MB = 1_000_000
NV2, SYS = PUZZLE.bandwidth(0, 4), PUZZLE.bandwidth(0, 2)


@pytest.mark.parametrize(("src", "dst"), [(0, 1), (0, 2), (7, 3)])
def test_the_maximum_flow_fits_the_links_and_is_as_large_as_another_algorithm_says(src, dst):
    paths = flows.maximum_flow(PUZZLE, src, dst)
    load = Counter()
    for way in paths:
        assert (way.gpus[0], way.gpus[-1]) == (src, dst)
        load.update(dict.fromkeys(itertools.pairwise(way.gpus), way.rate))
    assert all(rate <= PUZZLE.bandwidth(*hop) * 1.000001 for hop, rate in load.items())
    network = nx.DiGraph()
    for a, b in itertools.product(range(8), range(8)):
        if nvlinks(PUZZLE.link(a, b)):
            network.add_edge(a, b, capacity=PUZZLE.bandwidth(a, b))
    most = nx.maximum_flow_value(network, src, dst, flow_func=nx.algorithms.flow.dinitz)
    assert sum(way.rate for way in paths) == pytest.approx(most, rel=1e-6)
    assert most == pytest.approx(12 * PUZZLE.rates["NV1"])


def test_ways_share_what_they_both_cross():
    def of(*ways, **options):
        return flows.ways_time(PUZZLE.bandwidth, ways, nbytes=8e9, chunk=1e-3, **options)

    assert of([0, 5, 2]) == pytest.approx(8e9 / NV2)
    assert of([0, 5, 2], [0, 7, 2]) == pytest.approx(4e9 / NV2)
    assert of([0, 5, 2], [0, 5, 2]) == pytest.approx(8e9 / NV2)  # nothing is gained
    assert of([0, 5, 2], [0, 2], shares=[NV2, SYS]) == pytest.approx(8e9 / (NV2 + SYS))


@pytest.mark.parametrize(
    ("rates", "options", "seconds"),
    [
        ([MB, MB, MB], {"chunk": MB}, 3.0),  # stored and forwarded
        ([MB, MB, MB], {"chunk": 9 * MB}, 3.0),
        ([MB, MB], {"chunk": 100}, 1.0),  # small free chunks cost one transfer
        ([MB, 2 * MB], {"chunk": MB // 4, "alpha": 0.1}, 0.35 + 0.225 + 3 * 0.35),
    ],
)
def test_a_relayed_copy_by_hand(rates, options, seconds):
    assert relay_time(rates, nbytes=MB, **options) == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize("rates", [[MB, MB], [MB, 2 * MB], [3 * MB, MB]])
def test_the_best_chunk_of_the_deeper_page_is_the_lowest_point_of_the_curve(rates):
    sweep = Cells("deeper/04_deeper").sources["sweep"].splitlines()
    [line] = [line for line in sweep if line.startswith("best = ")]
    names = {"S": 10 * MB, "alpha": 1e-3, "hops": rates}
    exec(line, names)
    chunks = [round(names["best"] * factor) for factor in (1, 0.25, 0.5, 2, 4)]
    best, *others = (relay_time(rates, nbytes=10 * MB, chunk=c, alpha=1e-3) for c in chunks)
    assert best < min(others)
