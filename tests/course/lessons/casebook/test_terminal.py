"""A case as it is played in a terminal."""

from pytest import mark, skip

from course.__main__ import main
from course.lessons.casebook import ward
from course.lessons.casebook.cases import CASES
from course.predictions import claims

pytestmark = [mark.slow, mark.timed, mark.usefixtures("book")]


def test_a_case_is_played_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(ward, "ROUNDS", 2)  # still, they may disagree
    letter = ward.Ward(CASES["228-bytes"]).letter("late")
    words = ["nonsense", "", "4", letter, "one comes late"]

    def answer(_):
        if not words:  # asked once more
            assert "not judged, either way" in capsys.readouterr().out
            skip(f"{claims.NOT_JUDGED}: the rounds disagree")
        return words.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    assert main(["case", "228-bytes"]) == 0
    shown = capsys.readouterr().out
    for part in ("q leaves", "call counts: running", "stands", "the reply in", "In production"):
        assert part in shown
    assert main(["case"]) == 0
    assert "diagnosed with 1 instrument, at try 1" in capsys.readouterr().out
