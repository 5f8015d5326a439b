"""Each lesson's board points at whoever is guilty, in its own world and in the recorded others."""

import importlib

from pytest import mark

from course.catalogue import ROOT
from course.commands.record import CALM
from course.predictions import ledger, ledger_file
from course.predictions.board import STANDS

LESSONS = {
    name: importlib.import_module(f"course.lessons.{name}.evidence").INVESTIGATION
    for name in sorted(path.parent.name for path in ROOT.glob("course/lessons/*/evidence.py"))
}
WORLDS = [(name, world) for name, asked in LESSONS.items() for world in asked.worlds]
OWN = {
    "gloo_scaling": "b",
    "coalesced_broadcast": "c",
    "p2p_topology": "b",
    "pipeline_p2p": "d",
    "equivalent_collectives": "c",
    "eighty_gpus": "c",
}
"""Lesson -> who is guilty in its own world; the thread of lesson 02 leaves several."""


@mark.parametrize(("lesson", "guilty"), OWN.items())
def test_in_the_lessons_own_world_one_is_left(lesson, guilty):
    board = LESSONS[lesson].recorded()
    assert board.left == [guilty], str(board)
    assert board.state(guilty) == STANDS
    assert "a suspect, not a proof" in board.verdict()


@mark.parametrize(("lesson", "world"), WORLDS)
def test_the_board_points_at_whoever_is_guilty_and_acquits_all_others(lesson, world):
    """Beside other programs some may not be judged; on a calm machine all others fall."""
    board = LESSONS[lesson].recorded(world)
    assert [x for x in board.suspects if board.state(x) == STANDS] == [world], str(board)
    if max(test.judged.others or 0.0 for test in board.tests.values()) <= CALM:
        assert board.left == [world], str(board)


@mark.parametrize("lesson", LESSONS)
def test_suspects_are_the_options_of_the_vote_each_asked_and_guilty_somewhere(lesson):
    investigation = LESSONS[lesson]
    options = ledger.questions()[investigation.key]["options"]
    assert list(investigation.suspects) == list(ledger_file.lettered(options))
    asked = {x for experiment in investigation.experiments.values() for x in experiment.asks}
    assert asked == set(investigation.suspects)
    if investigation.worlds:
        assert asked == {*investigation.worlds, OWN.get(lesson, "a")}
    if (ROOT / "course/lessons" / lesson / "guilty.py").exists():
        worlds = importlib.import_module(f"course.lessons.{lesson}.guilty").WORLDS
        assert "".join(worlds) == investigation.worlds
