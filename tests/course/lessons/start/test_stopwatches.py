"""The game of wrong stopwatches: letters, first tries, and what is said."""

from pytest import fixture, mark

from course import ledger
from course.lessons.start import stopwatches
from course.lessons.start.stopwatches import ANSWERS, FAULTS, wrong_with


@fixture(autouse=True)
def own_ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))


def test_every_fault_has_one_stopwatch_and_something_to_say():
    assert sorted(ANSWERS.values()) == sorted(FAULTS) == sorted(stopwatches.IF_IT_WERE)


def test_without_a_letter_nothing_is_kept(capsys):
    wrong_with("Ada", "?")
    assert capsys.readouterr().out.endswith("Put in a letter, A to K.\n")
    assert ledger.recall("00.game") is None


@mark.parametrize("colleague", ANSWERS)
def test_the_right_letter_is_told(colleague, capsys):
    wrong_with(colleague, f" {ANSWERS[colleague].lower()} ")
    told = capsys.readouterr().out
    assert told.startswith(f"Yes: {FAULTS[ANSWERS[colleague]]}.")
    assert "1 of 1" in told


def test_only_first_tries_count(capsys):
    wrong = ANSWERS["Ben"]
    wrong_with("Ada", wrong)
    assert capsys.readouterr().out == f"Not {wrong}: then {stopwatches.IF_IT_WERE[wrong]}\n"
    wrong_with("Ada", ANSWERS["Ada"])
    wrong_with("Ben", ANSWERS["Ben"])
    assert "At the first try you named 1 of 2 so far." in capsys.readouterr().out
