"""The cases: `cases.json` says what was reported, which program shows it here, who is suspected."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from course import ledger_file, published
from course.lessons.casebook import programs, readings
from course.lessons.casebook.ward import Case, Ending, Suspect
from labkit.fabric.fabric import Fabric

REPORTED = published.load("casebook")


def load(name: str) -> Any:
    """Read a data file of the ward."""
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _case(name: str, fields: dict[str, Any]) -> Case:
    """Make a case; what it mends is its slow `phase` unless it names another `cost`."""
    links, phase = fields.pop("links", None), fields.pop("phase", None)
    made = {
        part: getattr(programs, fields[part])
        for part in ("program", "fault", "cure", "cost")
        if part in fields
    }
    if phase:
        made["cost"] = partial(readings.slowest, phase=phase)
        made["cost_name"] = f"{phase}, slowest rank (ms)"
    made["suspects"] = {key: Suspect(**one) for key, one in fields["suspects"].items()}
    made["ending"] = Ending(**fields["ending"])
    if links:
        made["fabric"] = partial(Fabric.star, **links)
    return Case(name=name, **fields | made)


CASES: dict[str, Case] = {name: _case(name, fields) for name, fields in load("cases.json").items()}
"""By name."""
STORIES: list[dict[str, Any]] = load("stories.json")
"""Slow jobs that cannot be played honestly here: title, figures, question, options, what is known.

The figures' names are of `published.json`; `right` is the place of the option that the source
supports, `because` says how far.
"""


def dealt() -> list[Case]:
    """Return the cases whose lesson was run to its end, as the ledger knows."""
    finished = ledger_file.load().finished
    return [case for case in CASES.values() if case.lesson in finished]


def reported_in(case: Case) -> str:
    """Say where a case was reported, without the title of the thread: titles tell."""
    first = REPORTED[case.symptom[0]].source
    owner, name, *_ = first.address.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}, {first.when}"
