from labkit.measure.tables import Table


def test_columns_line_up_figures_to_the_right():
    lines = str(Table(["name", "µs"], [["a", 1.0], ["longer", 1234.5678]])).splitlines()
    assert lines == ["name      µs", "------  ----", "a          1", "longer  1235"]
    assert str(Table(["x", "y"], [[None, "b"]])).splitlines()[2] == "   b"


def test_html_escapes_what_strangers_wrote():
    page = Table(["<b>"], [["<script>"]], title="a & b").html()
    assert "&lt;b&gt;" in page and "&lt;script&gt;" in page and "a &amp; b" in page
