"""The learner's working copies: made once, refreshed when the course changes, never overwritten.

A copy counts as the learner's own as soon as a cell's text differs from what was copied; outputs
alone do not count. When the course changes a notebook that the learner changed too, the new version
is put beside it as `NAME.new.ipynb`. A copy that was deleted is made again: that is how to start
a notebook afresh.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.course import canonical

FOLDERS = ("notebooks", "exercises", "solutions")
_MANIFEST = ".copies.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one copy."""

    name: str
    """Path below the working folder."""
    what: str
    """`new`, `updated`, or `beside`: it is the learner's own, the new version was put beside it."""


def refresh(course: Path, work: Path) -> list[Outcome]:
    """Bring the working folder up to date.

    Args:
        course: The folder with `notebooks/`, `exercises/`, `solutions/`.
        work: The learner's folder; made if it is not there.

    Returns:
        What happened to each copy where something did, in order.
    """
    work.mkdir(exist_ok=True)
    manifest = _read(work / _MANIFEST)
    outcomes = [
        outcome for name in _names(course) if (outcome := _one(course, work, name, manifest))
    ]
    (work / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return outcomes


def told(outcomes: list[Outcome]) -> Iterator[str]:
    """Say what is new, in lines."""
    words = {
        "new": "copied",
        "updated": "brought up to date",
        "beside": "yours, kept; the course's new version is beside it as",
    }
    for outcome in outcomes:
        beside = f" {_beside(Path(outcome.name)).name}" if outcome.what == "beside" else ""
        yield f"work/{outcome.name}: {words[outcome.what]}{beside}"
    if not outcomes:
        yield "work/ is up to date."


def _names(course: Path) -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((course / folder).glob("*.ipynb")):
            yield f"{folder}/{path.name}"


def _one(course: Path, work: Path, name: str, manifest: dict[str, str]) -> Outcome | None:
    source, copy = course / name, work / name
    now, copied = _fingerprint(source), manifest.get(name)
    mine = _fingerprint(copy) if copy.exists() else None
    manifest[name] = now
    if mine == now:
        return None
    if mine not in (None, copied):  # the learner's own
        if copied == now:
            return None
        shutil.copyfile(source, _beside(copy))
        return Outcome(name, "beside")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, copy)
    return Outcome(name, "new" if mine is None else "updated")


def _beside(copy: Path) -> Path:
    return copy.with_suffix(".new.ipynb")


def _fingerprint(path: Path) -> str:
    """Hash the cells' kinds and texts; a file that cannot be read as a notebook by its bytes."""
    try:
        cells = [(cell.cell_type, cell.source) for cell in canonical.read(path).cells]
    except ValueError:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def _read(path: Path) -> dict[str, str]:
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
