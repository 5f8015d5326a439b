import random
import re

from pytest import fixture

from course import classroom, ledger, progress
from course.__main__ import main
from labkit.show.alt_text import tables_of


@fixture(autouse=True)
def book(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))


def learner(number, folder):
    """Somebody's hand-in: a synthetic one."""
    draw = random.Random(number)
    ledger.predict("01.slope", "How much per <pair>?", "µs", value=draw.lognormvariate(4, 1))
    ledger.reconcile("01.slope", 100.0 * draw.uniform(0.8, 1.2), tier="MEASURED")
    ledger.keep("passport", {"alpha": draw.uniform(1e-5, 5e-5), "beta": draw.uniform(2e-10, 1e-9)})
    ledger.passed("1.1")
    made = progress.hand_in(name="Ada <b>" if number == 0 else "")
    return progress.save(made, folder / f"{number}.json")


def test_a_class_of_thirty_becomes_one_page(tmp_path, monkeypatch, capsys):
    files = []
    for number in range(30):
        monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / f"ledger-{number}.json"))
        files.append(str(learner(number, tmp_path)))
    out = tmp_path / "class.html"
    (tmp_path / "bad.json").write_text('{"version": 1}')
    assert main(["class", *files, str(tmp_path / "bad.json"), "--out", str(out)]) == 0
    assert "bad.json is no hand-in" in capsys.readouterr().err
    page = out.read_text()
    assert "A class of 30" in page
    assert "How much per &lt;pair&gt;?" in page and "Ada &lt;b&gt;" in page
    assert page.count("<img ") == 2 and "30 machines of" in page
    assert not re.search(r'(src|href)="http', page), "nothing from the network"


def test_the_histogram_counts_everybody_once():
    pairs = [(100, 100), (120, 100), (200, 100), (25, 100), (1e9, 1.0), (1e-9, 1.0)]
    (table,) = tables_of(classroom.draw_predictions("?", pairs))
    counts = {name: count for name, count in table.rows if count}
    assert counts == {"right size": 2, "2×": 1, "1/4": 1, "128×": 1, "1/128": 1}


def test_an_empty_class_is_a_page_too():
    nobody = progress.HandIn("", "m", {}, (), (), ())
    assert "0 of 1 machines" in str(classroom.page([nobody]))
