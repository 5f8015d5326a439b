from nbformat.v4 import new_notebook
from pytest import approx, fixture

from labkit.course import calibration, canonical, exercises, ledger, progress
from labkit.show import alt_text
from tests.course.samples import cell, solutions


@fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    title = cell("title", "# Why is it slow?\n\nBecause.", kind="markdown")
    for number in ("00", "01"):
        canonical.write(new_notebook(cells=[title]), tmp_path / f"notebooks/{number}_a.ipynb")
    canonical.write(exercises.derive(solutions()), tmp_path / "exercises/01_a.ipynb")
    return tmp_path


def test_a_new_learner_has_everything_ahead(course):
    first, second = progress.here(course).steps
    assert (first.number, first.title, first.exercises) == ("00", "Why is it slow?", ())
    assert (second.exercises, second.passed, second.finished) == (("1.1",), (), False)


def test_what_was_done_is_told(course):
    ledger.finished("01")
    ledger.passed("1.1")
    ledger.passed("9.9")
    text = str(progress.here(course))
    assert "run to the end" in text and "■ 1 of 1 exercises passed" in text
    assert "9.9" not in text, "an exercise of another course"


def test_only_honest_predictions_count(course):
    for key, predicted, measured in [("a", 10, 20), ("b", 30, 10), ("zero", 0, 5)]:
        ledger.predict(key, "?", "µs", value=predicted)
        ledger.reconcile(key, measured)
    ledger.reconcile("late", 5)
    ledger.predict("late", "?", "µs", value=5)
    mine = progress.here(course)
    assert progress.calibration(mine) == [("a", 10, 20), ("b", 30, 10)]
    assert mine.typical_miss == approx(2.5)
    assert "predictions: 4 made, 2 of them count" in str(mine)


def test_the_calibration_curve_tells_the_same():
    ax = calibration.draw([("a", 10.0, 20.0), ("b", 30.0, 10.0)])
    assert alt_text.text_of(ax).startswith("1 of 2 predictions")
    assert alt_text.tables_of(ax)[0].rows[1] == ("b", 30.0, 10.0, 3.0)
    assert alt_text.to_html(calibration.draw([])), "nobody predicted anything"


def test_every_lesson_says_that_it_was_run_to_its_end():
    for path in sorted((progress.ROOT / "notebooks").glob("*.ipynb")):
        code = "\n".join(cell.source for cell in canonical.read(path).cells)
        assert f'finished("{path.stem[:2]}")' in code, path.name
