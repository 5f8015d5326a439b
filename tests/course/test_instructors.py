"""INSTRUCTORS.md names cells of the lessons: they exist."""

import re

from course import catalogue, notebooks
from course.catalogue import ROOT

ROWS = re.compile(r"^\| (0\d\w?) \| \d+[^|]*\| `([\w-]+)`", re.MULTILINE)


def test_the_cell_never_to_skip_is_in_its_lesson():
    rows = dict(ROWS.findall((ROOT / "INSTRUCTORS.md").read_text()))
    lessons = {lesson.number: lesson for lesson in catalogue.find().values()}
    assert set(rows) == set(lessons)
    for number, name in rows.items():
        cells = notebooks.read(lessons[number].notebook(ROOT / "notebooks")).cells
        assert name in [cell.id for cell in cells], f"{number}: there is no cell {name}"
