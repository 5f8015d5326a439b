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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course.catalogue import ROOT
from course.other_programs import DISTURBED


@dataclass(frozen=True, slots=True)
class Entry:
    """A question, what was committed before its result was seen, and the result.

    Of a vote, `answer`, `after` and `measured` are letters; of a prediction, figures in `unit`.
    """

    key: str
    question: str
    unit: str = ""
    options: tuple[str, ...] = ()
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
    def decided(self) -> bool:
        """Whether a gate for it opens: committed, skipped, or seen already."""
        return self.committed or self.skipped or self.measured is not None

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
    passed: dict[str, str] = field(default_factory=dict)
    """Exercise -> when its check passed first."""
    finished: dict[str, str] = field(default_factory=dict)
    """Lesson -> when it was run to its end first."""
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """The question that was asked last, of those not yet reconciled; empty without one."""
        open_ones = [entry.key for entry in self.entries.values() if entry.measured is None]
        return open_ones[-1] if open_ones else ""

    def take(self, line: dict[str, Any]) -> None:
        """Add what one line says.

        Raises:
            KeyError, TypeError, ValueError: It is none of ours.
        """
        match line["what"]:
            case "answered":
                fields = {name: line[name] for name in ("key", "letter", "right", "at")}
                self.answers.append(Answer(**fields))
            case "passed" | "finished" as what:
                getattr(self, what).setdefault(line["key"], line["at"])
            case "kept":
                self.kept[line["key"]] = line["values"] | {"kept_at": line["at"]}
            case "asked" | "committed" | "skipped" | "seen" as what:
                self._take_entry(what, line)

    def _take_entry(self, what: str, line: dict[str, Any]) -> None:
        key = line["key"]
        entry = self.entries.get(key, Entry(key, key))
        if what == "asked":
            options = tuple(line.get("options", ()))
            entry = replace(
                entry, question=line["question"], unit=line.get("unit", ""), options=options
            )
        elif what == "skipped":
            entry = replace(entry, skipped=True)
        elif what == "seen" and (entry.measured is None or entry.disturbed):
            named = {name: line[name] for name in ("measured", "model", "tier", "because")}
            entry = replace(entry, **named, others=line.get("others"))
        elif what == "committed" and entry.measured is not None:
            entry = replace(entry, after=line["answer"])
        elif what == "committed" and not entry.committed:
            named = {name: line.get(name) for name in ("answer", "low", "high")}
            entry = replace(entry, **named, reason=line.get("reason", ""))
        self.entries[key] = entry


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
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            book.take(json.loads(line))
    return book


def entry(key: str) -> Entry:
    """Return one question as the file has it; one without text where it was never asked."""
    return load().entries.get(key, Entry(key, key))
