"""The field guide sends to every case of the ward."""

import re
from pathlib import Path

from course.lessons.casebook.cases import CASES


def test_its_rows_name_every_case():
    lines = Path("FIELD_GUIDE.md").read_text().splitlines()
    rows = [line for line in lines if re.match(r"\| \d \|", line)]
    places = " ".join(row.split("|")[-2] for row in rows)
    assert len(rows) == 8 and set(re.findall("`([^`]*)`", places)) == set(CASES)
