"""Exercise 1.6: payers are held to what was measured just now, and are asked in lists."""

import pytest
from pytest import raises

from course.checks.checking import CheckFailed
from course.lessons.gloo_scaling.checks import _hold_measured, _hold_payers, _payers
from course.lessons.gloo_scaling.paying import FLEETS

WHOLE = [2.0, 2.1, 2.0]
SHORT, BETWEEN, LONG = [0.5, 0.4, 0.5], [3.0, 9.0, 9.0], [9.0, 8.0, 9.0]
MEASURED = [
    {"whole": WHOLE, "pieces": LONG, "errand": LONG},
    {"whole": WHOLE, "pieces": LONG, "errand": BETWEEN},
    {"whole": WHOLE, "pieces": LONG, "errand": SHORT},
]
"""By rank: seconds of each program, in three rounds."""


@pytest.mark.parametrize("errand", [[0], [0, 1]])
def test_what_the_rounds_do_not_agree_on_is_not_judged(errand):
    _hold_measured({"pieces": [0, 1, 2], "errand": errand}, MEASURED)


OTHER_PAYERS = [
    ({"pieces": [0, 1], "errand": [0]}, 2),
    ({"pieces": [0, 1, 2], "errand": [0, 2]}, 2),
    ({"pieces": [0, 1, 2]}, 0),
]


@pytest.mark.parametrize("payers, rank", OTHER_PAYERS)
def test_who_says_other_payers_is_told_what_was_timed(payers, rank):
    with raises(CheckFailed, match=f"times as long as whole on rank {rank}, timed just now"):
        _hold_measured(payers, MEASURED)


@pytest.mark.parametrize("payers", [{"thin": 2}, {"thin": [None, 1]}, {"thin": [3]}, {"thin": "2"}])
def test_ranks_are_asked_in_a_list(payers):
    with raises(CheckFailed, match="also a single one"):
        _payers(payers, FLEETS[0].nbytes)


def test_a_program_that_was_not_given_is_refused_though_nobody_pays_for_it():
    with raises(CheckFailed, match=r"thin, fat, thinner\n.+\['whole'\]"):
        _payers({"whole": []}, FLEETS[0].nbytes)


def test_the_largest_program_is_not_held_to_itself():
    fleet = FLEETS[0]
    with raises(CheckFailed, match="no longer than itself"):
        _hold_payers(fleet.pays | {"fat": [0, 1, 2]}, fleet)
