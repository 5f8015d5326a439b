import pytest

from labkit.measure.tables import Table


def test_columns_line_up_figures_to_the_right():
    lines = str(Table(["name", "µs"], [["a", 1.0], ["longer", 1234.5678]])).splitlines()
    assert lines == ["name      µs", "------  ----", "a          1", "longer  1235"]
    assert str(Table(["x", "y"], [[None, "b"]])).splitlines()[2] == "   b"


def test_html_escapes_what_strangers_wrote():
    page = Table(["<b>"], [["<script>"]], title="a & b").html()
    assert "&lt;b&gt;" in page and "&lt;script&gt;" in page and "a &amp; b" in page


FIGURES = {12345.678: "12,346", 9999.7: "10,000", 9999.4: "9999", 1048576: "1,048,576"}
OTHERS = {True: "True", float("nan"): "nan", "1e7": "1e7"}


@pytest.mark.parametrize(("value", "shown"), [*FIGURES.items(), *OTHERS.items()])
def test_large_figures_are_written_in_full_with_separators(value, shown):
    assert str(Table(["x"], [[value]])).splitlines()[-1].strip() == shown
    assert f">{shown}<" in Table(["x"], [[value]]).html()
