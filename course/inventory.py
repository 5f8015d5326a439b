"""The concept inventory: twelve questions before the course, and twelve of the same kind after it.

Each question is aimed at one misconception; no run is needed. Answers are noted without comment, so
that the second form measures what was learnt. The gain of a class is what it won of what it could
have won. Source: R. R. Hake, Interactive-engagement versus traditional methods, American Journal of
Physics 66, 64 (1998), doi:10.1119/1.18809.
"""

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course import forms, ledger_file
from course.ledger_file import Answer

FORMS = ("before", "after")
_KEY = re.compile(r"inventory\.(before|after)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """One form of one question."""

    question: str
    options: tuple[str, ...]
    right: int
    """Index of the right option."""


@functools.cache
def questions() -> dict[str, dict[str, Question]]:
    """Load the questions: misconception -> form -> question."""
    path = Path(__file__).with_name("questions") / "inventory.json"
    return {
        item["misconception"]: {
            form: Question(**item[form] | {"options": tuple(item[form]["options"])})
            for form in FORMS
        }
        for item in json.loads(path.read_text(encoding="utf-8"))
    }


def inventory(form: Literal["before", "after"], *, first: int = 12, answers: str = "") -> None:
    """Ask the questions of one form. What is answered first counts.

    Args:
        form: `before` the course, or `after` it.
        first: How many of the questions to ask.
        answers: Their letters, for who prefers code to forms: `"acbd..."`.
    """
    asked = list(questions().values())[:first]
    for number, both in enumerate(asked, start=1):
        question, key = both[form], f"inventory.{form}.{number}"

        def note(letter: str, key: str = key, right: int = question.right) -> str:
            if any(answer.key == key for answer in ledger_file.load().answers):
                return "Noted already: the first answer counts."
            correct = letter == forms.LETTERS[right]
            ledger_file.add("answered", key, letter=letter, right=correct)
            return "Noted."

        if answers:
            letter = answers[number - 1]
            print(f"{number}. {letter}: {note(letter)}")
        else:
            forms.show_quiz(
                f"{number}. {question.question}", question.options, note,
                "It is told when the class has answered the second form.",
                code=f'inventory("{form}", answers="...")', heading="",
            )  # fmt: skip


def outcome(answers: Iterable[Answer]) -> dict[str, dict[str, bool]]:
    """Return what one learner knew: misconception -> form -> whether the answer was right."""
    names, known = list(questions()), {}
    for answer in answers:
        match = _KEY.fullmatch(answer.key)
        if match and 0 < int(match[2]) <= len(names):
            forms_of = known.setdefault(names[int(match[2]) - 1], {})
            forms_of.setdefault(match[1], answer.right)
    return known


def gain(before: float, after: float) -> float | None:
    """Return the normalized gain of two shares of right answers; None where all was known.

    Example:
        >>> gain(0.25, 0.75)
        0.6666666666666666
    """
    return None if before >= 1 else (after - before) / (1 - before)
