import json
import socket
from datetime import UTC, datetime, timedelta

from pytest import fixture, mark, raises

from course.__main__ import main
from course.commands import progress
from course.notebooks import exercises, files
from course.predictions import inventory, ledger, ledger_file
from course.predictions.ledger_file import Answer, Book
from tests.course.samples import solutions

START = datetime(2026, 1, 1, tzinfo=UTC)


@fixture(autouse=True)
def course(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    files.write(exercises.derive(solutions()), tmp_path / "exercises/01_a.ipynb")
    return tmp_path


def test_a_new_learner_has_everything_ahead_and_what_was_done_is_told(course):
    first, second, *_ = progress.summary(course).splitlines()
    assert first.split() == ["00", "Start", "here", "not", "finished"]
    assert second.startswith("01 ") and second.endswith("not finished   □ 0 of 1 exercises passed")
    ledger.finished("01")
    ledger.passed("1.1")
    ledger.passed("9.9")
    text = progress.summary(course)
    assert "run to the end" in text and "■ 1 of 1 exercises passed" in text
    assert "9.9" not in text, "an exercise of another course"


def test_only_honest_predictions_count(course):
    for key, predicted, measured in [("a", 10, 20), ("b", 30, 10), ("zero", 0, 5)]:
        ledger.predict(key, "?", "µs", value=predicted)
        ledger.reconcile(key, measured, tier="MEASURED")
    ledger.reconcile("late", 5, tier="MEASURED")
    ledger.predict("late", "?", "µs", value=5)
    text = progress.summary(course)
    assert "predictions: 3 made, 2 of them count (1 where 0 or less has no ratio)" in text
    assert "within a factor of 2.50" in text, "half-way between 2 and 3"


def test_why_a_prediction_does_not_count_is_told(course):
    for key, others in (("a", 1.5), ("b", 1.5), ("c", 0.0)):
        ledger.predict(key, "?", "µs", value=10)
        ledger.reconcile(key, 20, tier="MEASURED", others=others)
    ledger.predict("d", "?", "µs", value=10)
    why = "(2 measured while other programs used the CPUs, 1 without a result yet)"
    assert f"4 made, 1 of them count {why}" in progress.summary(course)


def test_a_hand_in_without_a_name_has_one_and_a_broken_ledger_is_told(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    ledger.passed("1.1")
    with (course / "ledger.json").open("a") as file:
        file.write('{"what": "pas')
    assert main(["progress", "--hand-in"]) == 0
    printed = capsys.readouterr().out
    assert "kept in" in printed and "to hand in: hand-in.json" in printed
    assert "Left out: line 2 is cut off" in printed
    assert progress.load(course / "hand-in.json").passed == ["1.1"]
    assert main(["progress", "--hand-in", "ada.json", "--name", "Ada"]) == 0
    assert progress.load(course / "ada.json").name == "Ada"


def test_every_lesson_says_that_it_was_run_to_its_end():
    for path in sorted((progress.ROOT / "notebooks").glob("[0-9]*.ipynb")):
        code = "\n".join(cell.source for cell in files.read(path).cells)
        number, _ = path.stem.split("_", 1)
        assert f'finished("{number}")' in code, path.name


def test_warm_ups_come_back_after_a_day_three_and_a_week():
    def due(*answers, days, finished=True):
        book = Book(finished={"00": at(0)} if finished else {})
        book.answers = [Answer("00.a", "a", right, at(day)) for day, right in answers]
        return progress.due_warmups(book, ["00.a"], now=START + timedelta(days=days))

    def at(day):
        return (START + timedelta(days=day)).isoformat()

    assert due(days=9, finished=False) == [], "not there yet"
    assert due(days=0.5) == [] and due(days=1) == ["00.a"]
    assert due((1, True), days=3) == [] and due((1, True), days=4) == ["00.a"]
    assert due((1, True), (4, True), days=10) == []
    assert due((1, True), (4, True), days=11) == ["00.a"]
    assert due((1, True), (4, False), days=5) == ["00.a"], "a wrong answer starts over"
    assert due((1, True), (4, True), (11, True), days=99) == []


def test_what_the_evidence_refutes_is_held_until_a_vote_says_otherwise(course):
    options = ["the network", "a late rank"]
    ledger.choose("02.cause", "Why?", options, answer="a")
    ledger.reconcile("02.cause", "b", tier="RECORDED")
    text = progress.summary(course)
    assert "a) the network; the evidence: b) a late rank" in text
    ledger.choose("02.cause", "Why?", options, answer="b")
    assert "the evidence:" not in progress.summary(course)


def test_votes_stand_or_fall_on_boards_and_are_right_or_wrong_elsewhere(course):
    assert "votes: none yet" in progress.summary(course)
    for key, fates in [
        ("1", {"a": "still standing"}), ("2", {"a": "fell, by A"}), ("3", {"b": "fell, by A"}),
    ]:  # fmt: skip
        ledger.choose(key, "Why?", ["x", "y"], answer="a")
        ledger_file.add("judged", key, measured="a", fates=fates)
    ledger.choose("4", "Why?", ["x", "y"], answer="a")
    ledger.reconcile("4", "a", tier="RECORDED")
    told = progress.summary(course).splitlines()
    assert "votes on boards: 1 still standing, 1 fell" in told
    assert "other votes: 1 of 1 right" in told
    assert "votes not judged yet: 1" in told


def test_the_inventory_is_told_only_after_its_second_form(course):
    inventory.inventory("before", answers="a" * 12)
    assert "the inventory" not in progress.summary(course)
    inventory.inventory("after", answers="b" * 12)
    assert "the inventory: the timer is the transfer" in progress.summary(course)


def handed_in(folder):
    ledger.predict("01.slope", "How much per <pair>?", "µs", value=50, low=20, high=90)
    ledger.reconcile("01.slope", 100.0, tier="MEASURED")
    ledger.choose("01.cause", "Why?", ["x", "y"], answer="a", reason="so it is")
    ledger.keep("passport", {"alpha": 2e-5})
    ledger.keep("case.stall", {"asked": 3, "diagnosed": True})
    inventory.inventory("before", answers="c" * 12)
    ledger.passed("1.1")
    return progress.save(progress.hand_in(), folder / "mine.json")


def test_a_hand_in_holds_what_was_answered_and_no_name_or_path_that_was_not_typed(tmp_path):
    path = handed_in(tmp_path)
    text = path.read_text()
    assert "alpha" not in text and str(tmp_path) not in text and socket.gethostname() not in text
    read = progress.load(path)
    assert read == progress.hand_in()
    assert read.stopped == "01.cause" and read.name == "" and list(read.games) == ["case.stall"]
    assert read.entries[0].low == 20 and read.entries[1].reason == "so it is"


WRONG = {"version": 9, "name": "x" * 81, "answers": [{"key": "a"}], "passed": "1.1", "surprise": 1}
WRONG |= {"games": {"a": {"b": []}}, "entries": [{"key": "a\nb"}]}


@mark.parametrize("key", WRONG)
def test_a_hand_in_that_is_none_is_refused_in_one_line(tmp_path, key):
    path = handed_in(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: WRONG[key]}))
    with raises(ValueError, match=r"mine\.json is no hand-in of this course: ") as caught:
        progress.load(path)
    assert "\n" not in str(caught.value)
