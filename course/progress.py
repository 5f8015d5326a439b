"""`python -m course progress`: what was done, what is due, what is still believed; and the hand-in.

A hand-in holds answers, exercises passed, games and the kind of machine, and nothing else: no name
unless the learner types one, no paths, no host name. It is a small JSON file that one can read
before sending it.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, exceptions

from course import catalogue, exercises, forms, inventory, ledger, ledger_file
from course.catalogue import ROOT
from course.ledger_file import Answer, Book, Entry
from labkit.measure.untrusted import one_line
from labkit.ranks.machine import Machine

VERSION = 2
"""Of hand-ins, as in their schema, `questions/hand_in.schema.json`."""
MOST_BYTES = 8 * 2**20
"""Of a hand-in that is read."""
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
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"at most {MOST_BYTES} bytes are read")
        document = json.loads(text.decode(), parse_constant=_no_figure)
        if wrong := exceptions.best_match(_schema().iter_errors(document)):
            raise ValueError(f"{wrong.json_path}: {wrong.message}")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(one_line(f"{path} is no hand-in of this course: {error}")) from None
    del document["version"]
    lists = {name: tuple(document.pop(name)) for name in ("passed", "finished")}
    entries = tuple(
        Entry(**entry | {"options": tuple(entry["options"])}) for entry in document.pop("entries")
    )
    answers = tuple(Answer(**answer) for answer in document.pop("answers"))
    return HandIn(**document, **lists, entries=entries, answers=answers)


@functools.cache
def _schema() -> Draft202012Validator:
    path = Path(__file__).parent / "questions" / "hand_in.schema.json"
    return Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


def _no_figure(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no finite number")


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
