"""The learner's one JSON file: read, changed and written whole, so that it is never half written.

It lies in `work/ledger.json`, or where LABKIT_LEDGER says. A file that cannot be read (damaged, or
of a later version) is set aside under another name, with a message; nothing is ever deleted.
"""

import contextlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock

from course.catalogue import ROOT

VERSION = 1
SECTIONS = ("predictions", "measurements", "passed", "finished", "kept")

_unsaved: dict[Path, dict[str, Any]] = {}
"""Ledgers whose folder cannot be written, for as long as this process lives."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A question with what was predicted, modelled and measured."""

    key: str
    question: str
    unit: str
    predicted: float | None = None
    late: bool = False
    """Whether the prediction was made when a measurement had been seen."""
    model: float | None = None
    measured: float | None = None
    tier: str = ""

    @property
    def counts(self) -> bool:
        """Whether it says something about how well the learner predicts."""
        return (
            self.predicted is not None
            and self.measured is not None
            and not self.late
            and self.predicted > 0 < self.measured
        )

    @property
    def miss(self) -> float:
        """How far the prediction is off, as a factor >= 1; defined where `counts`."""
        return math.exp(abs(math.log(self.predicted / self.measured)))


def entry(book: dict[str, Any], key: str) -> Entry:
    """Return one question of a ledger."""
    made = book["predictions"].get(key, {})
    result = book["measurements"].get(key, {})
    return Entry(
        key=key,
        question=made.get("question", key),
        unit=made.get("unit", ""),
        predicted=made.get("value"),
        late=made.get("late", False),
        model=result.get("model"),
        measured=result.get("measured"),
        tier=result.get("tier", ""),
    )


def entries(book: dict[str, Any]) -> tuple[Entry, ...]:
    """Return all questions of a ledger, in the order of their keys."""
    return tuple(entry(book, key) for key in sorted({*book["predictions"], *book["measurements"]}))


def location() -> Path:
    """Return where the ledger lies: LABKIT_LEDGER, else `work/ledger.json` of the course's folder.

    Where labkit is installed without the course around it, `work/` is the current folder's.
    """
    if named := os.environ.get("LABKIT_LEDGER"):
        return Path(named).expanduser()
    home = ROOT if (ROOT / "notebooks").is_dir() else Path.cwd()
    return home / "work" / "ledger.json"


def empty() -> dict[str, Any]:
    """Return a ledger with nothing in it."""
    return {"version": VERSION, **{section: {} for section in SECTIONS}}


def load(path: Path | None = None) -> dict[str, Any]:
    """Read the ledger; an empty one where there is no file, or none that can be read."""
    path = path or location()
    if path in _unsaved:
        return _unsaved[path]
    try:
        return _checked(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return empty()
    except (ValueError, OSError, RecursionError) as error:
        _set_aside(path, error)
        return empty()


@contextlib.contextmanager
def change(path: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the ledger and write it back, with other notebooks kept out meanwhile.

    Where it cannot be written it is kept in memory, with a message, and the lesson goes on.
    """
    path = path or location()
    with contextlib.ExitStack() as stack:
        if path not in _unsaved:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = path.with_name(f".{path.name}.lock")
                stack.enter_context(filelock.FileLock(lock, timeout=30))
            except OSError as error:
                _keep_in_memory(empty(), path, error)
        book = load(path)
        yield book
        if path in _unsaved:
            return
        try:
            _write(book, path)
        except OSError as error:
            _keep_in_memory(book, path, error)


def now() -> str:
    """Return the time as the ledger writes it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _checked(book: Any) -> dict[str, Any]:
    if not isinstance(book, dict) or book.get("version") != VERSION:
        found = book.get("version") if isinstance(book, dict) else type(book).__name__
        raise ValueError(f"expected a ledger of version {VERSION}, found {found!r}")
    if wrong := [name for name in SECTIONS if not isinstance(book.get(name, {}), dict)]:
        raise ValueError(f"these sections are no tables: {', '.join(wrong)}")
    return empty() | book


def _write(book: dict[str, Any], path: Path) -> None:
    """Write beside the file, then replace it in one step: a reader sees the old or the new one."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".ledger-", suffix=".json", delete=False, encoding="utf-8"
    ) as file:
        json.dump(book, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


def _keep_in_memory(book: dict[str, Any], path: Path, error: OSError) -> None:
    _unsaved[path] = book
    _say(
        f"the ledger {path} cannot be written ({error}). It is kept until this kernel ends; "
        "set LABKIT_LEDGER to a file that can be written."
    )


def _set_aside(path: Path, error: Exception) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    aside = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    try:
        path.replace(aside)
        kept = f" It was kept as {aside.name};"
    except OSError:
        kept = ""
    _say(f"the ledger {path} cannot be read ({error}).{kept} a new one starts empty.")


def _say(text: str) -> None:
    print(f"labkit: {text}", file=sys.stderr)
