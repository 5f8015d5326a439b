"""The learner's file: what was asked, committed, seen, kept and passed; one JSON line for each.

It lies in `work/ledger.jsonl`, or where LABKIT_LEDGER says. Lines are only ever added, each in one
write, so that two notebooks may write at once and nothing is ever lost. A line that cannot be read
is passed over.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course.catalogue import ROOT
from course.other_programs import DISTURBED

LETTERS = "abcdefgh"


def lettered(options: Iterable[str]) -> dict[str, str]:
    """Return the options with their letters: `{"a": "a) the network", ...}`."""
    return {letter: f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=False)}


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
    high: float | None = None
    """The range in which the learner is 80 % sure to find the result."""
    reason: str = ""
    skipped: bool = False
    after: float | str | None = None
    """What was committed last when the result had been seen."""
    measured: float | str | None = None
    """The first result that was seen on a calm machine; until there is one, the last."""
    model: float | None = None
    tier: str = ""
    because: str = ""
    others: float | None = None
    """CPUs that other programs used while the result was measured."""

    @property
    def committed(self) -> bool:
        """Whether something was committed before the result was seen."""
        return self.answer is not None

    @property
    def right(self) -> bool | None:
        """Whether the vote was right; None where there was none, or no result yet."""
        known = self.options and self.committed and self.measured is not None
        return self.answer == self.measured if known else None

    @property
    def held(self) -> bool:
        """Whether the last vote is one that the result refutes."""
        last = self.after if self.after is not None else self.answer
        return bool(self.options) and None not in (last, self.measured) and last != self.measured

    @property
    def disturbed(self) -> bool:
        """Whether other programs may have made the result what it is."""
        return (self.others or 0.0) > DISTURBED

    @property
    def counts(self) -> bool:
        """Whether it is a prediction that says how well the learner predicts."""
        if any(isinstance(one, str | None) for one in (self.answer, self.measured)):
            return False
        return self.answer > 0 < self.measured and not self.disturbed

    @property
    def miss(self) -> float:
        """How far the prediction is off, as a factor >= 1; defined where `counts`."""
        return math.exp(abs(math.log(self.answer / self.measured)))

    @property
    def inside(self) -> bool | None:
        """Whether the result lies in the learner's range; None without a range or a calm result."""
        if None in (self.low, self.high, self.measured) or self.disturbed:
            return None
        return self.low <= self.measured <= self.high

    def in_words(self, which: str = "answer") -> str:
        """Put `answer`, `after`, `measured` or `model` into words: `80 µs`, `b) none`."""
        value = getattr(self, which)
        if value is None:
            return "–"
        if isinstance(value, str):
            return lettered(self.options).get(value, value)
        text = f"{value:.4g} {self.unit}".strip()
        if which == "answer" and self.low is not None:
            text += f" ({self.low:.4g} to {self.high:.4g})"
        return text


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a question that has a right one: a warm-up, or one of the inventory."""

    key: str
    letter: str
    right: bool
    at: str
    """ISO 8601, UTC."""


@dataclass(slots=True)
class Book:
    """What all lines of a learner's file come to."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """By key, in the order in which they were asked."""
    answers: list[Answer] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    """Exercises."""
    finished: dict[str, str] = field(default_factory=dict)
    """Lesson -> when it was run to its end first."""
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, line: dict[str, Any]) -> None:
        """Add what one line says.

        Raises:
            KeyError, TypeError: It is none of ours.
        """
        key, at = line["key"], line["at"]
        match line["what"]:
            case "answered":
                self.answers.append(Answer(key, line["letter"], line["right"], at))
            case "passed":
                self.passed.add(key)
            case "finished":
                self.finished.setdefault(key, at)
            case "kept":
                self.kept[key] = line["values"]
            case "asked" | "committed" | "skipped" | "seen":
                entry = self.entries.get(key, Entry(key, key))
                self.entries[key] = replace(entry, **_changes(entry, line))


def _changes(entry: Entry, line: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry to which a line gives a new value."""
    match line["what"]:
        case "asked":
            names = ("question", "unit", "options")
        case "skipped":
            return {"skipped": True}
        case "seen" if entry.measured is None or entry.disturbed:
            names = ("measured", "model", "tier", "because", "others")
        case "committed" if entry.measured is not None:
            return {"after": line["answer"]}
        case "committed" if not entry.committed:
            names = ("answer", "low", "high", "reason")
        case _:
            return {}
    return {name: line[name] for name in names if name in line}


def location() -> Path:
    """Return where the file lies: LABKIT_LEDGER, else `work/ledger.jsonl` of the course's folder.

    Where the course is installed without its notebooks, `work/` is the current folder's.
    """
    if named := os.environ.get("LABKIT_LEDGER"):
        return Path(named).expanduser()
    home = ROOT if (ROOT / "notebooks").is_dir() else Path.cwd()
    return home / "work" / "ledger.jsonl"


def add(what: str, key: str, **values: Any) -> None:
    """Add a line.

    Raises:
        OSError: The file cannot be written; says how to name another one.
    """
    line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": what, "key": key}
    text = json.dumps(line | values, ensure_ascii=False, allow_nan=False) + "\n"
    path = location()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(text.encode())
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error}). Set LABKIT_LEDGER to a file that can be, "
            'like this: os.environ["LABKIT_LEDGER"] = "~/ledger.jsonl"'
        ) from None


def load(path: Path | None = None) -> Book:
    """Read the learner's file, or another; an empty book where there is none."""
    book, path = Book(), path or location()
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            book.take(json.loads(line))
    return book


def entry(key: str) -> Entry:
    """Return one question as the file has it; one without text where it was never asked."""
    return load().entries.get(key, Entry(key, key))


def commit(
    key: str,
    answer: float | str,
    *,
    low: float | None = None,
    high: float | None = None,
    reason: str = "",
) -> Entry:
    """Write an answer down; its question must have been asked.

    Raises:
        ValueError: It is no answer to this question, or another one is locked.
    """
    old = entry(key)
    if old.options:
        letters = lettered(old.options)
        if answer not in letters:
            raise ValueError(f"choose one of {', '.join(letters)}.")
    elif not math.isfinite(answer):
        raise ValueError(f"a prediction is a finite number, got {answer}.")
    elif (low is None) != (high is None):
        raise ValueError("a range has two ends: fill both, or none.")
    elif low is not None and not low <= answer <= high:
        raise ValueError(f"your figure {answer:g} is not between {low:g} and {high:g}.")
    if old.committed and old.measured is None:
        if answer == old.answer:
            return old
        raise ValueError(f"locked until you have seen the result: {old.in_words()}.")
    add("committed", key, answer=answer, low=low, high=high, reason=reason)
    return entry(key)
