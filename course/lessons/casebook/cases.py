"""The cases: `cases.json` says what was reported, which program shows it here, who is suspected."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from course import published
from course.lessons.casebook import programs, readings
from course.lessons.casebook.ward import Case, Ending, Suspect, course_of
from course.predictions import ledger_file
from labkit.fabric.fabric import Fabric
from labkit.measure.tables import Table

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
    cited = [REPORTED[figure].source for figure in fields["symptom"]]
    made["sources"] = list({source.address: source for source in cited}.values())
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


def overview() -> Table:
    """Return what there is to play, after which lesson it comes, and how it went so far."""
    book = ledger_file.load()
    rows = [
        [
            case.name, case.title, case.lesson,
            "finished" if case.lesson in book.finished else "not yet finished",
            course_of(book.kept.get(f"case.{case.name}", {})) or "not begun",
        ]
        for case in CASES.values()
    ]  # fmt: skip
    return Table(["case", "what people saw", "belongs to lesson", "that lesson", "you"], rows)


def reported_in(case: Case) -> str:
    """Say where a case was reported, without the title of the thread: titles tell."""
    first = case.sources[0]
    owner, name, *_ = first.address.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}, {first.when}"
