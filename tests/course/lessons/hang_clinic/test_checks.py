import json

import pytest
from pytest import raises

from course.catalogue import ROOT
from course.checks.checking import CheckFailed
from course.lessons.hang_clinic.checks import (
    CAUSES,
    TRIES,
    Diagnosis,
    check_diagnosis,
    judge,
    tally,
)
from course.lessons.hang_clinic.programs import PATIENTS
from course.predictions import ledger
from tests.course.lessons import refusals

pytestmark = pytest.mark.usefixtures("book")
RIGHT = {
    1: [Diagnosis(1, "all_reduce", "other order")],
    2: [Diagnosis(None, "send", "circle of sends")],
    3: [Diagnosis(1, "all_reduce", "swallowed exception")],
    4: [Diagnosis(0, "isend", "early reuse"), Diagnosis(0, "send", "early reuse")],
    5: [Diagnosis(1, "barrier", "local decision"),
                  Diagnosis(1, "all_reduce", "local decision")],
    6: [Diagnosis(0, "all_reduce", "uneven work")],
}  # fmt: skip


def refusal(name, diagnosis):
    return refusals.refusal(check_diagnosis, name, diagnosis)


@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("written", ["{}", "dist.{}", "torch.distributed.{}", "{}()"])
def test_right_ones_pass_however_the_call_is_written(name, written):
    for right in RIGHT[name]:
        call = written.format(right.call)
        check_diagnosis(name, Diagnosis(right.rank, call, f" {right.cause.capitalize()}. "))


@pytest.mark.parametrize("name", RIGHT)
def test_a_wrong_part_is_named_in_the_words_of_the_patient(name):
    right = RIGHT[name][0]
    for cause in CAUSES:
        if cause != right.cause:
            assert "the cause, by program and case file" in refusal(
                name, Diagnosis(right.rank, right.call, cause)
            )
    for rank in {None, 0, 1, 2} - {right.rank}:
        text = refusal(name, Diagnosis(rank, right.call, right.cause))
        assert "the rank that departs" in text
        if name in {1, 4}:
            assert "nobody waits here" in text
    assert "the call in which" in refusal(name, Diagnosis(right.rank, "gather", right.cause))


def test_what_is_no_diagnosis_is_refused():
    assert "a cause is one of these words" in refusal(5, Diagnosis(1, "barrier", "magic"))
    assert "another type was returned" in refusal(5, (1, "barrier", "branch"))
    assert "without quotation marks" in refusal(2, Diagnosis("None", "send", "circle of sends"))


def test_the_lesson_says_what_is_no_patient_and_no_diagnosis():
    with raises(ValueError, match="no patient 7; there are: 1, 2"):
        judge(7, Diagnosis(None, "send", "branch"))
    with raises(CheckFailed, match="another type was returned"):
        judge(2, (None, "send", "circle of sends"))


def test_the_lesson_prints_what_the_check_says(capsys):
    judge(2, Diagnosis(rank=..., call=..., cause=...))
    text = capsys.readouterr().out
    assert "Not judged yet" in text and "def pass_on" not in text
    judge(2, Diagnosis(rank=..., call="send", cause=...))
    assert "def pass_on" not in capsys.readouterr().out
    for wrong in (Diagnosis(0, "send", ...), Diagnosis(None, "barrier", "circle of sends")):
        judge(2, wrong)
        text = capsys.readouterr().out
        assert "departs" in text or "the call in which" in text
        assert "def pass_on" not in text, "the source is for whoever has read the case file"
    judge(2, Diagnosis(rank=None, call="send", cause=...))
    text = capsys.readouterr().out
    assert "now the cause" in text and "def pass_on" in text
    judge(2, Diagnosis(None, "send", "branch"))
    text = capsys.readouterr().out
    assert "the cause, by program" in text and "def pass_on" in text
    judge(2, Diagnosis(None, "send", "circle of sends"))
    assert "✔ Patient 2, after 4 tries" in capsys.readouterr().out


def test_tries_are_counted_each_different_one_once(capsys):
    for rank in (0, 0, None, None):
        judge(2, Diagnosis(rank, "send", "circle of sends"))
    assert len(ledger.recall(TRIES)["2"]) == 2
    assert [row[2] for row in tally()] == ["-", 2, "-", "-", "-", "-"]


def test_no_name_tells_the_cause_before_the_diagnosis():
    lesson = json.loads((ROOT / "notebooks" / "05b_hang_clinic.ipynb").read_text())
    text = "".join("".join(cell["source"]) for cell in lesson["cells"])
    for patient in PATIENTS.values():
        assert patient.known_as not in text
        assert patient.known_as.replace(" ", "_") not in patient.program.__name__


def test_the_lesson_tells_every_cause():
    text = (ROOT / "notebooks" / "05b_hang_clinic.ipynb").read_text()
    assert all(f"| {cause} | {meaning} |" in text for cause, meaning in CAUSES.items())
