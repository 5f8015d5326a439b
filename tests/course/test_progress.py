import json

from pytest import approx, fixture, raises

from course import exercises, ledger, notebooks, progress
from course.__main__ import main
from labkit.show import alt_text
from tests.course.samples import solutions


@fixture(autouse=True)
def course(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    notebooks.write(exercises.derive(solutions()), tmp_path / "exercises/01_a.ipynb")
    return tmp_path


def test_a_new_learner_has_everything_ahead(course):
    first, second, *_ = progress.here(course).steps
    assert (first.number, first.title, first.exercises) == ("00", "Start here", ())
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
        ledger.reconcile(key, measured, tier="MEASURED")
    ledger.reconcile("late", 5, tier="MEASURED")
    ledger.predict("late", "?", "µs", value=5)
    mine = progress.here(course)
    assert [(e.key, e.answer, e.measured) for e in mine.counted] == [
        ("a", 10, 20),
        ("b", 30, 10),
    ]
    assert mine.typical_miss == approx(2.5)
    assert "predictions: 3 made, 2 of them count" in str(mine)


def test_the_calibration_curve_tells_the_same(course):
    assert alt_text.to_html(progress.draw(progress.here(course))), "nobody predicted anything"
    for key, predicted, measured in [("a", 10, 20), ("b", 30, 10)]:
        ledger.predict(key, "?", "µs", value=predicted)
        ledger.reconcile(key, measured, tier="MEASURED")
    ax = progress.draw(progress.here(course))
    assert alt_text.text_of(ax).startswith("1 of 2 predictions")
    assert alt_text.tables_of(ax)[0].rows[1] == ("b", 30.0, 10.0, 3.0)
    assert "MEASURED" in ax.figure.get_supxlabel()


def test_every_lesson_says_that_it_was_run_to_its_end():
    for path in sorted((progress.ROOT / "notebooks").glob("*.ipynb")):
        code = "\n".join(cell.source for cell in notebooks.read(path).cells)
        assert f'finished("{path.stem[:2]}")' in code, path.name


def handed_in(folder):
    ledger.predict("01.slope", "How much per <pair>?", "µs", value=50)
    ledger.reconcile("01.slope", 100.0, tier="MEASURED")
    ledger.keep("passport", {"alpha": 2e-5, "beta": 3e-10})
    ledger.passed("1.1")
    return progress.save(progress.hand_in(), folder / "mine.json")


def test_a_hand_in_holds_no_name_or_path_that_was_not_typed(tmp_path):
    text = handed_in(tmp_path).read_text()
    document = json.loads(text)
    assert document["name"] == "" and str(tmp_path) not in text
    assert progress.load(tmp_path / "mine.json").entries[0].counts


def test_a_hand_in_that_somebody_tampered_with_is_refused(tmp_path):
    document = json.loads(handed_in(tmp_path).read_text())
    for damage in ({"version": 2}, {"passport": {"alpha": "x"}}, {"entries": [{}]}, {"passed": 1}):
        path = tmp_path / "bad.json"
        path.write_text(json.dumps(document | damage))
        with raises(ValueError, match=r"bad\.json is no hand-in"):
            progress.load(path)


def test_progress_writes_the_hand_in(tmp_path, capsys):
    out = tmp_path / "mine.json"
    assert main(["progress", "--hand-in", str(out), "--name", "Ada"]) == 0
    assert progress.load(out).name == "Ada"
