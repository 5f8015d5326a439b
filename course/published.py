"""Figures that somebody else published: each with its unit, its words and its address.

A lesson keeps its own in one file, ``published.json``: a name for each figure, and under it
``value`` (a number, or a list that stands together), ``unit``, ``quotation`` and ``source``, which
has ``title``, ``address`` and ``when``. A source of several figures may stand once, by name, under
``"sources"``; a figure then gives the name.
"""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_LESSONS = Path(__file__).with_name("lessons")


@dataclass(frozen=True, slots=True)
class Source:
    """Where something was published."""

    title: str
    address: str  # a URL: whoever follows it finds the figure
    when: str  # the date, or the commit, of what was read

    def __str__(self) -> str:
        """Say it as a picture can, where nobody can click: without the path inside the site."""
        site = re.sub(r"https://|/(?:blob|tree)/.*|(?<=/t/)[\w-]+/(?=\d+$)", "", self.address)
        return f"{self.title} ({self.when}), {site}"


@dataclass(frozen=True, slots=True)
class Published:
    """A figure, or several that stand together, as a source states it."""

    value: float | tuple[float, ...]
    unit: str  # as the source writes it: "ms", "GB/s"
    quotation: str  # the source's own words around the figure, verbatim and short
    source: Source


@functools.cache
def load(lesson: str) -> MappingProxyType[str, Published]:
    """Load a lesson's published figures: ``load("gradient_all_reduce")["benchmark"].value``."""
    entries = json.loads((_LESSONS / lesson / "published.json").read_text(encoding="utf-8"))
    shared = entries.pop("sources", {})
    for entry in entries.values():
        value, source = entry["value"], entry["source"]
        entry["value"] = tuple(value) if isinstance(value, list) else value
        entry["source"] = Source(**(shared[source] if isinstance(source, str) else source))
    return MappingProxyType({name: Published(**entry) for name, entry in entries.items()})
