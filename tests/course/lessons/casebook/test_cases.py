"""Each case shows its symptom, its cure reaches par, every suspect is decided by a measurement."""

import json
import random
import re
from pathlib import Path

import pytest

from course import ledger_file
from course.__main__ import main
from course.lessons.casebook import final, pictures
from course.lessons.casebook import readings as read
from course.lessons.casebook.cases import CASES, REPORTED, STORIES, dealt
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import Lanes, Ward, play
from labkit.measure.trace import Kind, Span
from labkit.show import alt_text
from tests.fabric.test_fabric import needs_hosts

NAMES = [
    pytest.param(name, marks=needs_hosts if case.fabric else ()) for name, case in CASES.items()
]
NOTEBOOK = Path(__file__).parents[4] / "notebooks/08_ward.ipynb"


def decided(case, attempts=4):
    """Play a case until an instrument has decided each suspect; return those that none did."""
    undecided = dict(case.suspects)
    for _ in range(attempts):  # what other programs disturbed is measured again
        for key, suspect in list(undecided.items()):
            reading = suspect.read(play(case, instrument=suspect.instrument))
            if (reading > suspect.limit) == (key == case.culprit):
                del undecided[key]
    return undecided


@pytest.mark.timed
@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_decided_by_its_instruments_and_cured(name):
    case = CASES[name]
    assert case.culprit in case.suspects and len(case.suspects) >= 3
    assert decided(case) == {}
    ward = Ward(case, solved=True)
    table = ward.treat(case.cure)
    assert [row[3] for row in table.rows[1:]] == ["the same", "the same"]
    assert table.rows[1][2] >= case.par


@pytest.mark.timed
@pytest.mark.parametrize("seed", [1, 2])
def test_the_final_draws_three_faults_and_instruments_tell_them(seed, ledger):
    random.seed(seed)
    wards = final.draw()
    assert len({ward.case.culprit for ward in wards}) == 3
    for ward in wards:
        assert decided(ward.case) == {}
        assert ward.diagnose(ward.case.culprit, "seen").right
        if ward.case.culprit == "late":
            assert final.late_rank(ward, ward.case.fault["rank"])
    assert final.score(wards) == "3 of 3 at the first diagnosis, with 0 instruments."


def test_every_case_is_told_with_its_sources():
    used = {name for case in CASES.values() for name in case.symptom}
    used |= {name for story in STORIES for name in story["figures"]}
    assert used <= set(REPORTED)
    for case in CASES.values():
        assert case.ending.cause and case.ending.inferred and len(case.story.split()) <= 60
        assert {suspect.instrument for suspect in case.suspects.values()} <= set(INSTRUMENTS)
        assert case.suspects[case.culprit].says.lower() not in case.story.lower()
    assert 8 <= len(CASES) <= 10
    for story in STORIES:
        assert len(story["options"]) == 4 and story["because"]


def test_a_lessons_card_names_the_cases_that_it_deals_out():
    for notebook in NOTEBOOK.parent.glob("0*.ipynb"):
        cards = [c for c in json.loads(notebook.read_text())["cells"] if c["id"] == "card"]
        named = {
            name
            for name in CASES
            for card in cards
            if re.search(rf"[` ]{name}`", "".join(card["source"]))
        }
        lesson = notebook.name.partition("_")[0]
        assert named == {name for name, case in CASES.items() if case.lesson == lesson}, lesson


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    return tmp_path / "ledger.jsonl"


def test_a_diagnosis_is_answered_by_a_measurement_and_counted(ledger):
    ward = Ward(CASES["averages"])
    for closed in (ward.fault, lambda: ward.treat(CASES["averages"].cure)):
        with pytest.raises(ValueError, match="first the diagnosis"):
            closed()
    refuted = ward.diagnose("calls", "there must be many")
    assert not refuted.right and refuted.text.startswith("No.") and "6 calls" in refuted.text
    ward.ask("wire meter")
    ward.ask("wire meter")
    assert ward.asked == ["wire meter"]
    right = ward.diagnose("names", "two megabytes for 24 kB")
    assert right.right and "Asked before it: 1 instrument; 3 are enough" in right.text
    assert "all_gather_object" in ward.fault() and "average(metrics)" in ward.fault()
    kept = ledger_file.load().kept["case.averages"]
    assert [key for key, _ in kept["tries"]] == ["calls", "names"] and kept["diagnosed"]
    assert "92 %" in ward.close()
    with pytest.raises(ValueError, match="there are"):
        ward.diagnose("gremlins")
    with pytest.raises(ValueError, match="there are"):
        ward.ask("stethoscope")


def test_the_culprit_is_not_always_the_first(ledger):
    case = CASES["228-bytes"]
    first = [next(iter(Ward(case).suspects)) for _ in range(60)]
    assert set(first) == set(case.suspects)


def test_cases_are_dealt_out_after_their_lesson(ledger):
    assert dealt() == []
    ledger_file.add("finished", "02")
    assert {case.lesson for case in dealt()} == {"02"} and len(dealt()) == 3


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_every_instrument_shows_every_rank(ledger, instrument):
    answer = Ward(CASES["228-bytes"]).ask(instrument)
    shown = str(answer)
    ranks = range(CASES["228-bytes"].world_size)
    assert all(any(str(rank) in line.split()[:2] for line in shown.splitlines()) for rank in ranks)
    assert "<" in answer.html()


def test_a_case_is_played_in_a_terminal(capsys, monkeypatch, ledger):
    monkeypatch.setattr("random.sample", lambda keys, _: sorted(keys))
    letter = "abc"[list(Ward(CASES["averages"]).suspects).index("names")]
    words = iter(["nonsense", "4", letter, "too many bytes"])
    monkeypatch.setattr("builtins.input", lambda _: next(words))
    assert main(["case", "averages"]) == 0
    shown = capsys.readouterr().out
    for part in ("q leaves", "call counts: running", "Yes.", "the thread's own", "In production"):
        assert part in shown
    assert main(["case"]) == 0
    assert "solved" in capsys.readouterr().out


def stretch(phase, begin, end, rank=0):
    return Span(rank, phase, Kind.COMPUTE, begin, end)


def test_a_timeline_in_text_shows_inner_phases_and_gaps():
    spans = [stretch("step", 0, 4), stretch("collect", 1, 2), stretch("update", 8, 9.6)]
    seen = [{"rank": 0, "spans": spans}]
    shown = str(Lanes(seen, "title")).splitlines()
    assert shown[0] == "title" and shown[-1].endswith("s step, c collect, u update")
    lane = shown[1].split("|")[1]
    assert len(lane) == 96 and lane[15] == "c" and lane[0] == lane[30] == "s"
    assert lane[60] == "." and lane[95] == "u"
    assert "9600.0 ms of 1 ranks" in alt_text.text_of(Lanes(seen, "t").draw())


def test_readings_of_windows_and_turns():
    def ranks(*windows):
        return [{"spans": [stretch("x", *window)]} for window in windows]

    assert read.apart(ranks((0, 1), (0, 1)), "x") == 0
    assert read.apart(ranks((0, 1), (1, 2)), "x") == 100
    turns = [[(i, i + 1), (i + (0.5 if i % 2 else 0), i + 1)] for i in range(10)]
    one = [{"spans": [stretch("x", *turn[rank], rank) for turn in turns]} for rank in (0, 1)]
    assert read.same_rank(one, "x") == 100 and read.late(one, "x") == pytest.approx(25)


def test_the_panel_is_shown_without_an_answer(ledger, capsys):
    pictures.panel(Ward(CASES["two-nodes"]))
    assert "no_sync" not in capsys.readouterr().out


def test_the_notebook_plays_every_case_and_tells_no_answer():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells)
    assert [name for name in CASES if f'"{name}"' not in text] == []
    assert [
        key for case in CASES.values() for key in [f'diagnose("{case.culprit}'] if key in text
    ] == []
    assert not any(cell.get("outputs") for cell in cells)
