"""What a learner hands in: predictions, exercises passed, the machine's passport. Nothing else.

No name unless the learner types one, no paths, no host name: a small JSON file that one can read
before sending it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.course import ledger_file
from labkit.course.ledger_file import Entry
from labkit.launch.machine import Machine

VERSION = 1
_FIGURES = ("predicted", "model", "measured")


@dataclass(frozen=True, slots=True)
class HandIn:
    """One learner's state of the course."""

    name: str
    """As typed; empty for anonymous."""
    machine: str
    """CPU model and number of cores."""
    passport: dict[str, float]
    """The figures of lesson 00: `alpha`, `beta`, ... in seconds and bytes; empty without it."""
    passed: tuple[str, ...]
    finished: tuple[str, ...]
    entries: tuple[Entry, ...]


def here(name: str = "") -> HandIn:
    """Collect the hand-in from this machine's ledger."""
    book, machine = ledger_file.load(), Machine.here()
    kept = book["kept"].get("passport", {})
    return HandIn(
        name=name,
        machine=f"{machine.cpu_model}, {machine.cores:g} CPUs",
        passport={key: float(value) for key, value in kept.items() if _is_figure(value)},
        passed=tuple(sorted(book["passed"])),
        finished=tuple(sorted(book["finished"])),
        entries=ledger_file.entries(book),
    )


def save(hand_in: HandIn, path: Path) -> Path:
    """Write a hand-in as JSON; return the path."""
    path.write_text(json.dumps({"version": VERSION, **asdict(hand_in)}, indent=1) + "\n")
    return path


def load(path: Path) -> HandIn:
    """Read a hand-in that anybody may have written: nothing in it is trusted.

    Raises:
        ValueError: It is none, or of another version; names the file and what is wrong.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}, this labkit reads {VERSION}")
        return HandIn(
            name=str(document["name"])[:80],
            machine=str(document["machine"])[:120],
            passport={str(k): _figure(v) for k, v in document["passport"].items()},
            passed=tuple(str(number)[:12] for number in document["passed"]),
            finished=tuple(str(number)[:12] for number in document["finished"]),
            entries=tuple(_entry(entry) for entry in document["entries"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no hand-in of this course: {error}") from error


def load_all(paths: Iterable[Path]) -> tuple[list[HandIn], list[str]]:
    """Read many; return those that could be read, and a message for each that could not."""
    good, bad = [], []
    for path in paths:
        try:
            good.append(load(path))
        except ValueError as error:
            bad.append(str(error))
    return good, bad


def _entry(fields: dict[str, Any]) -> Entry:
    texts = {key: str(fields[key])[:300] for key in ("key", "question", "unit", "tier")}
    figures = {key: None if fields[key] is None else _figure(fields[key]) for key in _FIGURES}
    return Entry(**texts, **figures, late=bool(fields["late"]))


def _figure(value: Any) -> float:
    if not _is_figure(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
