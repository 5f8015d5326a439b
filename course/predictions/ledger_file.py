"""The learner's file: what was asked, committed, seen, kept and passed; one JSON line for each.

It lies in `work/ledger.jsonl`, or where LABKIT_LEDGER says. This module alone writes it. Lines are
only ever added, each in one write, so that two notebooks may write at once and nothing is ever
lost. A line that cannot be read is left out, and stays; `Book.left_out` says which and why.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from course.catalogue import ROOT
from course.other_programs import DISTURBED
from course.predictions.figures import RATIOS, in_words, lettered, written
from course.runs import nobody_answers
from labkit.measure.records import for_its_owner

VERSION = 1  # of a line; what a later version of the course wrote is left out
BENT = 10
"""Times by which other programs may make a figure wrong. Beside up to four busy loops, which got
one of two CPUs, all_reduces of 4 bytes to 16 MiB took 0.5 to 1.8 times as long: medians of 30."""
STANDING = "still standing"  # what a board says of a suspect that was judged and has not fallen


TEXT, FIGURE, ANSWER = (str,), (int, float, NoneType), (str, int, float, NoneType)
LINES: dict[str, dict[str, tuple[type, ...]]] = {
    "asked": {"question": TEXT, "unit": TEXT, "options": (list,), "also": TEXT},
    "committed": {"answer": ANSWER, "low": FIGURE, "high": FIGURE, "reason": TEXT},
    **{what: {} for what in ("skipped", "opened", "talked", "finished", "passed")},
    "seen": {"measured": ANSWER, "model": FIGURE, "tier": TEXT, "because": TEXT, "others": FIGURE},
    "judged": {"measured": TEXT, "fates": (dict,)},
    "answered": {"letter": TEXT, "right": (bool,)},
    "kept": {"values": (dict,)},
}
"""What a line says -> its fields besides `key` and `at`, with the types that they may have."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A question, what was committed before its result was seen, and the result.

    Of a vote, `answer`, `after` and `measured` are letters; of a prediction, figures in `unit`.
    """

    key: str
    question: str
    unit: str = ""
    options: list[str] = field(default_factory=list)
    """Of a vote, in the order of their letters; empty for a prediction."""
    answer: float | str | None = None
    low: float | None = None
    high: float | None = None  # the range in which the learner is 80 % sure to find the result
    reason: str = ""
    skipped: bool = False
    talked: bool = False  # whether a second vote was called for, after talk and before the result
    second: float | str | None = None  # what was committed last in that second vote
    after: float | str | None = None  # what was committed last when the result had been seen
    measured: float | str | None = None
    """The first result that was seen on a calm machine; until there is one, the last."""
    model: float | None = None
    tier: str = ""
    because: str = ""
    others: float | None = None
    """CPUs that other programs used while the result was measured, where these were too many."""
    fates: dict[str, str] | None = None
    """Of a vote on a board: letter -> `still standing` or `fell, by A`, of those that were judged;
    `measured` then says which are left: `c or d`."""
    also: str = ""  # what its form asks besides the answer: `range`, `reason` or nothing
    opened: bool = False  # whether its gate has been passed, so that its result may have been seen

    @property
    def locked(self) -> bool:
        """Whether nothing can be committed: its gate has been passed, its result not been seen."""
        return self.opened and self.measured is None and not self.talked

    @property
    def committed(self) -> bool:
        """Whether something was committed before the result was seen."""
        return self.answer is not None

    @property
    def right(self) -> bool | None:
        """Whether the vote was right, or still stands; None where nothing has judged it yet."""
        return self._judged(self.answer)

    @property
    def last(self) -> str:
        """Where the last answer stands: `after`, `second` or `answer`."""
        given = (name for name in ("after", "second") if getattr(self, name) is not None)
        return next(given, "answer")

    @property
    def held(self) -> bool:
        """Whether the last vote is one that the result refutes."""
        return self._judged(getattr(self, self.last)) is False

    def _judged(self, vote: float | str | None) -> bool | None:
        if self.fates is not None:
            fate = self.fates.get(str(vote))
            return fate == STANDING if fate else None
        known = self.options and None not in (vote, self.measured)
        return vote == self.measured if known else None

    @property
    def disturbed(self) -> bool:
        """Whether other programs may have made the result what it is."""
        return (self.others or 0.0) > DISTURBED

    @property
    def miss(self) -> float | None:
        """How far the prediction is off, as a factor >= 1; None where a ratio makes no sense."""
        if isinstance(self.answer, str | None) or isinstance(self.measured, str | None):
            return None
        both = self.answer > 0 < self.measured
        return math.exp(abs(math.log(self.answer / self.measured))) if both else None

    @property
    def counts(self) -> bool:
        """Whether it is a prediction that says how well the learner predicts."""
        return self.miss is not None and not self.disturbed

    @property
    def explained(self) -> bool:
        """Whether other programs alone may be why the prediction is off."""
        return self.disturbed and (self.miss or 0.0) <= BENT

    @property
    def inside(self) -> bool | None:
        """Whether the result lies in the learner's range; None without a range or a calm result."""
        if None in (self.low, self.high, self.measured) or self.disturbed:
            return None
        return self.low <= self.measured <= self.high

    def after_line(self, what: str, values: dict[str, Any]) -> Entry:
        """Return the question as it is when a line has said more of it."""
        match what:
            case "skipped" | "opened" | "talked":
                return replace(self, **{what: True})
            case "seen" if self.measured is not None and not self.disturbed:
                return self
            case "committed" if self.measured is not None:
                return replace(self, after=values["answer"])
            case "committed" if self.opened and self.talked:
                return replace(self, second=values["answer"])
            case "committed" if self.opened:
                return self
        return replace(self, **values)  # of a board, which grows, the last verdict counts


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a question that has a right one: a warm-up, or one of the inventory."""

    key: str
    letter: str
    right: bool
    at: str  # ISO 8601, UTC


@dataclass(slots=True)
class Book:
    """What all lines of a learner's file come to."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """By key, in the order in which they were asked."""
    answers: list[Answer] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)  # exercises
    finished: dict[str, str] = field(default_factory=dict)
    """Lesson -> when it was run to its end first."""
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    """Number of a line that could not be read -> why."""

    def take(self, line: dict[str, Any]) -> None:
        """Add what one line says; `KeyError` or `TypeError` where it is none of ours."""
        kinds = {"key": TEXT, "at": TEXT} | LINES[line["what"]]
        values = {name: line[name] for name in kinds if name in line}
        if any(type(value) not in kinds[name] for name, value in values.items()):
            raise TypeError
        key, at = values.pop("key"), values.pop("at")
        match line["what"]:
            case "answered":
                self.answers.append(Answer(key, at=at, **values))
            case "passed":
                self.passed.add(key)
            case "finished":
                self.finished.setdefault(key, at)
            case "kept":
                self.kept[key] = values["values"]
            case _:
                entry = self.entries.get(key, Entry(key, key))
                self.entries[key] = entry.after_line(line["what"], values)

    def complaint(self) -> str:
        """Say in a line what was left out; nothing where all could be read."""
        some = [f"line {number} {why}" for number, why in list(self.left_out.items())[:3]]
        more = f" and {len(self.left_out) - 3} more" if len(self.left_out) > 3 else ""
        return f"Left out: {'; '.join(some)}{more}. All other lines count." if some else ""


def location() -> Path:
    """Return where the file lies: LABKIT_LEDGER, else `work/ledger.jsonl` of the course's folder.

    Where the course is installed without its notebooks, `work/` is the current folder's. Where
    nobody answers, no learner's file is written: it is one that ends with the process.
    """
    if named := os.environ.get("LABKIT_LEDGER"):
        return Path(named).expanduser()
    if nobody_answers():
        return Path(_thrown_away().name, "ledger.jsonl")
    home = ROOT if (ROOT / "notebooks").is_dir() else Path.cwd()
    return home / "work" / "ledger.jsonl"


@functools.cache
def _thrown_away() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ledger-")


def add(what: str, key: str, **values: Any) -> None:
    """Add a line; `OSError` where the file cannot be written says how to name another one."""
    line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": what, "key": key}
    text = json.dumps(line | values, ensure_ascii=False, allow_nan=False) + "\n"
    path = location()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b", buffering=0, opener=for_its_owner) as file:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            new = text.encode()
            if _cut_off(file):
                new = b"\n" + new  # else what is whole would end in what is not
            if file.write(new) != len(new):
                raise OSError("it was written in part")
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error}). Set LABKIT_LEDGER to a file that can be, "
            'like this: os.environ["LABKIT_LEDGER"] = "~/ledger.jsonl"'
        ) from None


def _cut_off(file: Any) -> bool:
    """Tell whether the last line of a file has no end: its writer was stopped."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def load(path: Path | None = None) -> Book:
    """Read the learner's file, or another; an empty book where there is none."""
    book, path = Book(), path or location()
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() knows other ends, too
        if not line.strip():
            continue
        try:
            read = json.loads(line)
            if read.get("version", VERSION) != VERSION:
                raise KeyError("version")
            book.take(read)
        except ValueError:
            book.left_out[number] = "is cut off"
        except (AttributeError, KeyError, TypeError):
            book.left_out[number] = "is of another version of the course"
    return book


def entry(key: str) -> Entry:
    """Return one question as the file has it; one without text where it was never asked."""
    return load().entries.get(key, Entry(key, key))


def ask(
    key: str, question: str, *, unit: str = "", options: Iterable[str] = (), also: str = ""
) -> Entry:
    """Note a question, unless the file has it in these words; return it."""
    fields = {"question": question, "unit": unit, "options": list(options), "also": also}
    old = load().entries.get(key)
    if old is None or any(getattr(old, name) != value for name, value in fields.items()):
        add("asked", key, **fields)
    return entry(key)


def commit(
    key: str,
    answer: float | str,
    *,
    low: float | None = None,
    high: float | None = None,
    reason: str = "",
) -> Entry:
    """Write an answer down; its question must have been asked.

    Until the gate of the question has been passed, a further answer takes the place of the first.
    A second vote, after talk, stands beside it.

    Raises:
        ValueError: It is no answer to this question, or the gate has been passed and the result
            not been seen.
    """
    old = entry(key)
    if old.options:
        letters = lettered(old.options)
        if answer not in letters:
            raise ValueError(f"choose one of {', '.join(letters)}.")
    elif not math.isfinite(answer):
        raise ValueError(f"a prediction is a finite number, got {answer}.")
    elif old.unit in RATIOS and answer <= 0:
        text = f"{written(answer)} {old.unit} is no ratio: write how many times, above 0."
        raise ValueError(f"{text} Half as much is 0.5 {old.unit}; no change is 1 {old.unit}.")
    elif (low is None) != (high is None):
        raise ValueError("a range has two ends: fill both, or none.")
    elif low is not None and not low <= answer <= high:
        ends = f"{written(low)} and {written(high)}"
        raise ValueError(f"your figure {written(answer)} is not between {ends}.")
    given = {"answer": answer, "low": low, "high": high, "reason": reason}
    if old.locked:
        if answer == old.answer:
            return old
        held = in_words(old) if old.committed else "you went on without an answer"
        raise ValueError(f"locked until you have seen the result: {held}.")
    again = old.measured is not None or old.talked
    if again or any(getattr(old, name) != value for name, value in given.items()):
        add("committed", key, **given)
    return entry(key)


def note(what: Literal["skipped", "opened", "talked"], key: str) -> Entry:
    """Note that a question was skipped, its gate passed, or a second vote called for; return it."""
    old = entry(key)
    if getattr(old, what) or (what == "skipped" and old.committed):
        return old
    add(what, key)
    return entry(key)
