import os
import socket
from datetime import UTC, datetime, timedelta

from pytest import fixture

from course.__main__ import main
from course.commands import progress
from course.lessons.casebook.cases import CASES
from course.lessons.casebook.ward import Try, Ward
from course.notebooks import exercises, files
from course.predictions import inventory, ledger, ledger_file
from course.predictions.ledger_file import Answer, Book
from tests.course.samples import solutions

START = datetime(2026, 1, 1, tzinfo=UTC)


@fixture(autouse=True)
def course(tmp_path, book):
    files.write(exercises.derive(solutions()), tmp_path / "exercises/01_a.ipynb")
    return tmp_path


def test_a_new_learner_has_everything_ahead_and_what_was_done_is_told(course):
    _, second, *_ = progress.summary(course).splitlines()
    assert second.startswith("01 ") and second.endswith("not finished   □ 0 of 1 exercises passed")
    ledger.finished("01")
    ledger.passed("1.1")
    ledger.passed("9.9")  # an exercise of another course
    text = progress.summary(course)
    assert "run to the end" in text and "■ 1 of 1 exercises passed" in text and "9.9" not in text


def test_the_map_says_where_one_is_and_what_is_due(course, capsys):
    ledger_file.add("finished", "00")
    rows = progress.course_map(course).splitlines()[2:]
    assert rows[0].startswith("| 00 | Start here | 25 | ✔ |")
    assert "**◀ next** | [0 of 1](exercises/01_a.ipynb)" in rows[1] and "next" not in rows[2]
    progress.show_map()
    progress.show_due()
    printed = capsys.readouterr().out
    assert "| 00 |" in printed and "Questions due today: none." in printed


def test_a_due_question_is_on_the_map_and_is_asked(course, book, capsys):
    book.parent.mkdir()
    book.write_text('{"at": "2020-01-01T00:00:00+00:00", "what": "finished", "key": "00"}\n')
    progress.show_due()
    printed = capsys.readouterr().out
    assert 'warmup("00.stopwatch", answer="...")' in printed
    assert printed.count("Warm-up.") == 3
    due = progress.course_map(course).splitlines()[2].rpartition("|")[0].rpartition("|")[2]
    assert f"Questions due today: {int(due)}. Here are three." in printed


def test_the_workshop_has_a_line_once_one_of_its_questions_was_asked(course):
    assert "The workshop" not in progress.summary(course)
    ledger.choose("ws.late", answer="a")
    ledger.predict("ws.spread")
    assert "not finished   1 of 2 answered" in progress.summary(course)
    ledger.finished("ws")
    assert "run to the end 1 of 2 answered" in progress.summary(course)


def test_only_honest_predictions_count_and_why_others_do_not_is_told(course):
    given = [("a", 10, 20, 0.0), ("b", 30, 10, 0.0), ("zero", 0, 5, 0.0), ("busy", 10, 20, 1.5)]
    for key, predicted, measured, others in given:
        ledger.predict(key, "?", "µs", value=predicted)
        ledger.reconcile(key, measured, tier="MEASURED", others=others)
    ledger.reconcile("late", 5, tier="MEASURED")
    for key in ("late", "open"):
        ledger.predict(key, "?", "µs", value=5)
    text = progress.summary(course)
    assert "predictions: 5 made, 2 of them count (not: without a result, 0 or less, " in text
    assert "within a factor of 2.50" in text, "half-way between 2 and 3"


def test_a_hand_in_without_a_name_has_one_and_a_broken_ledger_is_told(
    course, book, monkeypatch, capsys
):
    monkeypatch.chdir(course)
    ledger.passed("1.1")
    with book.open("a") as file:
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
        sources = [cell.source for cell in files.read(path).cells]
        number, _ = path.stem.split("_", 1)
        assert f'finished("{number}"' in "".join("".join(sources).split()), path.name


def test_warm_ups_come_back_after_a_day_three_and_a_week(monkeypatch):
    monkeypatch.setattr(ledger, "warmups", lambda: ["00.a"])

    def due(*answers, days, finished=True):
        book = Book(finished={"00": at(0)} if finished else {})
        book.answers = [Answer("00.a", "a", right, at(day)) for day, right in answers]
        return progress.due_warmups(book, now=START + timedelta(days=days))

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
    for answer, held in (("a", True), ("b", False)):
        ledger.choose("02.cause", "Why?", ["the network", "a late rank"], answer=answer)
        ledger.reconcile("02.cause", "b", tier="RECORDED")
        shown = "a) the network; the evidence: b) a late rank" in progress.summary(course)
        assert shown == held


def test_votes_stand_or_fall(course):
    assert "votes: none yet" in progress.summary(course)
    fates = {"1": ("a", "still standing"), "2": ("a", "fell, by A"), "3": ("b", "fell, by A")}
    for key, fate in fates.items():
        ledger.choose(key, "Why?", ["x", "y"], answer="a")
        ledger_file.add("judged", key, measured="a", fates=dict([fate]))
    ledger.choose("4", "Why?", ["x", "y"], answer="a")
    ledger.reconcile("4", "a", tier="RECORDED")
    assert "votes: 2 of 3 still stand; not judged yet: 1" in progress.summary(course)


def test_the_inventory_is_told_only_after_its_second_form(course):
    inventory.inventory("before", answers="a" * 12)
    assert "the inventory" not in progress.summary(course)
    inventory.inventory("after", answers="b" * 12)
    assert "the inventory: the timer is the transfer" in progress.summary(course)


def test_a_hand_in_holds_what_was_answered_and_no_name_or_path_that_was_not_typed(course):
    ledger.predict("01.slope", "How much per <pair>?", "µs", value=50, low=20, high=90)
    ledger.choose("01.cause", "Why?", ["x", "y"], answer="a", reason="so it is")
    ledger.keep("passport", {"alpha": 2e-5})
    Ward(CASES["stretches"], tries=[Try("slow", "so it is", "fell")])._keep()
    inventory.inventory("before", answers="c" * 12)
    path = progress.save(progress.hand_in(), course / "mine.json")
    text = path.read_text()
    assert not any(mine in text for mine in ("alpha", str(course), socket.gethostname()))
    read = progress.load(path)
    assert read == progress.hand_in()
    assert read.stopped == "01.cause" and read.name == "" and list(read.games) == ["case.stretches"]
    assert read.entries[0].low == 20 and read.entries[1].reason == "so it is"


def test_what_a_learner_answered_and_hands_in_is_for_nobody_else(book, tmp_path):
    handed_in = tmp_path / "mine.json"
    for _ in range(2):  # new ones, and those of a course that left them open to others
        ledger.passed("1.1")
        assert main(["progress", "--hand-in", str(handed_in)]) == 0
        for path in (book, handed_in):
            assert path.stat().st_mode & 0o777 == 0o600, path
            path.chmod(0o644)


def test_what_is_no_file_keeps_its_mode(tmp_path):
    """A pipe here; a terminal's would be everybody's."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o644)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert main(["progress", "--hand-in", str(pipe)]) == 0
    os.close(reader)
    assert pipe.stat().st_mode & 0o777 == 0o644
