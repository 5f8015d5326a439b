"""What a diagnosis is told, what is accepted as a cure, and why other versions are not."""

from functools import partial

import pytest
from pytest import raises

from course.catalogue import ROOT
from course.checks.checking import CheckFailed
from course.checks.memory import BufferCall
from course.lessons.hang_clinic import checks
from course.lessons.hang_clinic.checks import Diagnosis
from course.lessons.hang_clinic.programs import PATIENTS
from course.lessons.hang_clinic.run_case import World
from tests.course.lessons.hang_clinic import cures
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = pytest.mark.usefixtures("book")


RIGHT = [
    (1, Diagnosis(1, "all_reduce", "other order")),
    (2, Diagnosis(None, "dist.send", "circle of sends")),
    (3, Diagnosis(1, "torch.distributed.all_reduce", "Swallowed exception.")),
    (4, Diagnosis(0, "isend()", "early reuse")),
    (4, Diagnosis("0", "send", " early reuse ")),
    (5, Diagnosis(1, "barrier", "local decision")),
    (5, Diagnosis(1, "all_reduce", "local decision")),
    (6, Diagnosis(0, "all_reduce", "uneven work")),
]


@pytest.mark.parametrize("number, diagnosis", RIGHT)
def test_right_diagnoses_pass_however_they_are_written(number, diagnosis, capsys):
    checks.judge(number, diagnosis)
    assert f"✔ Patient {number}, at the first try" in capsys.readouterr().out


WRONG = [
    (Diagnosis(..., ..., ...), "Not judged yet", False),
    (Diagnosis(0, "barrier", ...), "rank that departs", False),
    (Diagnosis(1, "gather", "branch"), "which call did that one skip", False),
    (Diagnosis(1, "all_reduce", ...), "now the cause", True),
    (Diagnosis(1, "all_reduce", "branch"), "after something failed", True),
    (Diagnosis(1, "all_reduce", "magic"), "a cause: one of uneven work", True),
    (Diagnosis(1, "all_reduce", "swallowed exception"), "✔ Patient 3", True),
]


@pytest.mark.parametrize("diagnosis, words, opens", WRONG)
def test_a_wrong_part_is_named_and_the_source_is_for_whoever_has_read_the_case_file(
    diagnosis, words, opens, capsys, monkeypatch
):
    monkeypatch.setenv("COURSE_GATES", "closed")
    checks.judge(3, diagnosis)
    text = " ".join(capsys.readouterr().out.split())
    assert words in text and ("def sum_statistics" in text) == opens


def test_the_lesson_says_what_is_no_patient_and_no_diagnosis():
    with raises(ValueError, match="no patient 7; there are: 1, 2"):
        checks.judge(7, Diagnosis(None, "send", "branch"))
    with raises(CheckFailed, match="another type was returned"):
        checks.judge(2, (None, "send", "circle of sends"))


def test_tries_are_counted_each_different_one_once(capsys):
    for rank in (0, 0, None, None):
        checks.judge(2, Diagnosis(rank, "send", "circle of sends"))
    assert "after 2 tries" in capsys.readouterr().out
    assert [row[2] for row in checks.tally()] == ["-", 2, "-", "-", "-", "-"]


def test_the_lesson_tells_every_cause_and_no_name_that_gives_one_away():
    text = (ROOT / "notebooks" / "05b_hang_clinic.ipynb").read_text()
    assert all(f'"| {cause} | ' in text for cause in checks.CAUSES)
    for patient in PATIENTS.values():
        assert patient.known_as not in text
        assert patient.known_as.replace(" ", "_") not in patient.program.__name__


CURED = [
    (1, cures.summed_in_a_sorted_set),
    (2, cures.odd_ranks_receive_first),
    (3, cures.with_zeros),
    (3, cures.with_zeros_in_tensors),
    (4, cures.sent_one_by_one),
    (5, cures.saved),
    (6, cures.counted),
]


@pytest.mark.slow
@pytest.mark.parametrize("number, cure", CURED)
def test_a_cure_is_accepted(number, cure):
    checks.check_cure(number, cure)


NOT_CURED = [
    (1, cures.summed_in_the_order_of_a_set, "order of its own in sets: rank 0 returns [2.0,"),
    (1, cures.averaged, "these are means"),
    (1, cures.summed_with_barriers, "it does not cure what keeps them apart"),
    (2, partial(cures.odd_ranks_receive_first, (0, 1)), "in odd_ranks_receive_first, line"),
    (2, cures.sent_without_a_handle, "each handle kept"),
    (2, cures.received_from_itself, "the neighbour is this rank itself"),
    (3, partial(cures.with_zeros, of_bad=1.0), "the bad sample is in the first sum"),
    (4, cures.sent_with_a_pause, "where the values are right, that is luck"),
    (4, partial(cures.sent_one_by_one, first=1), "the first number is 0"),
    seldom(5, partial(cures.saved, lambda seconds, step: seconds > 0.4), "once and told"),
    (5, partial(cures.saved, lambda seconds, step: True), "that is too often"),
    (5, cures.never_saved, "and here there is none for it"),
    (5, cures.saved_once, "that is too seldom"),
    (6, partial(cures.counted, lambda items: 5), "rank 0 returns"),
]


@pytest.mark.slow
@pytest.mark.parametrize("number, version, words", NOT_CURED)
def test_what_is_no_cure_is_refused_with_its_reason(number, version, words):
    assert words in refusal(checks.check_cure, number, version)


CHECKPOINTS = [(4, 1.3, True), (3, 1.3, True), (2, 1.3, False), (2, 2.2, True)]


@pytest.mark.parametrize(("every", "seconds", "passes"), CHECKPOINTS)
def test_checkpoints_are_not_closer_than_the_time_allows(every, seconds, passes):
    """A busy machine takes longer for ten steps, so that more are due."""
    calls = []
    for step in range(10):
        calls += [BufferCall("all_reduce"), BufferCall("broadcast")]
        calls += [BufferCall("barrier")] if step % every == every - 1 else []
    given = calls, checks.CURES[5], 30, seconds, World(3), "rank 0", "a rule"
    if passes:
        checks.hold_calls(*given)
    else:
        assert "that is too often" in refusal(checks.hold_calls, *given)


def open_cure():
    raise NotImplementedError


@pytest.mark.slow
def test_the_lesson_says_in_six_lines_what_a_cure_raised_and_in_which_world(capsys):
    checks.treat(2, cures.passed_on_among_three)
    text = capsys.readouterr().out
    assert text.startswith("Patient 2: the cure is not right yet\n") and text.count("\n") < 10
    assert "xercise" not in text
    parts = "in passed_on_among_three", "rank 2 is none of the 2", "2 ranks", "how many ranks"
    assert all(part in text for part in parts), text


TOLD = [
    (open_cure, "Patient 1 is not treated yet.\n"),
    (cures.summed_flat, "✔ Patient 1 is cured: right values in every world"),
]


@pytest.mark.slow
@pytest.mark.parametrize("cure, words", TOLD)
def test_the_lesson_speaks_of_the_patient_and_not_of_an_exercise(cure, words, capsys):
    checks.treat(1, cure)
    text = capsys.readouterr().out
    assert text.startswith(words) and "xercise" not in text
