import pytest

from course.lessons.hang_clinic.programs import PATIENTS
from course.lessons.hang_clinic.run_case import run_case
from tests.course.lessons.refusals import patiently

EXPECTED = {
    "two in a dict": ("wrong values", "wrong values"),
    "pass it on": ("hang", "hang"),
    "best effort": ("hang", "hang"),
    "double buffer": ("wrong values", "wrong values"),
    "own clock": ("hang", "error"),
    "4097 items": ("hang", "error"),
}


@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("checks", [False, True])
def test_what_gloo_makes_of_it(name, checks):
    expected = EXPECTED[name][checks]
    seconds = {"hang": 1.5 if name == "own clock" else 0.5}  # only what hangs waits so long
    assert run_case(name, timeout=seconds.get(expected, 20.0), checks=checks).kind == expected


def test_the_case_file_names_who_is_missing_and_the_line():
    def judge(limit):
        report = run_case("best effort", timeout=limit).report
        missing = "rank 0: running, waiting in all_reduce #3 of group default; not there yet: [1]"
        assert missing in report
        assert "in best_effort: dist.all_reduce(x)" in report
        assert "rank 1: finished" in report

    patiently(judge)


def test_an_unknown_patient_is_refused():
    with pytest.raises(ValueError, match="no patient 'nobody'; there are: two in a dict"):
        run_case("nobody")
