"""Lesson 04's pictures: what they show is in their words."""

from course.lessons.p2p_topology import flows, pictures
from course.lessons.p2p_topology.topology import PUZZLE
from labkit.show import alt_text


def test_paths_are_in_the_legend_and_in_the_alternative():
    ax = pictures.graph(PUZZLE, flows.maximum_flow(PUZZLE, 0, 2))
    assert "0 -> 5 -> 2 at 46.6 GB/s" in alt_text.text_of(ax)
    assert len(ax.get_legend().get_lines()) == len(alt_text.tables_of(ax)[0].rows) == 6


def test_transfers_that_start_together():
    text = alt_text.text_of(pictures.together({"0 -> 1": 4.3, "0 -> 2": 53.3}, [0.0, 0.73]))
    assert "0 -> 2 begins at 0.73 ms and takes 53.3 ms" in text
