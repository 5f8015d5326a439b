"""`python -m course progress`: what was done, what is due, what is still believed; and the hand-in.

A hand-in holds answers, exercises passed, games and the kind of machine, and nothing else: no name
unless the learner types one, no paths, no host name. It is a small JSON file that one can read
before sending it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from course import catalogue
from course.catalogue import ROOT, Lesson
from course.notebooks import exercises
from course.predictions import forms, inventory, ledger, ledger_file
from course.predictions.figures import in_words
from course.predictions.ledger_file import Answer, Book, Entry
from labkit.measure.records import for_its_owner
from labkit.measure.untrusted import one_line
from labkit.ranks.machine import Machine

VERSION = 2  # of hand-ins, as in their schema
SCHEMA = ROOT / "course/predictions/questions/hand_in.schema.json"
MOST_BYTES = 2**20  # of a hand-in that is read
DAYS = (1, 3, 7)
"""A warm-up comes back so many days after its lesson, and after each right answer in a row."""


def summary(course: Path = ROOT) -> str:
    """Say what the ledger knows about a learner's way through the course."""
    book = ledger_file.load()
    entries, lines = list(book.entries.values()), []

    def line(number: str, title: str, count: str) -> None:
        state = "run to the end" if number in book.finished else "not finished"
        lines.append(f"{number:<4}{title:<44.44}  {state:<15}{count}".rstrip())

    for lesson in catalogue.find().values():
        passed = _passed(lesson, course, book)
        marks = "".join("■" if done else "□" for done in passed)
        count = f"{marks} {sum(passed)} of {len(passed)} exercises passed" if passed else ""
        line(lesson.number, lesson.title, count)
    if votes := [entry.committed for entry in entries if entry.key.startswith("ws.")]:
        line("ws", "The workshop", f"{sum(votes)} of {len(votes)} answered")
    if due := due_warmups(book):
        lines += ["", f"questions due, on the start page: {', '.join(due)}"]
    lines += ["", _votes(entries)]
    bets = [entry for entry in entries if entry.committed and not entry.options]
    misses = [entry.miss for entry in entries if entry.counts]
    lines.append(f"predictions: {len(bets)} made, {len(misses)} of them count")
    if len(misses) < len(bets):
        lines[-1] += " (not: without a result, 0 or less, or while other programs used the CPUs)"
    if misses:
        which = "half of them are within" if len(misses) > 1 else "it is off by"
        lines.append(f"{which} a factor of {statistics.median(misses):.2f}")
    if ranges := [entry.inside for entry in entries if entry.inside is not None]:
        lines.append(f"{sum(ranges)} of {len(ranges)} results lie in your 80 % ranges")
    refuted = [
        f"  {entry.key}: {in_words(entry, entry.last)}; the evidence: {in_words(entry, 'measured')}"
        for entry in entries
        if entry.held
    ]
    known = inventory.outcome(book.answers).items()
    refuted += [f"  the inventory: {name}" for name, right in known if right.get("after") is False]
    if refuted:
        lines += ["", "your last answer and the evidence differ:", *refuted]
    return "\n".join(lines)


def _votes(entries: Iterable[Entry]) -> str:
    cast = [entry.right for entry in entries if entry.options and entry.committed]
    if not cast:
        return "votes: none yet"
    judged = [right for right in cast if right is not None]
    waiting = f"; not judged yet: {cast.count(None)}" if None in cast else ""
    return f"votes: {sum(judged)} of {len(judged)} still stand{waiting}"


def _passed(lesson: Lesson, course: Path, book: Book) -> list[bool]:
    path = lesson.notebook(course / "exercises")
    return [number in book.passed for number in exercises.numbers(path)] if path else []


def course_map(course: Path = ROOT, *, above: str = "") -> str:
    """Return the way through the course as a table in Markdown, with links.

    `above` is the way from the page's folder to the one with `notebooks/`, like `"../"`.
    """
    book, rows, comes_next = ledger_file.load(), [], True
    due = Counter(key.partition(".")[0] for key in due_warmups(book))
    for lesson in catalogue.find().values():
        number, tasks = lesson.number, lesson.notebook(course / "exercises")
        page = lesson.notebook(course / "notebooks")
        title = f"[{lesson.title}]({above}notebooks/{page.name})" if page else lesson.title
        done = number in book.finished
        state = "✔" if done else "**◀ next**" if comes_next else ""
        comes_next = comes_next and done
        passed = _passed(lesson, course, book)
        link = f"[{sum(passed)} of {len(passed)}]({above}exercises/{tasks.name})" if tasks else ""
        about, late = lesson.minutes, due[number] or ""
        rows.append(f"| {number} | {title} | {about} | {state} | {link} | {late} |")
    head = "| | Lesson | Minutes | | Exercises passed | Questions due |\n|---|---|---|---|---|---|"
    return "\n".join([head, *rows])


def show_map() -> None:
    """Show the map of the course below a notebook's cell; outside a notebook print it."""
    text = course_map(above="" if Path("notebooks").is_dir() else "../")
    if not forms.in_notebook():
        print(text)
        return
    from IPython.display import Markdown, display

    display(Markdown(text))


def show_due() -> None:
    """Show the forms of questions that are due today, each of an older lesson; three at once."""
    due = due_warmups(ledger_file.load())
    more = " Here are three. Run this cell again for more." if len(due) > 3 else ""
    print(f"Questions due today: {len(due) or 'none'}.{more}")
    for key in due[:3]:
        ledger.warmup(key)


def due_warmups(book: Book, *, now: datetime | None = None) -> list[str]:
    """Name the warm-ups that are due, of lessons that were run to their end or asked before.

    A wrong answer starts over. After three right ones in a row it does not come back.
    """
    due, now = [], now or datetime.now(UTC)
    for key in ledger.warmups():
        answers = [answer for answer in book.answers if answer.key == key]
        start = answers[-1].at if answers else book.finished.get(key.partition(".")[0])
        rights = 0
        for answer in answers:
            rights = rights + 1 if answer.right else 0
        if start is None or rights >= len(DAYS):
            continue
        if now - datetime.fromisoformat(start) >= timedelta(days=DAYS[rights]):
            due.append(key)
    return due


@dataclass(frozen=True, slots=True)
class HandIn:
    """One learner's state of the course."""

    name: str  # as typed; empty for anonymous
    machine: str  # CPU model and number of cores
    passed: list[str]
    finished: list[str]
    stopped: str  # the question that was asked last and has no result yet; empty without one
    entries: list[Entry]
    answers: list[Answer]  # to warm-ups and the inventory
    games: dict[str, dict[str, Any]]  # what was kept of cases, by name


def hand_in(name: str = "") -> HandIn:
    """Collect the hand-in from this machine's ledger."""
    book, machine = ledger_file.load(), Machine.here()
    entries = list(book.entries.values())
    return HandIn(
        name=name[:80],
        machine=f"{machine.cpu_model}, {machine.cores:g} CPUs",
        passed=sorted(book.passed),
        finished=sorted(book.finished),
        stopped=next((entry.key for entry in reversed(entries) if entry.measured is None), ""),
        entries=entries,
        answers=book.answers,
        games={key: values for key, values in book.kept.items() if key.startswith("case.")},
    )


def save(hand_in: HandIn, path: Path) -> Path:
    """Write a hand-in as JSON; return the path."""
    with open(path, "w", encoding="utf-8", opener=for_its_owner) as file:
        file.write(json.dumps({"version": VERSION, **asdict(hand_in)}, indent=1) + "\n")
    return path


def load(path: Path) -> HandIn:
    """Read a hand-in that anybody may have written: nothing in it is trusted.

    Raises `ValueError` where it is none, or of another version: the file and why, in one line.
    """
    if not path.is_file():  # a pipe would keep whoever opens it waiting
        raise ValueError(one_line(f"{path} is no file"))
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"at most {MOST_BYTES} bytes are read")
        document = json.loads(text.decode(), parse_constant=str)  # NaN is no figure
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        errors = Draft202012Validator(schema).iter_errors(document)
        if wrong := next(errors, None):  # all errors of a million wrong answers take minutes
            raise ValueError(f"{wrong.json_path}: {wrong.message}")
    except OSError as error:
        raise ValueError(one_line(f"{path}: {error.strerror or error}")) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(one_line(f"{path} is no hand-in of this course: {error}")) from None
    del document["version"]
    document["entries"] = [Entry(**entry) for entry in document["entries"]]
    document["answers"] = [Answer(**answer) for answer in document["answers"]]
    return HandIn(**document)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    file = Path("hand-in.json")
    purpose = f"write a small JSON file for your instructor ({file})"
    parser.add_argument("--hand-in", type=Path, metavar="FILE", nargs="?", const=file, help=purpose)
    parser.add_argument("--name", default="", help="a name to hand in under (none if not given)")


def main(options: argparse.Namespace) -> int:
    """Print the learner's progress, and write the hand-in if it is asked for; return 0."""
    print(summary())
    print(f"\nkept in {ledger_file.location()}")
    if complaint := ledger_file.load().complaint():
        print(complaint)
    if options.hand_in:
        print(f"to hand in: {save(hand_in(options.name), options.hand_in)}")
    return 0
