"""Lesson 04's board, on the authors' figures and on such as would lead to another verdict."""

import pytest

from course.lessons.p2p_topology import evidence
from course.lessons.p2p_topology.topology import PUZZLE
from course.published import load

DURATIONS = dict(zip((1, 2, 4), load("p2p_topology")["durations"].value, strict=True))


def authors(changed=lambda src, dst: 1, times=1):
    """The authors' figures, each rate times `changed`, each duration times `times`."""
    matrix = PUZZLE.with_measured(load("p2p_topology")["p2p_on"].value).measured
    rates = [[rate * changed(a, b) for b, rate in enumerate(row)] for a, row in enumerate(matrix)]
    return evidence.published(rates, {dst: ms * times for dst, ms in DURATIONS.items()})


def board_of(rounds, **how):
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, rounds, **how)
    return board


def test_a_bad_slot_is_seen_beside_good_nvlinks():
    """Only copies over PCIe into GPU 2 are slow; its NVLinks are as good as any."""
    slot = authors(lambda src, dst: 1 / 3 if dst == 2 and PUZZLE.link(src, 2) == "SYS" else 1)
    assert board_of(slot, exact=True).state("c") == "stands"


SERVERS = [
    (authors(lambda src, dst: 0.5 + (src + dst) % 3 if src < dst else 1), "fell"),
    (authors(lambda src, dst: 2 if dst == 5 else 1), "not judged"),  # of one GPU it tells no rate
    (authors(times=1.2), "not judged"),
    (authors(times=2), "fell"),
]


@pytest.mark.parametrize(("server", "state"), SERVERS, ids=range(4))
def test_the_way_falls_by_its_rates_and_by_its_durations(server, state):
    assert board_of(server, exact=True).state("b") == state


def test_rounds_that_disagree_judge_nobody():
    calm, queued = authors(), authors(times=3)
    board = board_of([*calm, *calm, *queued], others=0.0)
    assert board.state("a") == board.state("b") == "not judged"
    assert board_of(queued * 3, others=0.0).left == ["a"]
