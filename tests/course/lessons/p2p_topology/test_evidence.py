"""Lesson 04's board: on the authors' figures, and in worlds in which another suspect is guilty."""

import pytest

from course import catalogue
from course.lessons.p2p_topology import evidence
from course.lessons.p2p_topology.topology import PUZZLE
from course.published import load

RECORDED = {r.case: r for r in catalogue.experiment("p2p-topology").recorded()}


def test_on_the_authors_figures_the_way_is_left():
    figures = load("p2p_topology")
    matrix = PUZZLE.with_measured(figures["p2p_on"].value).measured
    durations = dict(zip((1, 2, 4), figures["durations"].value, strict=True))
    board = evidence.board_of(evidence.published(matrix, durations), exact=True)
    assert board.left == ["b"]
    assert {letter: board.state(letter) for letter in "abcd"} == {
        "a": "fell", "b": "stands", "c": "fell", "d": "fell",
    }  # fmt: skip


@pytest.mark.parametrize("guilty", "abcd")
def test_the_board_points_at_whoever_is_guilty(guilty):
    board = evidence.recorded(guilty)
    assert board.left == [guilty]
    assert board.state(guilty) == "stands"


def test_a_bad_slot_is_seen_beside_good_nvlinks():
    """Only copies over PCIe into GPU 2 are slow; its NVLinks are as good as any."""
    figures = load("p2p_topology")
    matrix = [list(row) for row in PUZZLE.with_measured(figures["p2p_on"].value).measured]
    for src in range(PUZZLE.gpus):
        if src != 2 and PUZZLE.link(src, 2) == "SYS":
            matrix[src][2] /= 3
    durations = dict(zip((1, 2, 4), figures["durations"].value, strict=True))
    board = evidence.board_of(evidence.published(matrix, durations), exact=True)
    assert board.state("c") == "stands"


def test_rounds_that_disagree_judge_nobody():
    figures = load("p2p_topology")
    matrix = PUZZLE.with_measured(figures["p2p_on"].value).measured
    durations = dict(zip((1, 2, 4), figures["durations"].value, strict=True))
    [calm] = evidence.published(matrix, durations)
    longer = {dst: 3 * seconds for dst, seconds in calm.together.items()}
    queued = evidence.Copies(calm.alone, longer, calm.nbytes)
    board = evidence.board_of([calm, calm, queued], others=0.0)
    assert board.state("a") == board.state("b") == "not judged"
    assert evidence.board_of([queued] * 3, others=0.0).left == ["a"]


def test_nothing_of_the_puzzle_is_fast_and_far_alike_by_chance():
    """What the explanation says: every SYS pair joins two nodes, within a node all have NVLinks."""
    everyone = [(a, b) for a in range(8) for b in range(8) if a != b]
    near = [pair for pair in everyone if PUZZLE.numa[pair[0]] == PUZZLE.numa[pair[1]]]
    assert {PUZZLE.link(*pair) for pair in near} == {"NV4"}
    fast = [p for p in everyone if p not in near and PUZZLE.link(*p) != "SYS"]
    assert len(fast) == 24
