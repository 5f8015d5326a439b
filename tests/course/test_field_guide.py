"""The rows are data; the page's table is written from them, and stays one page."""

from pytest import raises

from course import field_guide
from course.lessons.casebook.cases import CASES

TEXT = field_guide.PAGE.read_text()


def test_the_page_holds_the_rows_as_they_are(tmp_path):
    page = tmp_path / "GUIDE.md"
    page.write_text(TEXT)
    assert field_guide.sync(page) == [], "python -m course sync"
    page.write_text(TEXT.replace("Is it communication?", "Is it computing?"))
    assert field_guide.sync(page) == [page] and page.read_text() == TEXT
    page.write_text("no table")
    with raises(ValueError, match="has 0 tables"):
        field_guide.sync(page)


def test_there_are_eight_rows_and_every_case_is_in_them():
    rows = field_guide.rows()
    assert sorted(rows) == [*range(1, 9)]
    assert all(row.ask and row.measure and row.if_so and row.suspect for row in rows.values())
    assert {name for row in rows.values() for name in row.cases} == set(CASES)


def test_a_terminal_gets_the_words_without_marks():
    plain = field_guide.plain("the **first** `WARN`, [`ras`](https://x.y/z)")
    assert plain == "the first WARN, ras"
