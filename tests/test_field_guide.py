"""The field guide sends to every case of the ward, and to commands that there are."""

import re
from pathlib import Path

from course.__main__ import COMMANDS
from course.lessons.casebook.cases import CASES

PAGES = [*map(Path, ("FIELD_GUIDE.md", "README.md", "INSTRUCTORS.md")), *Path("docs").glob("*.md")]


def test_its_rows_name_every_case():
    rows = [row for row in PAGES[0].read_text().splitlines() if re.match(r"\| \d \|", row)]
    places = " ".join(row.split("|")[-2] for row in rows)
    assert len(rows) == 8 and set(re.findall("`([^`]*)`", places)) == set(CASES)


def test_pages_name_commands_that_there_are():
    named = {word for page in PAGES for word in re.findall(r"-m course (\w+)", page.read_text())}
    assert named <= {*COMMANDS, "case"}
