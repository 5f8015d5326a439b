"""What lessons say to who teaches them: the cells exist, and INSTRUCTORS.md has the rows."""

from pytest import mark

from course import catalogue
from course.catalogue import ROOT
from course.notebooks import files

LESSONS = [lesson for lesson in catalogue.find().values() if lesson.room]


@mark.parametrize("lesson", LESSONS, ids=[lesson.number for lesson in LESSONS])
def test_the_cell_never_to_skip_is_in_its_lesson(lesson):
    cells = files.read(lesson.notebook(ROOT / "notebooks")).cells
    assert lesson.room.cell in [cell.id for cell in cells]
    assert f"| {lesson.number} | {lesson.room} |" in (ROOT / "INSTRUCTORS.md").read_text()
