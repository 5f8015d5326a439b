"""Notebooks as tests: learners, instructors and strangers get the same answers, a line each."""

import re
import shutil
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from pytest import fixture, mark

from course.notebooks import files
from tests.course.samples import lesson
from tests.ranks.nodes import ROOT, python, started

LEARNER = "python -m pytest --nbval-lax work/exercises/02_exercises.ipynb"
INSTRUCTOR = "python -m pytest --nbval-lax work/hand-ins --junitxml=work/hand-ins.xml"
NAME = "02_exercises.ipynb"


@fixture(scope="module")
def hand_ins():
    """Where a command finds our options and no learner's own copies: a folder inside of work/."""
    (ROOT / "work").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "work") as folder:
        yield Path(folder)


def hand_in(folder, answers, *, anew=False):
    """A copy of the exercises with some answers, by number; returns its code cells' names."""
    notebook = files.read(ROOT / "exercises" / NAME)
    cells = {cell.id: cell for cell in notebook.cells}
    for number, answer in answers.items():
        cells[f"ex-2-{number}-answer"].source = answer
    for place, cell in enumerate(notebook.cells if anew else ()):  # as nbstripout does
        cell.id = str(place)
    files.write(notebook, folder / NAME)
    return [name for name, cell in cells.items() if cell.cell_type == "code"]


SOLVED = files.read(ROOT / "solutions/02_solutions.ipynb").cells
RIGHT = {1: next(cell.source for cell in SOLVED if cell.id == "ex-2-1-answer")}
WRONG = {2: "def best_cap():\n    return 'z'"}
ENDLESS = {1: "import time\nwhile True:\n    time.sleep(1)"}


def typed(command, **variables):
    """Run a command; return its exit status and the line of each cell."""
    done = python(*command.split()[1:], "-p", "no:cacheprovider", timeout=250, **variables)
    return done.returncode, done.stdout


def test_the_pages_show_the_commands():
    readme, instructors = ((ROOT / page).read_text() for page in ("README.md", "INSTRUCTORS.md"))
    assert LEARNER in readme and LEARNER in instructors and INSTRUCTOR in instructors


@mark.slow
@mark.timeout(250)
def test_a_learner_types_what_the_pages_show(tmp_path):
    """In a clone of their own."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "work", "build", "notebooks"))
    hand_in(clone / "work" / "exercises", RIGHT)
    done = python(*LEARNER.split()[1:], cwd=clone, PYTHONPATH=str(clone))
    assert re.search(r"=+ 5 failed, \d+ passed", done.stdout), done.stdout
    assert "exercise 2.3: not attempted yet" in done.stdout


NOTE = """
import os, time

def note(name, seconds=0.2):
    start = time.time()
    time.sleep(seconds)
    with open(os.environ["NOTES"], "a") as file:
        print(name, start, time.time(), file=file)
"""
REFUSAL = f"""{NOTE}
open("began", "w").close()
from course.checks.checking import CheckFailed
note("refusal", 0.5)
raise CheckFailed("at most 1 s", "2 s", "what it means", timed={{timed}})
"""
BUSY = """
import os, time
while not os.path.exists(os.environ["BEGAN"]):
    time.sleep(0.02)
while time.process_time() < 5:
    pass
"""
TOY = f"""{NOTE}
from pytest import mark

def test_any(): note("any")

@mark.alone
def test_alone(): note("alone")

def test_other(): note("other")
"""


@fixture(scope="module")
def dealt(hand_ins):
    """What two processes print of a folder beside another program, and when tests and cells ran."""
    folder = hand_ins / "dealt"
    notebook = lesson(REFUSAL.format(timed=True), REFUSAL.format(timed=False))
    files.write(notebook, folder / "timed.ipynb")
    for name in "ab":
        files.write(lesson(NOTE, *["note('cell')"] * 9), folder / f"{name}.ipynb")
        (folder / f"test_{name}.py").write_text(TOY)
    notes = folder / "notes"
    with started(BUSY, BEGAN=str(folder / "began")) as busy:
        status, text = typed(f"python -m pytest -n 2 --nbval-lax {folder}", NOTES=str(notes))
        busy.kill()
    assert status == 1
    assert re.search(r"1 failed, 28 passed, 2 skipped", text), text
    return text, [line.split() for line in notes.read_text().splitlines()]


@mark.slow
def test_beside_other_programs_only_what_a_clock_refuses_is_not_judged(dealt):
    shown = dealt[0].partition("judged on this machine")[2]
    assert "not judged: other programs used" in shown and "usually means what it means" in shown


@mark.slow
def test_what_measures_runs_alone(dealt):
    spans = [(name, float(start), float(end)) for name, start, end in dealt[1]]
    assert len(spans) == 26
    meets = [[other for other, s, e in spans if s < end and start < e] for _, start, end in spans]
    assert all(names == ["alone"] or "alone" not in names for names in meets), spans
    assert any(len(names) > 1 for names in meets), "others do overlap"


@mark.slow
@mark.timeout(300)
def test_each_hand_in_is_judged_a_line_a_cell_and_one_line_of_reason_also_beside_bad_ones(hand_ins):
    room, report = hand_ins / "room", hand_ins / "judged.xml"
    cells = hand_in(room / "ann", RIGHT | WRONG)
    hand_in(room / "eve", ENDLESS)
    hand_in(room / "fay", RIGHT, anew=True)
    (room / "no_notebook.ipynb").write_text("{'these': are not")
    (room / "an_image.ipynb").write_bytes(bytes(range(256)))
    lost = lesson("answer = 1")
    lost.cells[0].id = "ex-2-1-answer"
    files.write(lost, room / "dan" / NAME)
    command = INSTRUCTOR.replace("work/hand-ins.xml", str(report))
    command = command.replace("work/hand-ins", str(room))
    status, text = typed(f"{command} --nbval-cell-timeout=8")
    assert status == 1
    open_ones = {f"ex-2-{number}-check" for number in range(2, 7)}
    verdicts = dict(re.findall(rf"ann/{NAME}::(\S+) (PASSED|FAILED)", text))
    assert list(verdicts) == cells
    assert {name for name, verdict in verdicts.items() if verdict == "FAILED"} == open_ones
    reasons = dict(re.findall(rf"ann/{NAME} ex-2-(\d)-check _+\n(.+)", text))
    assert reasons.pop("2").startswith("exercise 2.2 is not right yet")
    assert reasons == {number: f"exercise 2.{number}: not attempted yet" for number in "3456"}
    refusal = text.partition("exercise 2.2 is not right yet")[2].splitlines()[1:4]
    assert [line.split()[0] for line in refusal] == ["expected", "got", "usually"], text
    failed, begins = {"fay": set(), "eve": set()}, {}
    for case in ElementTree.parse(report).iter("testcase"):
        if "room.ann" in case.get("classname") and case.find("failure") is not None:
            begins[case.get("name")] = case.find("failure").get("message")
        assert case.find("properties") is None, "here is nothing to claim"
        who = case.get("classname").rpartition("room.")[2].partition(".")[0]
        if who in failed and case.find("failure") is not None:
            failed[who].add(case.get("name"))
    assert failed["fay"] == open_ones, text
    assert begins.pop("ex-2-2-check").startswith("exercise 2.2 is not right yet"), begins
    assert {text.partition(": ")[2] for text in begins.values()} == {"not attempted yet"}, begins
    assert failed["eve"] == open_ones | {"ex-2-1-answer", "ex-2-1-check"}, "others are judged after"
    for bad in ("no_notebook", "an_image"):
        assert re.search(rf"^_+ .*{bad}.ipynb notebook _+\nnot a notebook: .+$", text, re.M), text
    for number in range(1, 7):
        assert f"exercise 2.{number}: its check cell is gone" in text
    assert "Timeout of 8 seconds exceeded" in text
    assert "Traceback" not in text


@mark.slow
@mark.timeout(300)
def test_without_our_options_nbval_says_the_same(tmp_path):
    """A stranger's nbval, in whatever folder: the same cells pass and fail, for the same reason."""
    hand_in(tmp_path / "half", RIGHT)
    words = ["-m", "pytest", "--nbval-lax", "--nbval-current-env", "-rf", "."]
    done = python(*words, cwd=tmp_path, timeout=300, LABKIT_LEDGER=str(tmp_path / "ledger"))
    failed = re.findall(r"exercise 2\.\d: not attempted yet", done.stdout)
    assert sorted(set(failed)) == [f"exercise 2.{n}: not attempted yet" for n in (2, 3, 4, 5, 6)]
    assert re.search(r"=+ 5 failed, \d+ passed in", done.stdout), done.stdout


@mark.slow
def test_where_nobody_can_answer_gates_are_open_and_one_line_says_so(tmp_path, monkeypatch):
    ask = 'from course.predictions.ledger import gate, predict\npredict("1.a", "How long?", "s")'
    seen = 'gate("1.a")\nprint("seen")'
    files.write(lesson(ask, seen, seen), tmp_path / "01.ipynb")
    for name in ("LABKIT_LEDGER", "COURSE_GATES"):
        monkeypatch.delenv(name)
    own = ROOT / "work" / "ledger.jsonl"
    before = own.read_text() if own.exists() else None
    words = ["-m", "nbconvert", "--execute", "--inplace", "--to=notebook", "01.ipynb"]
    done = python(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = own.read_text() if own.exists() else None
    assert after == before, "the learner's own file is left alone"
    _, first, second = (cell.outputs for cell in files.read(tmp_path / "01.ipynb").cells)
    first = "".join(out.get("text", "") for out in first)
    assert "Nobody can answer here" in first and first.endswith("seen\n")
    assert [out.text for out in second] == ["seen\n"]
