"""Exercises of the form *who was it?*: other jobs were run, somebody else is guilty on each board.

A lesson's `checks` names the worlds, and the notebook shows their boards and has the answer judged:

    WHO = WhoWasIt("2.5", evidence.INVESTIGATION, {"first": "d", "second": "a"})

    first, second = WHO.tables()
    WHO.check(who)
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course.checks import checking
from course.checks.checking import hold
from course.predictions.board import Board
from course.predictions.investigation import Investigation
from labkit.measure.tables import Table


@dataclass(frozen=True)
class WhoWasIt:
    """An exercise: name the culprit on boards of a lesson's guilty worlds."""

    number: str  # of the exercise
    investigation: Investigation
    worlds: Mapping[str, str]  # name of a board -> who is guilty in the world that it comes from

    @functools.cached_property
    def boards(self) -> dict[str, Board]:
        """The boards by their names."""
        return {name: self.investigation.recorded(who) for name, who in self.worlds.items()}

    def tables(self) -> list[Table]:
        """Return the boards without their verdicts: what each suspect predicts, what was found."""
        tables, heads = [], ["suspect", "by", "predicts", "found, in all rounds"]
        for name, board in self.boards.items():
            rows = [
                [f"{x}, {label}", test.experiment, test.predicts, test.found]
                for x, label in board.suspects.items()
                for test in board.of(x)
            ]
            tables.append(Table(heads, rows, title=f"The {name} board: {board.question}"))
        return tables

    def check(self, who: Callable[[], Any]) -> None:
        """Judge who was named: `who` returns letters by the boards' names, or in their order."""
        with checking.exercise(self.number, who, par="all culprits") as verdict:
            named = _by_board(checking.ask(who), self.boards)
            for name, board in self.boards.items():
                hold(name in named, f"an answer for the {name} board", named, "it is missing")
                labels = {f"{x}, {label}".lower(): x for x, label in board.suspects.items()}
                copied = labels.get(str(named[name]).strip().lower())
                letter = copied or checking.chosen(named[name], list(board.suspects))
                standing = f"the {name} board: who has not fallen"
                for test in board.of(letter):
                    against = f"""hold each row to its prediction. Here {test.experiment} speaks
                        against {letter}: {test.found}"""
                    suspect = f"{letter}, {board.suspects[letter]}"
                    hold(test.state != "fell", standing, suspect, against)
            verdict.reached = "all"


def _by_board(answer: Any, boards: Mapping[str, Board]) -> dict[str, Any]:
    """Return what was answered by the boards' names; text may say the letters in order: "a, b"."""
    if isinstance(answer, dict):
        return answer
    letters = answer
    if isinstance(answer, str):
        known = "".join({letter for board in boards.values() for letter in board.suspects})
        alone = re.fullmatch(f"[{known}]{{{len(boards)}}}", answer.lower())
        each = "." if alone else rf"(?<![\w'])[{known}](?![\w'])"
        letters = re.findall(each, answer.lower())
    is_form = isinstance(letters, list | tuple) and len(letters) == len(boards)
    form = 'a letter for each board, in their order (a set has none), like ("x", "y")'
    several = f"there are {len(boards)} boards, and each needs one letter"
    hold(is_form, form, repr(answer)[:200], checking.NO_RETURN if answer is None else several)
    return dict(zip(boards, letters, strict=True))
