"""The field guide's rows: `field_guide.json`, from which come the page's table and `triage`."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course.catalogue import ROOT

PAGE = ROOT / "FIELD_GUIDE.md"
_ROWS = Path(__file__).with_suffix(".json")
_HEAD = "| row | ask | measure | if so | learn it, play it |\n|---|---|---|---|---|\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the field guide; its texts are Markdown."""

    row: int
    suspect: str
    """Who it is, in a few words: on the board."""
    ask: str
    measure: str
    if_so: str
    """What helps if that is it."""
    lessons: tuple[str, ...]
    """Their numbers: `05b`."""
    cases: tuple[str, ...]
    """Of the ward."""

    def __str__(self) -> str:
        """Write it as a row of the page's table."""
        links = ", ".join(f"[{one}](notebooks/{_notebook(one)})" for one in self.lessons)
        cases = ", ".join(f"`{case}`" for case in self.cases)
        places = f"{links}: {cases}" if cases else links
        return f"| {self.row} | {self.ask} | {self.measure} | {self.if_so} | {places} |"


@cache
def rows() -> dict[int, Row]:
    """Return the rows, by number."""
    documents = json.loads(_ROWS.read_text(encoding="utf-8"))
    lists = ("lessons", "cases")
    made = [Row(**one | {name: tuple(one[name]) for name in lists}) for one in documents]
    return {one.row: one for one in made}


def plain(text: str) -> str:
    """Return Markdown as a terminal shows it: without emphasis, marks of code and addresses."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("*", "").replace("`", "")


def sync(page: Path = PAGE) -> list[Path]:
    """Write the table into the page; return the page if that changed it.

    Raises:
        ValueError: There is no such table in the page.
    """
    text = page.read_text(encoding="utf-8")
    table = _HEAD + "".join(f"{row}\n" for row in rows().values())
    synced, count = _TABLE.subn(lambda _: table, text)
    if count != 1:
        raise ValueError(f"{page} has {count} tables that begin with {_HEAD.splitlines()[0]!r}.")
    if synced == text:
        return []
    page.write_text(synced, encoding="utf-8")
    return [page]


def _notebook(lesson: str) -> str:
    return next((ROOT / "notebooks").glob(f"{lesson}_*.ipynb")).name
