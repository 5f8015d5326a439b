"""`python -m course progress`: what was done, what is due, what is still believed; and the hand-in.

A hand-in holds answers, exercises passed, games and the kind of machine, and nothing else: no name
unless the learner types one, no paths, no host name. It is a small JSON file that one can read
before sending it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course import catalogue, exercises, forms, inventory, ledger, ledger_file, untrusted
from course.catalogue import ROOT
from course.ledger_file import Answer, Book, Entry
from labkit.ranks.machine import Machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERSION = 2
"""Of hand-ins."""
DAYS = (1, 3, 7)
"""A warm-up comes back so many days after its lesson, and after each right answer in a row."""
GAMES = re.compile(r"00\.game|case\..+")
"""What lessons keep of games and cases."""


@dataclass(frozen=True, slots=True)
class LessonProgress:
    """One lesson and what was done of it."""

    number: str
    title: str
    finished: bool
    exercises: tuple[str, ...]
    """Numbers of all its exercises."""
    passed: tuple[str, ...]
    """Those whose check passed."""

    def __str__(self) -> str:
        done = "run to the end" if self.finished else "not finished"
        line = f"{self.number:<4}{self.title:<44.44}  {done:<15}"
        if not self.exercises:
            return line.rstrip()
        marks = "".join("■" if number in self.passed else "□" for number in self.exercises)
        return f"{line}{marks} {len(self.passed)} of {len(self.exercises)} exercises passed"


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything that the ledger knows about a learner's way through the course."""

    steps: tuple[LessonProgress, ...]
    entries: tuple[Entry, ...]
    due: tuple[str, ...] = ()
    """Keys of the warm-ups that are due."""
    missed: tuple[str, ...] = ()
    """Misconceptions that the second form of the inventory still showed."""

    def __str__(self) -> str:
        lines = [*map(str, self.steps), ""]
        if self.due:
            asked = ", ".join(f'warmup("{key}")' for key in self.due)
            lines += [f"due, in any notebook after `from course.ledger import warmup`: {asked}", ""]
        votes = [entry for entry in self.entries if entry.right is not None]
        made = sum(entry.committed for entry in self.entries if not entry.options)
        lines.append(f"votes: {len(votes)} decided, {sum(vote.right for vote in votes)} right")
        lines.append(f"predictions: {made} made, {len(self.counted)} of them count")
        for entry in self.counted:
            side = "above" if entry.answer > entry.measured else "below"
            lines.append(
                f"  {entry.key:<24}{entry.answer:>10.4g} against {entry.measured:.4g} "
                f"{entry.unit}: {entry.miss:.2f} times {side}"
            )
        if self.typical_miss is not None:
            lines.append(f"half of them are within a factor of {self.typical_miss:.2f}")
        if ranges := [entry.inside for entry in self.entries if entry.inside is not None]:
            lines.append(f"{sum(ranges)} of {len(ranges)} results lie in your 80 % ranges")
        held = [
            f"  {entry.key}: {forms.answer_of(entry, 'after' if entry.after else 'answer')}; the "
            f"evidence: {forms.answer_of(entry, 'measured')}"
            for entry in self.entries
            if entry.held
        ]
        held += [f"  the inventory: {misconception}" for misconception in self.missed]
        if held:
            lines += ["", "your last answer and the evidence differ:", *held]
        return "\n".join(lines)

    @property
    def counted(self) -> list[Entry]:
        """Predictions that were made before they could be looked up, and met a measurement."""
        return [entry for entry in self.entries if entry.counts]

    @property
    def typical_miss(self) -> float | None:
        """The median factor by which predictions were off; None without any."""
        misses = [entry.miss for entry in self.counted]
        return statistics.median(misses) if misses else None


def here(course: Path = ROOT) -> Progress:
    """Read the learner's progress from the ledger and the course's exercises."""
    book = ledger_file.load()
    steps = []
    for lesson in catalogue.find().values():
        tasks = lesson.notebook(course / "exercises")
        numbers = exercises.numbers(tasks) if tasks else ()
        passed = tuple(number for number in numbers if number in book.passed)
        done = lesson.number in book.finished
        steps.append(LessonProgress(lesson.number, lesson.title, done, numbers, passed))
    known = inventory.outcome(book.answers)
    missed = [name for name, right in known.items() if right.get("after") is False]
    due = due_warmups(book, ledger.warmups(), now=datetime.now(UTC))
    return Progress(tuple(steps), tuple(book.entries.values()), tuple(due), tuple(missed))


def due_warmups(book: Book, known: Iterable[str], *, now: datetime) -> list[str]:
    """Name the warm-ups that are due, of lessons that were run to their end or asked before.

    The first comes a day after the lesson, the next three days and a week after the right answer
    before; a wrong answer starts over. After three right ones in a row it does not come back.
    """
    due = []
    for key in known:
        given = [answer for answer in book.answers if answer.key == key]
        start = given[-1].at if given else book.finished.get(key.partition(".")[0])
        rights = 0
        for answer in given:
            rights = rights + 1 if answer.right else 0
        if start is None or rights >= len(DAYS):
            continue
        if now - datetime.fromisoformat(start) >= timedelta(days=DAYS[rights]):
            due.append(key)
    return due


def draw(progress: Progress, *, ax: Axes | None = None) -> Axes:
    """Draw how far each prediction was from its measurement, in the order in which they come.

    A mark on the line is exact; one step up is twice too much, one step down half. The band is
    a factor of two.
    """
    import numpy as np

    from labkit.measure.tables import Table
    from labkit.show import plots

    counted = progress.counted
    factors = np.array([entry.answer / entry.measured for entry in counted])
    misses = np.array([entry.miss for entry in counted])
    ax = plots.new_axes(
        "How far off were your predictions?", y="Predicted / measured", yscale="log", ax=ax
    )
    place = np.arange(len(counted))
    ax.axhspan(0.5, 2, color=plots.FAINT, alpha=0.5, zorder=0)
    ax.axhline(1, color=plots.SOFT, linewidth=1)
    ax.vlines(place, 1, factors, color=plots.FAINT, linewidth=2, zorder=1)
    for series, label in enumerate(("within a factor of 2", "farther off")):
        shown, look = (misses > 2) == bool(series), plots.style(series)
        ax.plot(place[shown], factors[shown], look.marker, color=look.color, label=label, zorder=2)
    widest = max([4.0, *misses * 1.3])
    ax.set_ylim(1 / widest, widest)
    ax.set_xticks(place, [entry.key for entry in counted], rotation=45, ha="right")
    if counted:
        ax.legend(frameon=False, fontsize=9)
        tiers = dict.fromkeys(entry.tier for entry in counted)
        plots.stamp(ax, tiers, note="what the predictions are held against")
    else:
        said = "no prediction yet that was committed before its measurement"
        ax.text(0.5, 0.55, said, transform=ax.transAxes, ha="center", color=plots.SOFT)
    rows = [(e.key, e.answer, e.measured, e.answer / e.measured) for e in counted]
    plots.describe(
        ax,
        f"{(misses <= 2).sum()} of {len(rows)} predictions are within a factor of two of the "
        "measurement.",
        table=Table(["prediction", "predicted", "measured", "ratio"], rows),
    )
    return ax


@dataclass(frozen=True, slots=True)
class HandIn:
    """One learner's state of the course."""

    name: str
    """As typed; empty for anonymous."""
    machine: str
    """CPU model and number of cores."""
    passed: tuple[str, ...]
    finished: tuple[str, ...]
    stopped: str
    """The question that was asked last and has no result yet; empty without one."""
    entries: tuple[Entry, ...]
    answers: tuple[Answer, ...]
    """To warm-ups and the inventory."""
    games: dict[str, dict[str, Any]]
    """What was kept of games and cases, by name."""


def hand_in(name: str = "") -> HandIn:
    """Collect the hand-in from this machine's ledger."""
    book, machine = ledger_file.load(), Machine.here()
    return HandIn(
        name=name[:80],
        machine=f"{machine.cpu_model}, {machine.cores:g} CPUs",
        passed=tuple(sorted(book.passed)),
        finished=tuple(sorted(book.finished)),
        stopped=book.last,
        entries=tuple(book.entries.values()),
        answers=tuple(book.answers),
        games={key: values for key, values in book.kept.items() if GAMES.fullmatch(key)},
    )


def save(hand_in: HandIn, path: Path) -> Path:
    """Write a hand-in as JSON; return the path."""
    path.write_text(json.dumps({"version": VERSION, **asdict(hand_in)}, indent=1) + "\n")
    return path


def load(path: Path) -> HandIn:
    """Read a hand-in that anybody may have written: nothing in it is trusted.

    Raises:
        ValueError: It is none, or of another version; names the file and the reason, in one line.
    """
    document = untrusted.load(path, what="hand-in of this course", versions={VERSION: _HAND_IN})
    del document["version"]
    lists = {name: tuple(document.pop(name)) for name in ("passed", "finished")}
    entries = tuple(
        Entry(**entry | {"options": tuple(entry["options"])}) for entry in document.pop("entries")
    )
    answers = tuple(Answer(**answer) for answer in document.pop("answers"))
    return HandIn(**document, **lists, entries=entries, answers=answers)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--hand-in", type=Path, metavar="FILE", help="write a small JSON file for your instructor"
    )
    parser.add_argument("--name", default="", help="a name to hand in under (none if not given)")


def main(options: argparse.Namespace) -> int:
    """Print the learner's progress, and write the hand-in if it is asked for; return 0."""
    print(here())
    print(f"\nkept in {ledger_file.location()}")
    if options.hand_in:
        print(f"to hand in: {save(hand_in(options.name), options.hand_in)}")
    return 0


def _answer(value: Any, place: str) -> None:
    """Check what a prediction, a vote or a result may be: a figure, a letter, or nothing."""
    (untrusted.one_of(forms.LETTERS) if isinstance(value, str) else untrusted.FIGURE)(value, place)


def _game_value(value: Any, place: str) -> None:
    """Check what games keep: a figure, a truth, or a short text."""
    if isinstance(value, str):
        untrusted.text(200)(value, place)
    elif not isinstance(value, bool):
        untrusted.FIGURE(value, place)


_ENTRY = {
    "key": untrusted.text(60),
    "question": untrusted.text(500),
    "unit": untrusted.text(40),
    "options": untrusted.array(untrusted.text(), most=len(forms.LETTERS)),
    **dict.fromkeys(("answer", "after", "measured"), _answer),
    **dict.fromkeys(("low", "high", "model", "others"), untrusted.FIGURE),
    "reason": untrusted.text(500),
    "skipped": untrusted.BOOLEAN,
    "tier": untrusted.text(60),
    "because": untrusted.text(500),
}
_GIVEN = {
    "key": untrusted.text(60),
    "letter": untrusted.one_of(forms.LETTERS),
    "right": untrusted.BOOLEAN,
    "at": untrusted.text(40),
}
_HAND_IN = untrusted.fields(
    {
        "version": untrusted.anything,
        "name": untrusted.text(80),
        "machine": untrusted.text(),
        "passed": untrusted.array(untrusted.text(12), most=1000),
        "finished": untrusted.array(untrusted.text(12), most=1000),
        "stopped": untrusted.text(60),
        "entries": untrusted.array(untrusted.fields(_ENTRY, optional=("others",)), most=500),
        "answers": untrusted.array(untrusted.fields(_GIVEN), most=5000),
        "games": untrusted.mapping(untrusted.mapping(_game_value, most=50), most=200),
    }
)
