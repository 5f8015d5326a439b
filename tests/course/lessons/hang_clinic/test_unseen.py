"""Exercise 5b.7: its kept case files, right readings however they are written, and wrong ones."""

import json

import pytest

from course.lessons.hang_clinic import unseen
from course.lessons.hang_clinic.checks import check_reading
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.usefixtures("book")

RIGHT = {letter: (right.rank, right.call, right.mend) for letter, right in unseen.truths().items()}


def other_forms():
    return {
        "A": ["rank 0", "dist.reduce(accuracy, 0)", "All call"],
        "B": (1, "all_reduce #7", "less work"),
        "C": ("2", "recv from rank 0", "other-peer"),
        "D": (2, "torch.distributed.all_reduce", "decide together."),
        "E": ("None", "none", "nothing"),
        "F": (3, "all_reduce", "same_group"),
    }


@pytest.mark.parametrize("reading", [lambda: RIGHT, other_forms])
def test_a_right_reading_is_accepted_however_it_is_written(reading):
    check_reading(reading)


WRONG = [
    ("A", (1, "barrier", "all call"), "who is elsewhere?"),
    ("A", (0, "barrier", "all call"), "In which does the odd rank stand?"),
    ("A", (0, "reduce", "same order"), "neither earlier nor later"),
    ("B", (None, None, "nothing"), "in both looks it is the same rank"),
    ("B", (1, "all_reduce", "all call"), "by their numbers, calls have ended"),
    ("C", (1, "send", "other peer"), "Whom does rank 2 listen to?"),
    ("C", (2, "recv", "same order"), "nobody sends to whom it listens"),
    ("D", (0, "all_reduce", "decide together"), "a rank that has finished: which one?"),
    ("D", (2, "all_reduce", "zeros"), "it did not run out of data"),
    ("E", (0, "all_reduce", "less work"), "has gone on, as all others have"),
    ("E", (None, None, "less work"), "no rank is the last one in both looks"),
    ("E", (None, None, "zeros"), "each rank has made the same calls, and has gone on"),
    ("F", (2, "all_reduce", "same group"), "like the two before"),
    ("F", (3, "all_reduce", "all call"), "it is a sum of a pair"),
    ("F", (9, "all_reduce", "all call"), "no such rank"),
    ("F", (3, "all_reduce", "pray"), "one of all call, decide together"),
    ("F", 3, "three are asked for"),
]


@pytest.mark.parametrize("letter, reading, words", WRONG)
def test_a_wrong_reading_is_told_where_to_look(letter, reading, words):
    assert words in refusal(check_reading, lambda: RIGHT | {letter: reading})


def test_each_job_is_asked_for():
    assert "nothing of B, C" in refusal(check_reading, lambda: {"A": RIGHT["A"]})


def test_the_kept_reports_hold_what_is_asked_and_no_name_that_tells():
    kept = json.loads(unseen.KEPT.read_text())
    assert [*kept] == [*unseen.JOBS] == [*unseen.truths()]
    looks = [len(job.looks) for job in unseen.JOBS.values()]
    assert [len(reports) for reports in kept.values()] == looks
    for letter, right in unseen.truths().items():
        text = "\n".join(kept[letter])
        assert right.rank is None or f"rank {right.rank}: " in text
        assert right.rank is None or right.call in text
        assert unseen.JOBS[letter].program.__name__ not in text and "/" not in text
        assert right.mend in unseen.MENDS and not {right.mend} & {*right.mends}


def test_both_looks_at_the_slow_job_show_the_rank_that_others_wait_for():
    for look in json.loads(unseen.KEPT.read_text())["B"]:
        assert look.count("not there yet: rank 1") == 2 and "in write_checkpoint" in look


@pytest.mark.slow
def test_a_recorded_job_says_the_same_today():
    (said,) = unseen.record_of("C")
    (kept,) = json.loads(unseen.KEPT.read_text())["C"]
    assert said == kept
