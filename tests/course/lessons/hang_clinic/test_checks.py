"""What a diagnosis is told, what is accepted as a cure, and why other versions are not."""

import json
from functools import partial

import pytest
from pytest import raises

from course.catalogue import ROOT
from course.checks.checking import CheckFailed
from course.lessons.hang_clinic.checks import (
    CAUSES,
    TRIES,
    Diagnosis,
    check_cure,
    check_diagnosis,
    judge,
    tally,
    treat,
)
from course.lessons.hang_clinic.programs import PATIENTS
from course.predictions import ledger
from tests.course.lessons.hang_clinic import cures
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = pytest.mark.usefixtures("book")
DIAGNOSES = [
    (1, Diagnosis(1, "all_reduce", "other order")),
    (2, Diagnosis(None, "dist.send", "circle of sends")),
    (3, Diagnosis(1, "torch.distributed.all_reduce", "Swallowed exception.")),
    (4, Diagnosis(0, "isend()", "early reuse")),
    (4, Diagnosis(0, "send", " early reuse ")),
    (5, Diagnosis(1, "barrier", "local decision")),
    (5, Diagnosis(1, "all_reduce", "local decision")),
    (6, Diagnosis(0, "all_reduce", "uneven work")),
]


@pytest.mark.parametrize("number, diagnosis", DIAGNOSES)
def test_right_diagnoses_pass_however_they_are_written(number, diagnosis):
    check_diagnosis(number, diagnosis)


@pytest.mark.parametrize(
    "number, diagnosis, words",
    [
        (1, Diagnosis(0, "all_reduce", "other order"), "nobody waits here"),
        (2, Diagnosis("None", "send", "circle of sends"), "without quotation marks"),
        (3, Diagnosis(1, "gather", "swallowed exception"), "which call did it skip"),
        (5, Diagnosis(1, "barrier", "branch"), "On what does it depend"),
        (5, Diagnosis(1, "barrier", "magic"), "a cause: one of uneven work"),
        (5, (1, "barrier", "branch"), "another type was returned"),
    ],
)
def test_a_wrong_part_is_named_in_the_words_of_the_patient(number, diagnosis, words):
    assert words in refusal(check_diagnosis, number, diagnosis)


def test_the_lesson_says_what_is_no_patient_and_no_diagnosis():
    with raises(ValueError, match="no patient 7; there are: 1, 2"):
        judge(7, Diagnosis(None, "send", "branch"))
    with raises(CheckFailed, match="another type was returned"):
        judge(2, (None, "send", "circle of sends"))


@pytest.mark.parametrize(
    "diagnosis, words, opens",
    [
        (Diagnosis(..., ..., ...), "Not judged yet", False),
        (Diagnosis(0, "send", ...), "departs", False),
        (Diagnosis(None, "barrier", "circle of sends"), "the call in which", False),
        (Diagnosis(None, "send", ...), "now the cause", True),
        (Diagnosis(None, "send", "branch"), "the cause, by program", True),
        (Diagnosis(None, "send", "circle of sends"), "✔ Patient 2, at the first try", True),
    ],
)
def test_the_source_is_for_whoever_has_read_the_case_file(
    diagnosis, words, opens, capsys, monkeypatch
):
    monkeypatch.setenv("COURSE_GATES", "closed")
    judge(2, diagnosis)
    text = capsys.readouterr().out
    assert words in text and ("def pass_on" in text) == opens


def test_tries_are_counted_each_different_one_once(capsys):
    for rank in (0, 0, None, None):
        judge(2, Diagnosis(rank, "send", "circle of sends"))
    assert "after 2 tries" in capsys.readouterr().out
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, cure",
    [
        (1, cures.summed_flat),
        (2, cures.passed_on_by_odd_ranks_first),
        (3, cures.with_zeros),
        (4, cures.sent_one_by_one),
        (5, cures.saved_when_told),
        (6, cures.counted_to_the_most),
    ],
)
def test_a_cure_is_accepted(number, cure):
    check_cure(number, cure)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, version, words",
    [
        (
            1,
            partial(cures.summed, as_set=True),
            "an order of its own in sets: rank 0 returns [3.0, 30.0]",
        ),
        (1, cures.averaged, "these are means"),
        (1, partial(cures.summed, barrier=True), "it does not cure what keeps them apart"),
        (1, PATIENTS[1].program, "the same tensor in the same call"),
        (2, cures.all_receive_first, "in received_first, line"),
        (2, cures.sent_without_a_handle, "keep the handle"),
        (2, cures.gathered, "the job can be done with less"),
        (2, PATIENTS[2].program, "it never ends"),
        (3, partial(cures.with_zeros, of_bad=1.0), "the bad sample is in the first sum"),
        (4, cures.sent_with_a_pause, "where the values are right, that is luck"),
        seldom(5, cures.saved_by_each_clock, "is made once and told"),
        (5, cures.saved_in_each_step, "from 2 to 5 barriers of a rank"),
        (6, cures.counted_for_four_ranks, "3 ranks: rank 0 returns"),
        (6, cures.counted_by_the_own_share, "it never ends"),
    ],
)
def test_what_is_no_cure_is_refused_with_its_reason(number, version, words):
    assert words in refusal(check_cure, number, version)


def open_cure():
    raise NotImplementedError


@pytest.mark.slow
@pytest.mark.parametrize(
    "cure, words",
    [
        (open_cure, "Patient 1 is not treated yet.\n"),
        (cures.summed_flat, "✔ Patient 1 is cured: right values in every world"),
        (cures.averaged, "Patient 1: the cure is not right yet\n"),
    ],
)
def test_the_lesson_speaks_of_the_patient_and_not_of_an_exercise(cure, words, capsys):
    treat(1, cure)
    text = capsys.readouterr().out
    assert text.startswith(words) and "xercise" not in text
