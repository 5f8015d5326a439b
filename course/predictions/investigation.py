"""An investigation: a question, its suspects, what tests them, and runs in which we know who it is.

A lesson's `evidence` has one, and its notebook, its exercise *who was it?* and its tests use it:

    INVESTIGATION = Investigation(
        key="02.cause",
        question="Where do the other 220 ms go?",
        suspects={"a": "a late rank", "b": "many calls"},
        experiments={"A": Experiment("one rank late", asks="a"), "B": Experiment(...)},
        tests=hold_all,                    # (board, records, world): every test of the board
        worlds="a",                        # who is guilty in the lesson's module `guilty`
    )

    board = INVESTIGATION.board()          # below the vote, where the learner's tests fill it
    late_rank(board, records)              # one test, made by the cell of its experiment
    reconcile("02.cause", board, ours=INVESTIGATION.recorded())

**Guilty runs.** A board that cannot find another culprit is a story, not a method. For each suspect
a lesson records a run in which it *is* guilty: the same experiments in a changed world, which its
module `guilty` makes. `recorded("a")` is the board of the world in which it is a, and a test holds
every lesson to it: `recorded("a").left == ["a"]`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from course import catalogue
from course.predictions import ledger_file
from course.predictions.board import Board, Experiment
from course.predictions.judging import outcome, outcomes
from course.runs import quiet
from labkit.measure.records import Record

__all__ = ["Board", "Experiment", "Investigation", "outcome", "outcomes"]


@dataclass(frozen=True, slots=True)
class Investigation:
    """What a lesson asks, whom it suspects, and how it finds out."""

    key: str  # of the vote, as in the lesson's `questions.json`
    question: str  # as a board of ours asks it; the learner's asks what the vote asked
    suspects: Mapping[str, str]  # letter of the vote -> the option in a few words, in their order
    experiments: Mapping[str, Experiment]  # see `Board`
    tests: Callable[[Board, Sequence[Record], str], object]
    """Adds to a board all tests of a world, from what was recorded; "" is the lesson's own."""
    worlds: str = ""
    """Letters of the suspects of whom there is a recorded world in which they are guilty."""
    own: str = ""
    """Who is guilty in the lesson's own world, where one is left there."""
    apart: Mapping[str, str] = field(default_factory=dict)  # see `Board`

    @property
    def lesson(self) -> str:
        """The number of the lesson, with which its key begins."""
        return self.key.partition(".")[0]

    def board(self) -> Board:
        """Return the board of the learner's vote, before any experiment."""
        question = ledger_file.entry(self.key).question
        return Board(question, self.suspects, self.experiments, apart=self.apart, key=self.key)

    def empty(self) -> Board:
        """Return the board without a vote, before any experiment."""
        return Board(self.question, self.suspects, self.experiments, apart=self.apart, say=quiet)

    def recorded(self, world: str = "") -> Board:
        """Return the board of our calm run, or of the world in which a suspect is guilty."""
        board = self.empty()
        (lesson,) = (x for x in catalogue.find().values() if x.number == self.lesson)
        self.tests(board, lesson.recorded(), world)
        return board
