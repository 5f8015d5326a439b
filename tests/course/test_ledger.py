import json
import threading

from pytest import fixture, mark, raises

from course import ledger, ledger_file


@fixture(autouse=True)
def book(tmp_path, monkeypatch):
    """A ledger of the test's own."""
    path = tmp_path / "folder" / "ledger.json"
    monkeypatch.setenv("LABKIT_LEDGER", str(path))
    return path


def entry(key):
    return ledger_file.entry(ledger_file.load(), key)


def ask(key="01.slope", value=None):
    ledger.predict(key, "How much per pair?", "µs", value=value)


def test_predict_then_reconcile_shows_all_three(capsys):
    ask(value=100)
    ledger.reconcile("01.slope", measured=250, model=240, tier="EMULATED")
    shown = capsys.readouterr().out
    assert "How much per pair?" in shown
    for figure in ("100 µs", "240 µs", "250 µs"):
        assert figure in shown
    assert "2.5 times below" in shown
    found = entry("01.slope")
    assert found.counts and found.miss == 2.5 and found.tier == "EMULATED"


def test_reconcile_needs_no_prediction(capsys):
    ledger.reconcile("02.never-asked", measured=3.5)
    assert "3.5" in capsys.readouterr().out
    assert not entry("02.never-asked").counts


def test_a_prediction_made_after_the_measurement_is_marked(capsys):
    ask()
    ledger.reconcile("01.slope", measured=250)
    ask(value=249)
    assert entry("01.slope").late and not entry("01.slope").counts
    ledger.reconcile("01.slope", measured=251)
    assert "does not count" in capsys.readouterr().out


def test_asking_again_keeps_the_committed_prediction():
    ask(value=100)
    ask()
    assert entry("01.slope").predicted == 100


def test_what_is_kept_is_recalled():
    assert ledger.recall("passport") is None
    ledger.keep("passport", {"alpha": 2e-5})
    assert ledger.recall("passport")["alpha"] == 2e-5


def test_marks_stay():
    ledger.passed("1.1")
    ledger.finished("01")
    read = ledger_file.load()
    assert "1.1" in read["passed"] and "01" in read["finished"]


@mark.parametrize("content", ["{", "[]", '{"version": 99}', '{"version": 1, "passed": 3}'])
def test_a_file_that_cannot_be_read_is_set_aside_with_a_message(book, capsys, content):
    book.parent.mkdir()
    book.write_text(content)
    ask(value=1)
    assert "kept as ledger.damaged-" in capsys.readouterr().err
    assert [path.read_text() for path in book.parent.glob("ledger.damaged-*.json")] == [content]
    assert entry("01.slope").predicted == 1


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "file" / "ledger.json"))
    ledger.predict("01.slope", "How much?", "µs")
    ledger.commit("01.slope", 4)
    ledger.reconcile("01.slope", measured=5)
    shown = capsys.readouterr()
    assert shown.err.count("LABKIT_LEDGER") == 1
    assert "4 µs" in shown.out, "kept in memory instead"


def test_two_notebooks_do_not_lose_each_others_entries(book):
    def write(who):
        for number in range(20):
            ledger.passed(f"{who}.{number}")

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(book.read_text())["passed"]) == 80
    assert not list(book.parent.glob(".ledger-*")), "no half-written file is left"


@mark.parametrize(
    ("typed", "value"),
    [("250", 250), (" 2.5e2 ", 250), ("250 µs", 250), ("250us", 250), ("-1", -1)],
)
def test_predictions_are_read_as_people_type_them(typed, value):
    assert ledger._parse(typed, "µs") == value


@mark.parametrize(
    ("typed", "says"), [("a lot", "not a number"), ("3 ms", "asked in µs"), ("", "not")]
)
def test_what_is_no_prediction_is_explained(typed, says):
    with raises(ValueError, match=says):
        ledger._parse(typed, "µs")


def test_the_form_commits_and_says_so():
    ask()
    box = ledger._form(entry("01.slope"))
    _, (field, _, button), state = box.children[0], box.children[1].children, box.children[2]
    field.value = "3 ms"
    button.click()
    assert "Not committed" in state.value
    field.value = "30"
    button.click()
    assert "Committed: 30 µs" in state.value
    assert entry("01.slope").predicted == 30


def test_html_and_text_tell_the_same_and_escape_what_was_asked():
    asked = ledger_file.Entry(
        "k", "a < b?", "x", predicted=1, measured=1.05, model=2, tier="MEASURED"
    )
    page = ledger._as_html(asked)
    assert "a &lt; b?" in page and "MEASURED" in page and "MODELLED" in page
    assert ledger._verdict(asked) in page and ledger._verdict(asked) in ledger._as_text(asked)
