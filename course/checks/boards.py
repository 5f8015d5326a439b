"""Exercises of the form *who was it?*: other jobs were run, somebody else is guilty on each board.

A lesson's `checks` names the worlds, and the notebook shows their boards and has the answer judged:

    WHO = WhoWasIt("2.5", evidence.INVESTIGATION, {"first": "d", "second": "a"})

    first, second = WHO.tables()
    WHO.check(who)
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course.checks import checking
from course.checks.checking import hold
from course.predictions.board import Board
from course.predictions.investigation import Investigation
from labkit.measure.tables import Table


@dataclass(frozen=True, slots=True)
class WhoWasIt:
    """An exercise: name the culprit on boards of a lesson's guilty worlds."""

    number: str
    """Of the exercise."""
    investigation: Investigation
    worlds: Mapping[str, str]
    """Name of a board -> who is guilty in the world that it comes from."""

    def boards(self) -> dict[str, Board]:
        """Return the boards by their names."""
        return {name: self.investigation.recorded(who) for name, who in self.worlds.items()}

    def tables(self) -> list[Table]:
        """Return the boards without their verdicts: what each suspect predicts, what was found."""
        heads = ["suspect", "by", "predicts", "found, in all rounds"]
        return [
            Table(
                heads,
                [
                    [f"{x}, {board.suspects[x]}", test.experiment, test.predicts, test.found]
                    for x in board.suspects
                    for test in board.of(x)
                ],
                title=f"The {name} board: {board.question}",
            )
            for name, board in self.boards().items()
        ]

    def check(self, who: Callable[[], Any]) -> None:
        """Judge who was named: `who` returns letters by the boards' names, or in their order.

        Raises:
            CheckFailed: A board is missing, or the one who was named fell; names the test that
                says so.
        """
        with checking.exercise(self.number, who, par="all culprits") as verdict:
            boards = self.boards()
            named = _by_board(checking.ask(who), boards)
            for name, board in boards.items():
                hold(name in named, f"an answer for the {name} board", named, "it is missing")
                labels = {f"{x}, {label}".lower(): x for x, label in board.suspects.items()}
                copied = labels.get(str(named[name]).strip().lower())
                letter = copied or checking.chosen(named[name], list(board.suspects))
                fell = next((test for test in board.of(letter) if test.state == "fell"), None)
                hold(
                    fell is None,
                    f"the {name} board: who has not fallen",
                    f"{letter}, {board.suspects[letter]}",
                    "hold each row to its prediction. "
                    f"Here {fell.experiment} speaks against {letter}: {fell.found}"
                    if fell
                    else "",
                )
            verdict.reached = "all"


def _by_board(answer: Any, boards: Mapping[str, Board]) -> dict[str, Any]:
    """Return what was answered by the boards' names; text may say the letters in order: "a, b"."""
    if isinstance(answer, dict):
        return answer
    named = answer
    if isinstance(answer, str):
        letters = "".join({letter for board in boards.values() for letter in board.suspects})
        alone = re.fullmatch(f"[{letters}]{{{len(boards)}}}", answer.lower())
        named = re.findall(rf"(?<![\w'])[{letters}](?![\w'])", answer.lower())
        named = list(answer.lower()) if alone else named
    meaning = f"there are {len(boards)} boards, and each needs one letter"
    if isinstance(answer, set | frozenset):
        meaning = "a set has no order: nobody can tell which letter belongs to which board"
    hold(
        isinstance(named, list | tuple) and len(named) == len(boards),
        'a letter for each board, in their order, like ("x", "y")',
        repr(answer)[:200],
        checking.NO_RETURN if answer is None else meaning,
    )
    return dict(zip(boards, named, strict=True))
