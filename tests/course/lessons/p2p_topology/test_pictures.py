"""Lesson 04's pictures: what they show is in their words, and their axes keep still."""

import pytest

from course.lessons.p2p_topology import experiment, flows, pictures
from course.lessons.p2p_topology.topology import PUZZLE
from labkit.show import alt_text


def test_link_classes_are_not_told_by_colour_alone():
    lines = pictures.graph(PUZZLE).get_legend().get_lines()
    looks = {(str(line.get_linestyle()), line.get_linewidth()) for line in lines}
    assert len(looks) == len(lines) == 3


def test_paths_are_in_the_legend_and_in_the_alternative():
    ax = pictures.graph(PUZZLE, paths=flows.maximum_flow(PUZZLE, 0, 2))
    assert "0 -> 5 -> 2 at 46.6 GB/s" in alt_text.text_of(ax)
    assert len(ax.get_legend().get_lines()) == len(alt_text.tables_of(ax)[0].rows) == 6


@pytest.mark.parametrize(
    ("relays", "chunk", "ways"),
    [
        ([None, None], 8_000_000, [[0, 2]]),
        ([5, None], 8_000_000, [[0, 5, 2]]),
        ([5, 7], 125_000, [[0, 5, 2], [0, 7, 2]]),
        ([5, 5], 125_000, [[0, 5, 2]]),
    ],
)
def test_the_router_says_what_the_model_says(relays, chunk, ways):
    seconds = flows.ways_time(experiment.rate, ways, nbytes=8e6, chunk=chunk, alpha=pictures.ALPHA)
    text = alt_text.text_of(pictures.router(relays, chunk))
    assert f"the last byte arrives after {1e3 * seconds:.0f} ms" in text


def test_the_router_keeps_its_time_axis():
    chosen = [None, None], [5, 7], [3, 6]
    assert len({pictures.router(relays, 8_000_000).axes[1].get_xlim() for relays in chosen}) == 1


def test_transfers_that_start_together():
    copies = {"0 -> 1": 4.3, "0 -> 2": 53.3}
    text = alt_text.text_of(pictures.together(copies, [0.0, 0.73]))
    assert "0 -> 2 begins at 0.73 ms and takes 53.3 ms" in text
    assert "0 -> 2 begins at 0 ms" in alt_text.text_of(pictures.together(copies))
