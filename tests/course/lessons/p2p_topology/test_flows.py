"""The puzzle's server, and what moving bytes over it should take."""

import itertools
from collections import Counter

import pytest

from course.lessons.p2p_topology import flows, pictures
from course.lessons.p2p_topology.topology import PUZZLE, nvlinks
from course.published import load
from labkit.show import alt_text
from tests.course.lessons.cells import Cells

MB = 1_000_000
NV2, SYS = PUZZLE.bandwidth(0, 4), PUZZLE.bandwidth(0, 2)


@pytest.mark.parametrize(("src", "dst"), [(0, 1), (0, 2), (7, 3)])
def test_the_maximum_flow_fits_the_links_and_fills_all_that_leave_a_gpu(src, dst):
    paths = flows.maximum_flow(PUZZLE, src, dst)
    load = Counter()
    for way in paths:
        assert (way.gpus[0], way.gpus[-1]) == (src, dst)
        load.update(dict.fromkeys(itertools.pairwise(way.gpus), way.rate))
    assert all(rate <= PUZZLE.bandwidth(*hop) * 1.000001 for hop, rate in load.items())
    assert sum(way.rate for way in paths) == pytest.approx(12 * PUZZLE.rates["NV1"])


def test_ways_share_what_they_both_cross():
    def of(*ways, **options):
        return flows.ways_time(PUZZLE.bandwidth, ways, nbytes=8e9, chunk=1e-3, **options)

    assert of([0, 5, 2]) == pytest.approx(8e9 / NV2)
    assert of([0, 5, 2], [0, 7, 2]) == pytest.approx(4e9 / NV2)
    assert of([0, 5, 2], [0, 5, 2]) == pytest.approx(8e9 / NV2)  # nothing is gained
    assert of([0, 5, 2], [0, 2], shares=[NV2, SYS]) == pytest.approx(8e9 / (NV2 + SYS))


RELAYED = [
    ([MB, MB, MB], {"chunk": MB}, 3.0),  # stored and forwarded
    ([MB, MB, MB], {"chunk": 9 * MB}, 3.0),
    ([MB, MB], {"chunk": 100}, 1.0),  # small free chunks cost one transfer
    ([MB, 2 * MB], {"chunk": MB // 4, "alpha": 0.1}, 0.35 + 0.225 + 3 * 0.35),
]


@pytest.mark.parametrize(("rates", "options", "seconds"), RELAYED)
def test_a_relayed_copy_by_hand(rates, options, seconds):
    assert flows.relay_time(rates, nbytes=MB, **options) == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize("rates", [[MB, MB], [MB, 2 * MB], [3 * MB, MB]])
def test_the_best_chunk_of_the_deeper_page_is_the_lowest_point_of_the_curve(rates):
    sweep = Cells("deeper/04_deeper").sources["sweep"].splitlines()
    [line] = [line for line in sweep if line.startswith("best = ")]
    names = {"S": 10 * MB, "alpha": 1e-3, "hops": rates}
    exec(line, names)
    chunks = [round(names["best"] * factor) for factor in (1, 0.25, 0.5, 2, 4)]
    best, *others = (flows.relay_time(rates, nbytes=10 * MB, chunk=c, alpha=1e-3) for c in chunks)
    assert best < min(others)


def test_paths_are_in_the_legend_and_in_the_alternative():
    ax = pictures.graph(PUZZLE, flows.maximum_flow(PUZZLE, 0, 2))
    assert "0 -> 5 -> 2 at 46.6 GB/s" in alt_text.text_of(ax)
    assert len(ax.get_legend().get_lines()) == len(alt_text.tables_of(ax)[0].rows) == 6


def test_transfers_that_start_together():
    text = alt_text.text_of(pictures.together({"0 -> 1": 4.3, "0 -> 2": 53.3}, [0.0, 0.73]))
    assert "0 -> 2 begins at 0.73 ms and takes 53.3 ms" in text


def test_every_gpu_uses_all_its_links():
    assert {sum(map(nvlinks, row)) for row in PUZZLE.classes} == {12}


@pytest.mark.parametrize("name", ["p2p_on", "p2p_off", "both_ways"])
def test_published_matrices_are_whole_and_fit_the_links(name):
    figure = load("p2p_topology")[name]
    rows = [line.split() for line in figure.quotation.splitlines()[2:]]
    assert [row[0] for row in rows] == list("01234567")
    assert [float(word) for row in rows for word in row[1:]] == list(figure.value)
    matrix = PUZZLE.with_measured(figure.value)
    if name != "p2p_off":  # a misread digit would show: one class, one rate, but for the odd entry
        for kind in ("NV4", "NV2", "SYS"):
            pairs = [(i, j) for i in range(8) for j in range(8) if PUZZLE.link(i, j) == kind]
            rates = [matrix.bandwidth(*p) for p in pairs if (name, *p) != ("p2p_on", 2, 3)]
            assert len(pairs) == (24 if kind == "SYS" else 16)
            assert max(rates) < 1.01 * min(rates)
