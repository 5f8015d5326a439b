"""The cases: `cases.json` says what was reported, which program shows it here, who is suspected."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from course import ledger_file, published
from course.lessons.casebook import on_links, programs, readings
from course.lessons.casebook.ward import Case, Ending, Suspect
from labkit.fabric.fabric import Fabric

REPORTED = published.load("casebook")
_MODULES = {"programs": programs, "on_links": on_links}


def load(name: str) -> dict[str, Any]:
    """Read a data file of the ward."""
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def suspects(listed: Mapping[str, dict]) -> dict[str, Suspect]:
    """Make suspects: `reading` names a function of `readings`, `of` holds its arguments."""
    made = {}
    for key, one in listed.items():
        fields = dict(one)
        reading = getattr(readings, fields.pop("reading"))
        made[key] = Suspect(**fields | {"reading": partial(reading, **fields.pop("of", {}))})
    return made


def _function(name: str) -> Any:
    module, _, function = name.partition(".")
    return getattr(_MODULES[module], function)


def _case(name: str, fields: dict[str, Any]) -> Case:
    links = fields.pop("links", None)
    functions = {
        part: _function(fields[part])
        for part in ("program", "fault", "cure", "costs")
        if part in fields
    }
    made = {
        "symptom": tuple(fields["symptom"]),
        "suspects": suspects(fields["suspects"]),
        "ending": Ending(**fields["ending"]),
        "fabric": partial(Fabric.star, **links) if links else None,
    }
    return Case(name=name, **fields | functions | made)


CASES: dict[str, Case] = {name: _case(name, fields) for name, fields in load("cases.json").items()}
"""By name."""


def dealt() -> list[Case]:
    """Return the cases whose lesson was run to its end, as the ledger knows."""
    finished = ledger_file.load().finished
    return [case for case in CASES.values() if case.lesson in finished]


def reported_in(case: Case) -> str:
    """Say where a case was reported, without the title of the thread: titles tell."""
    first = REPORTED[case.symptom[0]].source
    owner, name, *_ = first.address.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}, {first.when}"
