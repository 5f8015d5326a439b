"""Each lesson's board points at whoever is guilty, in its own world and in the recorded others."""

import importlib

from pytest import mark

from course.catalogue import ROOT
from course.commands.record import CALM
from course.predictions import figures, ledger
from course.predictions.board import STANDS

LESSONS = {
    name: importlib.import_module(f"course.lessons.{name}.evidence").INVESTIGATION
    for name in sorted(path.parent.name for path in ROOT.glob("course/lessons/*/evidence.py"))
}
WORLDS = [(name, world) for name, lesson in LESSONS.items() for world in lesson.worlds]
DECIDED = [name for name, lesson in LESSONS.items() if lesson.own]  # 02's thread leaves several


@mark.parametrize("lesson", DECIDED)
def test_in_the_lessons_own_world_one_is_left(lesson):
    board, guilty = LESSONS[lesson].recorded(), LESSONS[lesson].own
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
    assert list(investigation.suspects) == list(figures.lettered(options))
    asked = {x for experiment in investigation.experiments.values() for x in experiment.asks}
    assert asked == set(investigation.suspects)
    if investigation.worlds:
        assert asked == {*investigation.worlds, investigation.own or "a"}
    if (ROOT / "course/lessons" / lesson / "guilty.py").exists():
        worlds = importlib.import_module(f"course.lessons.{lesson}.guilty").WORLDS
        assert "".join(worlds) == investigation.worlds
