"""The concept inventory: twelve questions before the course, and twelve of the same kind after it.

Each question is aimed at one misconception; no run is needed. Answers are noted without comment, so
that the second form measures what was learnt.
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from course.predictions import forms, ledger_file
from course.predictions.forms import Quiz
from course.predictions.ledger_file import Answer

FORMS = ("before", "after")


@functools.cache
def questions() -> dict[str, dict[str, Quiz]]:
    """Load the questions: misconception -> form -> question."""
    path = Path(__file__).with_name("questions") / "inventory.json"
    items = json.loads(path.read_text(encoding="utf-8"))
    return {
        item["misconception"]: {
            form: Quiz(key=f"inventory.{form}.{number}", **item[form]) for form in FORMS
        }
        for number, item in enumerate(items, start=1)
    }


def inventory(form: Literal["before", "after"], *, first: int = 12, answers: str = "") -> None:
    """Ask the questions of one form. What is answered first counts.

    Args:
        form: `before` the course, or `after` it.
        first: How many of the questions to ask.
        answers: Their letters, for who prefers code to forms: `"acbd..."`.
    """
    folded = "It is told when the class has answered the second form."
    code = f'inventory("{form}", answers="...")'
    for i, both in enumerate(list(questions().values())[:first]):
        quiz = both[form]

        def note(letter: str, quiz: Quiz = quiz) -> str:
            if any(answer.key == quiz.key for answer in ledger_file.load().answers):
                return "Noted already: the first answer counts."
            ledger_file.add("answered", quiz.key, letter=letter, right=quiz.is_right(letter))
            return "Noted."

        if answers:
            print(f"{i + 1}. {answers[i]}: {note(answers[i])}")
        else:
            forms.show_quiz(quiz, note, heading=f"{i + 1}.", folded=folded, code=code)


def outcome(answers: Iterable[Answer]) -> dict[str, dict[str, bool]]:
    """Return what one learner knew: misconception -> form -> whether the answer was right."""
    rights = {answer.key: answer.right for answer in reversed(list(answers))}  # the first counts
    known = {
        name: {form: rights[quiz.key] for form, quiz in both.items() if quiz.key in rights}
        for name, both in questions().items()
    }
    return {name: right for name, right in known.items() if right}
