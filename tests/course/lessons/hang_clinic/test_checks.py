import pytest

from course.catalogue import ROOT
from course.lessons.hang_clinic.checks import CAUSES, Diagnosis, check_diagnosis, judge
from course.lessons.hang_clinic.programs import PATIENTS
from tests.course.lessons import refusals

RIGHT = {
    "two in a dict": [Diagnosis(1, "all_reduce", "other order")],
    "pass it on": [Diagnosis(None, "send", "circle of sends")],
    "best effort": [Diagnosis(1, "all_reduce", "swallowed exception")],
    "double buffer": [Diagnosis(0, "isend", "early reuse")],
    "own clock": [Diagnosis(1, "barrier", "local decision"),
                  Diagnosis(1, "all_reduce", "local decision")],
    "4097 items": [Diagnosis(0, "all_reduce", "uneven work")],
}  # fmt: skip


def refusal(name, diagnosis):
    return refusals.refusal(check_diagnosis, name, diagnosis)


def test_every_patient_has_a_diagnosis():
    assert list(RIGHT) == list(PATIENTS)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("written", ["{}", "dist.{}", "torch.distributed.{}", "{}()"])
def test_right_ones_pass_however_the_call_is_written(name, written):
    for right in RIGHT[name]:
        call = written.format(right.call)
        check_diagnosis(name, Diagnosis(right.rank, call, right.cause))


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
        if name in {"two in a dict", "double buffer"}:
            assert "nobody waits here" in text
    assert "the call in which" in refusal(name, Diagnosis(right.rank, "gather", right.cause))


def test_the_victim_is_not_the_culprit():
    words = refusal("best effort", Diagnosis(0, "all_reduce", "swallowed exception"))
    assert "two ranks wait for a third that has finished" in words


def test_a_decision_that_each_rank_makes_for_itself_is_no_branch_on_the_rank():
    assert "the rank itself" in CAUSES["branch"] and "for itself" in CAUSES["local decision"]
    words = refusal("own clock", Diagnosis(1, "barrier", "branch"))
    assert "all ranks run the same `if`" in words


def test_what_is_no_diagnosis_is_refused():
    assert "one of the words of CAUSES" in refusal("own clock", Diagnosis(1, "barrier", "magic"))
    assert "without `return`" in refusal("own clock", None)
    assert "another type was returned" in refusal("own clock", (1, "barrier", "branch"))


def test_the_lesson_prints_what_the_check_says(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    judge("pass it on", Diagnosis(rank=..., call=..., cause=...))
    text = capsys.readouterr().out
    assert "Not judged yet" in text and "def pass_it_on" not in text
    judge("pass it on", Diagnosis(rank=..., call="send", cause=...))
    text = capsys.readouterr().out
    assert "Not judged yet" in text and "def pass_it_on" in text
    judge("pass it on", Diagnosis(0, "send", "circle of sends"))
    assert "the rank that departs" in capsys.readouterr().out
    judge("pass it on", Diagnosis(None, "send", "circle of sends"))
    assert "Exercise 5b.2 passed" in capsys.readouterr().out


def test_the_lesson_tells_every_cause():
    text = (ROOT / "notebooks" / "05b_hang_clinic.ipynb").read_text()
    assert all(f"| {cause} | {meaning} |" in text for cause, meaning in CAUSES.items())
