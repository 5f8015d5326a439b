"""The board of lesson 05 points at whoever is guilty, and acquits the lesson's own culprit."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest

from course.lessons.pipeline_p2p import evidence, experiment
from course.predictions.board import FELL, NOT_JUDGED, STANDS
from tests.course.lessons.pipeline_p2p.worlds import needs_worlds


@needs_worlds
@pytest.mark.parametrize("guilty", experiment.WORLDS)
def test_the_board_points_at_whoever_is_guilty(guilty):
    board = evidence.board_of(evidence.recorded(guilty))
    assert board.left == [guilty]
    assert board.state(guilty) == STANDS
    assert {board.state(other) for other in set(experiment.WORLDS) - {guilty}} == {FELL}


@needs_worlds
def test_rounds_that_disagree_decide_nothing():
    base, fast, free = evidence.recorded()
    values = copy.deepcopy(free.values)
    values["rounds"][1]["idle"] = 2 * values["rounds"][1]["idle"] + 1.0
    board = evidence.board_of([base, fast, replace(free, values=values)])
    assert board.state("d") == NOT_JUDGED and board.left == ["d"]


def idles(record, *seconds):
    rounds = [dict(one, idle=idle) for one, idle in zip(RAN, seconds, strict=True)]
    return SimpleNamespace(**record, values={"rounds": rounds}, others=1.5, tier="EMULATED")


RAN = [{"bubble": 0.67, "frame": 0.025, "forward": [0.0126, 0.0125, 0.0125]}] * 3
QUEUED = {"params": {"stages": 3, "micro_batches": 6, "leg": 0.008}}
FAST = {"params": {"stages": 3, "micro_batches": 6, "leg": 0.002}}


@pytest.mark.parametrize(
    ("fast", "free", "left"),
    [
        ((0.27, 0.26, 0.27), (0.05, 0.05, 0.06), ["d"]),
        ((0.10, 0.09, 0.12), (0.38, 0.39, 0.37), ["b"]),
        ((0.27, 0.26, 0.27), (0.38, 0.39, 0.37), []),
        ((0.10, 0.26, 0.27), (0.05, 0.05, 0.06), ["b", "d"]),
    ],
)
def test_the_board_follows_the_evidence(fast, free, left):
    queued = idles(QUEUED, 0.385, 0.384, 0.386)
    board = evidence.board_of([queued, idles(FAST, *fast), idles(QUEUED, *free)])
    assert board.left == left


def test_the_vote_and_the_board_have_the_same_letters():
    assert list(evidence.SUSPECTS) == list(experiment.WORLDS)
    asked = "".join(one.asks for one in evidence.EXPERIMENTS.values())
    assert sorted(asked) == sorted(evidence.SUSPECTS)
