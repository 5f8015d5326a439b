import pytest

from course.lessons.hang_clinic.programs import PATIENTS
from course.lessons.hang_clinic.run_case import open_up, run_case

EXPECTED = {
    "uneven batches": ("hang", "hang"),
    "two in a dict": ("wrong values", "wrong values"),
    "last batch": ("error", "error"),
    "count samples": ("wrong values", "error"),
    "pass it on": ("hang", "hang"),
    "checkpoint": ("hang", "error"),
    "subgroup": ("hang", "hang"),
    "best effort": ("hang", "hang"),
    "double buffer": ("wrong values", "wrong values"),
    "slow reader": ("hang", "hang"),
    "own clock": ("hang", "error"),
    "save and load": ("hang", "hang"),
    "4097 items": ("hang", "error"),
}


@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("checks", [False, True])
def test_what_gloo_makes_of_it(name, checks):
    expected = EXPECTED[name][checks]
    seconds = {"hang": 1.5 if name == "own clock" else 0.5}  # only what hangs waits so long
    assert run_case(name, timeout=seconds.get(expected, 20.0), checks=checks).kind == expected


def test_a_straggler_is_right_if_one_waits():
    assert run_case("slow reader", timeout=20).kind == "right"


def test_the_chart_names_who_is_missing_and_the_line():
    report = run_case("uneven batches", timeout=1.0).report
    assert (
        "rank 0: running, waiting in all_reduce #3 of group default; not there yet: [2]" in report
    )
    assert "in uneven_batches: dist.all_reduce(loss)" in report
    assert "rank 2: finished" in report


def test_an_unknown_patient_is_refused():
    with pytest.raises(ValueError, match="no patient 'nobody'; there are: uneven batches"):
        run_case("nobody")
    assert "def uneven_batches" in open_up("uneven batches")
