"""Exercises of the form *who was it?*, in every lesson that has one."""

import importlib

import pytest

from course.catalogue import ROOT
from tests.course.lessons.refusals import refusal

FOLDERS = sorted(path.parent.name for path in (ROOT / "course" / "lessons").glob("*/checks.py"))
CHECKS = {name: importlib.import_module(f"course.lessons.{name}.checks") for name in FOLDERS}
READ = {name: checks.WHO for name, checks in CHECKS.items() if hasattr(checks, "WHO")}


@pytest.mark.slow
@pytest.mark.parametrize("exercise", READ.values(), ids=READ)
def test_both_culprits_pass_others_meet_a_row_against_them_and_boards_do_not_tell(exercise, capsys):
    first, second = exercise.worlds.values()
    assert first != second
    exercise.check(lambda: dict(exercise.worlds))
    exercise.check(lambda: (first.upper(), f"{second}: whoever"))
    assert capsys.readouterr().out.count("passed") == 2
    tables = exercise.tables()
    for table in tables:
        assert not {"fell", "stands", "guilty"} & set(table.html().replace(":", " ").split())
        assert {first, second} <= {row[0][0] for row in table.rows}
    suspects = {row[0][0] for table in tables for row in table.rows}
    for name, guilty in exercise.worlds.items():
        for suspect in suspects - {guilty}:
            said = refusal(exercise.check, lambda pair=exercise.worlds | {name: suspect}: pair)
            assert f"speaks against {suspect}" in said


GRADIENTS = READ["gradient_all_reduce"].check  # d, then a
SUSPECTS = READ["gradient_all_reduce"].investigation.suspects
COPIED = [f"{letter}, {SUSPECTS[letter]}" for letter in "da"]


@pytest.mark.parametrize("answer", ["da", "D, A", "The first is d, the second a.", COPIED])
def test_an_answer_may_be_written_as_people_write(answer, capsys):
    GRADIENTS(lambda: answer)
    assert "2.5 passed" in capsys.readouterr().out


def test_what_names_nobody_is_refused():
    assert "it is missing" in refusal(GRADIENTS, lambda: {"first": "d"})
    assert "one letter" in refusal(GRADIENTS, lambda: ("d or a", "a"))
    assert "a set has none" in refusal(GRADIENTS, lambda: {"d", "a"})
    assert "each needs one letter" in refusal(GRADIENTS, lambda: "d")
    assert "without `return`" in refusal(GRADIENTS, lambda: None)
