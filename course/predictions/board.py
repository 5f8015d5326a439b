"""The board: suspects against experiments, and a verdict that follows the evidence.

In a notebook, below the vote, a lesson's `Investigation` sets the board up, and it is shown:

    board = INVESTIGATION.board()
    board

It grows in place. Each experiment ends with a test: what the suspect predicts, in words that would
be false if another one were guilty; and of each round whether that came true.

    board.test("a", "A", "a late rank lengthens the last six calls by half of its delay or more",
               outcomes(shares, stands=0.5, fell=0.25),                    # one a round
               found="call 0 by 107 ms, the six by -3", records=[late])

A round is True (as predicted), False (not) or None (between the two limits: it says nothing). At
least three rounds, which took turns within one run, decide by agreeing: the suspect *stands*, or
*fell*. Where they disagree it is *not judged*; nor is a single measurement beside other programs
(`course.predictions.judging`, for claims as well). `exact=True` is for what noise cannot have made:
a count, arithmetic, a line of a log, a published figure. A test that is run again adds its rounds
to those before, so that running until it agrees is no way out; only a run that was disturbed and
decided nothing is replaced. Running the cell that set it up again clears the board.

The last cell of the investigation shows the verdict and what became of the vote; `ours` is the same
board from the lesson's recording, which folds below:

    reconcile("02.cause", board, ours=INVESTIGATION.recorded())

A suspect fell if any test of it did. One left: it is a suspect, not a proof. Several: the planned
experiment that has not been run, and what `apart` says of them. None: the learner's run differs
from ours, and the verdict asks how. The ledger keeps *still standing* or *fell, by A*; a vote that
nothing judged is not scored.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from course.predictions import forms, judging, ledger_file
from course.predictions.judging import Judged, Rounds
from course.runs import Say
from labkit.measure.records import Record, tiers_of

__all__ = ["Board", "Experiment", "Test"]

STANDS, FELL, NOT_JUDGED, NOT_ASKED = "stands", "fell", "not judged", "not asked"
SIGNS = {STANDS: "●", FELL: "✘", NOT_JUDGED: "?", NOT_ASKED: "–"}

LEGEND = (
    f"{SIGNS[STANDS]} {STANDS}: it came as the suspect predicted. {SIGNS[FELL]} {FELL}: it did "
    f"not; one such test is enough. {SIGNS[NOT_JUDGED]} {NOT_JUDGED}: the evidence does not "
    f"decide. {SIGNS[NOT_ASKED]} no test."
)
"""What the signs of a board's cells mean."""
WIDTH = 96  # characters of a printed line: JupyterLab breaks longer ones within a word


class Experiment(NamedTuple):
    """One column of a board."""

    what: str  # what it changes or reads, in a few words: `a late rank`
    asks: str = ""  # letters of the suspects that it is made for
    how: str = ""  # how to do it: a command, where the board is not in a lesson


@dataclass(frozen=True, slots=True)
class Test:
    """What a suspect predicts of an experiment, and what came out."""

    __test__ = False  # pytest: this is none

    experiment: str
    predicts: str  # in words, with its limit: what would have been false if another one were guilty
    found: str
    judged: Judged
    tiers: str = ""

    @property
    def state(self) -> str:
        """`stands`, `fell` or `not judged`."""
        return {True: STANDS, False: FELL, None: NOT_JUDGED}[self.judged.outcome]

    @property
    def weight(self) -> str:
        """By how many rounds it was decided, or why it was not."""
        if self.state == NOT_JUDGED:
            return self.judged.why_not
        rounds = len(self.judged.rounds)
        return f"{rounds} of {rounds} rounds" if rounds > 1 else ""

    def __str__(self) -> str:
        weight = f" ({self.weight})" if self.weight else ""
        return f"{SIGNS[self.state]} {self.state}: {self.found}{weight}"


class Board:
    """Suspects against experiments.

    Args:
        question: What they are suspected of, as a question.
        suspects: Letter -> name, in a few words.
        experiments: Name, like `A` -> `Experiment`, in the order in which they are best made.
        apart: Letters of suspects, like `cd` -> what would tell them apart, where no experiment of
            the board can.
        key: Of the vote in the ledger; empty where there is none.
        say: Told in two lines what each test expected and found; `course.runs.quiet` says nothing.

    Raises:
        ValueError: An experiment or `apart` names a suspect that there is not.
    """

    def __init__(
        self,
        question: str,
        suspects: Mapping[str, str],
        experiments: Mapping[str, Experiment],
        *,
        apart: Mapping[str, str] | None = None,
        key: str = "",
        say: Say = print,
    ) -> None:
        self.question, self.key, self.say = question, key, say
        self.suspects, self.experiments = dict(suspects), dict(experiments)
        self.apart = {frozenset(letters): text for letters, text in (apart or {}).items()}
        self.tests: dict[tuple[str, str], Test] = {}
        """By suspect and experiment."""
        self._handle: Any = None
        named = {x for experiment in self.experiments.values() for x in experiment.asks}
        for letter in sorted(named.union(*self.apart) - set(self.suspects)):
            raise ValueError(f"there is no suspect {letter!r}; there are {', '.join(suspects)}.")

    def test(
        self,
        suspect: str,
        experiment: str,
        predicts: str,
        rounds: Rounds,
        *,
        found: str,
        records: Iterable[Record] = (),
        others: float | None = None,
        exact: bool = False,
        ratio: bool = False,
    ) -> Test:
        """Hold a suspect to what it predicts of an experiment, and say what became of it.

        If that was done before, its rounds count together with the earlier ones.

        Args:
            suspect: Its letter.
            experiment: Its name.
            predicts: What the suspect predicts, with its limit; false if another one were guilty.
            rounds: Of each round: True as predicted, False not, None neither; or one of these.
            found: What was found, in a few words with figures.
            records: From which it was computed; they know what other programs used meanwhile.
            others: CPUs that other programs used, where no records tell.
            exact: Whether noise cannot have made it.
            ratio: Whether it is a ratio of times; see `judging.judge`.

        Raises:
            ValueError: There is no such suspect or experiment, or no round.
        """
        if suspect not in self.suspects:
            raise ValueError(f"no suspect {suspect!r}; there are {', '.join(self.suspects)}.")
        if experiment not in self.experiments:
            names = ", ".join(self.experiments)
            raise ValueError(f"no experiment {experiment!r}; there are {names}.")
        records = list(records)
        if not exact and others is None:
            others = judging.others_in(records)
        judged = judging.judge(rounds, others=None if exact else others, ratio=ratio)
        before = self.tests.get((suspect, experiment))
        if before and (before.judged.outcome is not None or not before.judged.disturbed):
            both = before.judged.rounds + judged.rounds
            judged = judging.judge(both, others=judged.others, ratio=judged.crowded)
        test = Test(experiment, predicts, found, judged, tiers_of(records))
        self.tests[suspect, experiment] = test
        who = f"{suspect}, {self.suspects[suspect]}"
        prediction = f"{experiment} tests {who}. If {suspect} is right: {predicts}."
        result = textwrap.fill(str(test), WIDTH, initial_indent="  ", subsequent_indent="    ")
        self.say(f"{textwrap.fill(prediction, WIDTH)}\n{result}")
        if self._handle is not None:
            self._handle.update(self._bundle(), raw=True)
        return test

    def of(self, suspect: str) -> list[Test]:
        """Return the tests of a suspect, in the order of the experiments."""
        return [self.tests[suspect, x] for x in self.experiments if (suspect, x) in self.tests]

    def state(self, suspect: str) -> str:
        """Return `fell` if one test says so; else `stands`, `not judged` or `not asked`."""
        states = {test.state for test in self.of(suspect)}
        return next((x for x in (FELL, STANDS, NOT_JUDGED) if x in states), NOT_ASKED)

    @property
    def left(self) -> list[str]:
        """Letters of the suspects that have not fallen."""
        return [letter for letter in self.suspects if self.state(letter) != FELL]

    @property
    def fates(self) -> dict[str, str]:
        """Letter -> `still standing` or `fell, by A`, of those that were judged."""
        fates = {}
        for letter in self.suspects:
            by = [test.experiment for test in self.of(letter) if test.state == FELL]
            if by:
                fates[letter] = f"fell, by {' and '.join(by)}"
            elif self.state(letter) == STANDS:
                fates[letter] = ledger_file.STANDING
        return fates

    def verdict(self, ours: Board | None = None) -> str:
        """Say what the tests leave, and what would decide between those.

        `ours` is the board of a calm machine: with it, a learner who is left with nobody is told
        who was left there.
        """
        left = self.left
        if not self.tests:
            return "Nothing is decided: no experiment has been run."
        if not left:
            there = f" On our calm machine {_or(ours.left)} was left." if ours and ours.left else ""
            asks = "What differs in yours? Or who is missing on this list?"
            return f"Your run refutes all {len(self.suspects)}.{there} {asks}"
        if len(left) == 1:
            only = left[0]
            text = f"What is left is {only}, {self.suspects[only]}: a suspect, not a proof."
            if self.state(only) != STANDS:
                text += f" It is left because the others fell: itself it is {self.state(only)}."
            return text
        text = f"What your runs leave: {_or(left)}."
        for state, why in ((NOT_JUDGED, "the evidence is not there"), (NOT_ASKED, "")):
            if some := [letter for letter in left if self.state(letter) == state]:
                text += f" {state.capitalize()}: {', '.join(some)}{f' ({why})' if why else ''}."
        return f"{text} {self.next()}".rstrip()

    def next(self) -> str:
        """Say which experiment comes next, and what else would tell apart those that are left."""
        left, tried = self.left, {experiment for _, experiment in self.tests}
        if not left or (len(left) == 1 and self.state(left[0]) == STANDS):
            return ""
        sentences = []
        for name, (what, asks, how) in self.experiments.items():
            suspects = [letter for letter in left if letter in asks]
            if name not in tried and suspects:
                command, whom = f" ({how})" if how else "", " and ".join(suspects)
                sentences.append(f"Next: {name}, {what}{command}, which tests {whom}.")
                break
        for letters, text in self.apart.items():
            if letters <= set(left):
                sentences.append(f"What would separate {' from '.join(sorted(letters))}: {text}.")
        return " ".join(sentences)

    def of_the_vote(self) -> str:
        """Say what became of the learner's vote; empty where there is none."""
        vote = self._vote()
        if vote is None:
            return ""
        fate = self.fates.get(vote, f"not scored: {self.state(vote)}")
        return f"Your vote, {vote}, {'' if self.state(vote) == FELL else 'is '}{fate}."

    def __str__(self) -> str:
        """Lay the board out for a terminal."""
        vote, lines = self._vote(), [self.question]
        width = max(len(name) for name in self.suspects.values())
        for letter, name in self.suspects.items():
            state, yours = self.state(letter), "  ◂ your vote" if letter == vote else ""
            fate = self.fates.get(letter, state) if state == FELL else state
            lines.append(f"  {letter}  {name:<{width}}  {SIGNS[state]} {fate}{yours}")
            lines += [f"       {test.experiment}  {test}" for test in self.of(letter)]
        return "\n".join(lines)

    def html(self, verdict: str = "", ours: Board | None = None) -> str:
        """Return the board as an HTML table; in a narrow place each suspect is a block of its own.

        Below it stands the `verdict`, and, folded, `ours`.
        """
        notes = list(dict.fromkeys(test.tiers for test in self.tests.values() if test.tiers))
        judged = [test.judged for test in self.tests.values()]
        if used := [test.others for test in judged if test.others is not None]:
            notes.append(f"other programs used up to {max(used):.1f} CPUs")
        shown = {"vote": self._vote(), "notes": "; ".join(notes), "verdict": verdict, "ours": ours}
        return forms.filled("board.html", board=self, signs=SIGNS, legend=LEGEND, **shown)

    def _ipython_display_(self) -> None:
        """Show the board; what is shown last follows every test that comes."""
        from IPython import display

        self._handle = display.DisplayHandle()
        self._handle.display(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}

    def _vote(self) -> str | None:
        return ledger_file.entry(self.key).answer if self.key else None


def show_verdict(board: Board, ours: Board | None) -> None:
    """Show a board, its verdict and the vote's fate, and below it, folded, our own board."""
    verdict = " ".join(filter(None, [board.verdict(ours), board.of_the_vote()]))
    forms.display(f"{board}\n\n{verdict}", lambda: board.html(verdict, ours))


def _or(letters: Iterable[str]) -> str:
    *most, last = letters
    return f"{', '.join(most)} or {last}" if most else last
