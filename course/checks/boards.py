"""Exercises of the form *read a board*: other jobs were run, somebody else is guilty; who was it?

BOARDS = {"first": "d", "second": "a"}

def unnamed():                                   # shown above the exercise
return boards.tables({name: guilty.recorded(who) for name, who in BOARDS.items()})

def check_boards(who):
boards.check("2.5", who, {name: guilty.recorded(world) for name, world in BOARDS.items()})
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from course.checks import checking
from course.checks.checking import CheckFailed
from course.predictions.board import Board
from labkit.measure.tables import Table


def tables(boards: Mapping[str, Board]) -> dict[str, Table]:
    """Return boards without their verdicts: what each suspect predicts, and what was found."""
    heads = ["suspect", "by", "predicts", "found, in all rounds"]
    return {
        name: Table(
            heads,
            [
                [f"{letter}, {board.suspects[letter]}", test.experiment, test.predicts, test.found]
                for letter in board.suspects
                for test in board.of(letter)
            ],
            title=f"The {name} board: {board.question}",
        )
        for name, board in boards.items()
    }


def check(number: str, who: Callable[[], Any], boards: Mapping[str, Board]) -> None:
    """Judge who was named on each board: `who` returns letters by the boards' names, or in order.

    Raises:
        CheckFailed: A board is missing, or the one who was named fell; names the test that says so.
    """
    with checking.exercise(number, who, par="all culprits") as done:
        got = _by_board(checking.plain(checking.ask(who)), boards)
        for name, board in boards.items():
            if name not in got:
                raise CheckFailed(f"an answer for the {name} board", repr(got), "it is missing")
            (culprit,) = board.left
            letter = checking.chosen(got[name], list(board.suspects))
            if letter != culprit:
                against = next(test for test in board.of(letter) if test.state == "fell")
                raise CheckFailed(
                    f"the {name} board: who has not fallen",
                    f"{letter}, {board.suspects[letter]}",
                    f"hold each row to its prediction. Here {against.experiment} speaks against "
                    f"{letter}: {against.found}",
                )
        done.reached = "all"


def _by_board(answer: Any, boards: Mapping[str, Board]) -> dict[str, Any]:
    """Return what was answered by the boards' names; text may say the letters in order: "a, b"."""
    got = answer
    if isinstance(got, dict):
        return got
    if isinstance(got, str):
        text = got.lower()
        letters = "".join({letter for board in boards.values() for letter in board.suspects})
        alone = re.fullmatch(f"[{letters}]{{{len(boards)}}}", text)
        got = list(text) if alone else re.findall(rf"(?<![\w'])[{letters}](?![\w'])", text)
    if isinstance(got, list | tuple) and len(got) == len(boards):
        return dict(zip(boards, got, strict=False))
    meaning = (
        "the function ends without `return` on this path"
        if got is None
        else "a set has no order: nobody can tell which letter belongs to which board"
        if isinstance(got, set | frozenset)
        else f"there are {len(boards)} boards, and each needs one letter"
    )
    asked = 'a letter for each board, in their order, like ("x", "y")'
    raise CheckFailed(asked, repr(answer)[:200], meaning)
