"""The field guide sends to every case of the ward, is short, and harms no other job."""

import re
from pathlib import Path

from course.lessons.casebook.cases import CASES


def test_its_rows_name_every_case():
    lines = Path("FIELD_GUIDE.md").read_text().splitlines()
    rows = [line for line in lines if re.match(r"\| \d \|", line)]
    places = " ".join(row.split("|")[-2] for row in rows)
    assert len(rows) == 8 and set(re.findall("`([^`]*)`", places)) == set(CASES)


def test_it_is_a_page_for_the_night():
    text = Path("FIELD_GUIDE.md").read_text()
    assert len(text.split()) <= 1400
    assert text[: text.index("```bash")].count("\n") < 10, "a screen to the first command"
    assert not re.search(r"\brm\b", text), "what lies there may be another job's"
