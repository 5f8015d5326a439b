import pytest

from course.lessons.hang_clinic.checks import CAUSES, Diagnosis, check_diagnosis
from course.lessons.hang_clinic.programs import PATIENTS
from tests.course.lessons import refusals

RIGHT = {
    "uneven batches": [Diagnosis(2, "all_reduce", "uneven work")],
    "two in a dict": [Diagnosis(1, "all_reduce", "other order")],
    "last batch": [Diagnosis(1, "all_reduce", "other shape")],
    "count samples": [Diagnosis(0, "all_reduce", "other dtype")],
    "pass it on": [Diagnosis(None, "send", "circle of sends")],
    "checkpoint": [Diagnosis(0, "barrier", "branch")],
    "subgroup": [Diagnosis(1, "all_reduce", "wrong group")],
    "best effort": [Diagnosis(1, "all_reduce", "swallowed exception")],
    "double buffer": [Diagnosis(0, "isend", "early reuse")],
    "slow reader": [Diagnosis(2, "all_reduce", "straggler"), Diagnosis(2, "sleep", "straggler")],
    "own clock": [Diagnosis(1, "barrier", "local decision"),
                  Diagnosis(1, "all_reduce", "local decision")],
    "save and load": [Diagnosis(0, "barrier", "branch")],
    "4097 items": [Diagnosis(0, "all_reduce", "uneven work")],
}  # fmt: skip


def said(name, diagnosis):
    return refusals.said(check_diagnosis, 1, name, diagnosis)


def test_every_patient_has_a_diagnosis():
    assert list(RIGHT) == list(PATIENTS)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("written", ["{}", "dist.{}", "torch.distributed.{}", "{}()"])
def test_right_ones_pass_however_the_call_is_written(name, written):
    for right in RIGHT[name]:
        call = written.format(right.call)
        check_diagnosis(1, name, Diagnosis(right.rank, call, right.cause))


@pytest.mark.parametrize("name", RIGHT)
def test_a_wrong_part_is_named_in_the_words_of_the_patient(name):
    right = RIGHT[name][0]
    for cause in CAUSES:
        if cause != right.cause:
            assert "the cause that the case file shows" in said(
                name, Diagnosis(right.rank, right.call, cause)
            )
    for rank in {None, 0, 1, 2} - {right.rank}:
        told = said(name, Diagnosis(rank, right.call, right.cause))
        assert "the rank that departs" in told
        if name in {"two in a dict", "count samples", "double buffer"}:
            assert "nobody waits here" in told
    assert "the call in which" in said(name, Diagnosis(right.rank, "gather", right.cause))


def test_the_victim_is_not_the_culprit():
    told = said("uneven batches", Diagnosis(0, "all_reduce", "uneven work"))
    assert "two ranks wait in call #3; somebody has finished without it" in told


def test_what_is_no_diagnosis_is_refused():
    assert "one of the words of CAUSES" in said("last batch", Diagnosis(1, "all_reduce", "magic"))
    assert "without `return`" in said("last batch", None)
    assert "another type was returned" in said("last batch", (1, "all_reduce", "other shape"))
