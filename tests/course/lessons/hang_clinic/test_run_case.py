import time

import pytest

from course.lessons.hang_clinic import pictures
from course.lessons.hang_clinic.run_case import CaseReport, Wait, circle, run_case
from labkit.show import alt_text
from tests.course.lessons.hang_clinic import cures
from tests.course.lessons.refusals import patiently

pytestmark = pytest.mark.slow


CASES = [(5, "hang", False), (5, "error", True), (6, "error", True)]


@pytest.mark.parametrize("number, kind, checks", CASES)
def test_what_gloo_makes_of_it(number, kind, checks):
    seconds = 20.0 if checks else 1.5  # what hangs waits so long
    assert run_case(number, timeout=seconds, checks=checks).kind == kind


def test_the_case_file_names_who_is_missing_and_the_line():
    def judge(limit):
        case = run_case(3, timeout=limit)
        assert case.kind == "hang"
        assert "rank 0: running, waiting in all_reduce #3, for rank 1" in case.report
        assert "in sum_statistics, line" in case.report
        assert "dist.all_reduce(x)" in case.report and "rank 1: finished" in case.report
        assert case.waits == [Wait(0, "all_reduce #3", (1,)), Wait(2, "all_reduce #3", (1,))]
        assert circle(case.waits) == []

    patiently(judge)


def test_a_hang_between_two_ranks_names_both_and_the_circle():
    def judge(limit):
        case = run_case(2, timeout=limit)
        assert [wait.for_ranks for wait in case.waits] == [(1,), (2,), (0,)]
        assert "send to rank 1, 4 bytes: not ended" in case.report
        assert sorted(circle(case.waits)) == [0, 1, 2]
        words = alt_text.text_of(pictures.who_waits(case))
        assert "Rank 2 waits in send to rank 0 for rank 0" in words and "A circle: 0" in words

    patiently(judge)


def test_wrong_values_come_with_their_calls_and_the_picture_tells_who_returned_what():
    sums, sends = run_case(1, timeout=20.0), run_case(4, timeout=20.0)
    assert sums.kind == sends.kind == "wrong values"
    assert sums.report.count("all_reduce #2, 16 bytes") == 3
    assert "9 times isend to rank 1, 4 bytes, waited for after a later call" in sends.report
    assert "10 times recv from rank 0" in sends.report
    words = alt_text.text_of(pictures.who_waits(sums))
    assert "Rank 1 returned [21, 12], right is [3, 30]." in words and "Finished" not in words


def test_calls_of_other_kinds_under_one_number_wait_for_each_other():
    def judge(limit):
        waits = {wait.rank: wait for wait in run_case(6, timeout=limit).waits}
        assert waits[0] == Wait(0, "all_reduce #5", (1, 2, 3))
        assert waits[3] == Wait(3, "barrier #5", (0,))

    patiently(judge)


def test_a_program_that_is_only_slow_does_not_hang():
    def judge(limit):
        def slow():
            time.sleep(1.3 * limit)
            return cures.summed()

        assert run_case(1, slow, timeout=limit).kind == "right"

    patiently(judge, (0.6, 3.0))


def test_the_picture_tells_who_has_finished():
    case = CaseReport("Patient 9", "hang", "", calls=((), ()), running=(0,))
    assert "Finished: rank 1." in pictures.in_words(case)
