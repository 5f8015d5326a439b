"""What is accepted as a cure, and why other versions are not."""

from functools import partial

import pytest
import torch.distributed as dist

from course.lessons.hang_clinic.checks import check_cure, treat
from course.lessons.hang_clinic.programs import PATIENTS
from tests.course.lessons.hang_clinic import cures
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = pytest.mark.slow
RIGHT = [
    (1, cures.summed_flat),
    (2, cures.passed_on),
    (2, partial(cures.passed_on, partial(cures.blocking, receives_first=lambda r: r % 2))),
    (3, cures.with_zeros),
    (4, partial(cures.sent, boxes=2)),
    (5, partial(cures.saved, cures.told)),
    (6, cures.counted),
]
AS_RANK_2_ALONE = partial(cures.blocking, receives_first=lambda r: r == 2)
WRONG = [
    (1, partial(cures.summed, names=cures.as_the_rank_has_it, barrier=True), "no barrier"),
    (1, partial(cures.summed, returns=lambda x: x[::-1]), "sent or returned than"),
    (1, partial(cures.summed, unwaited=True), "every call is waited for"),
    (1, cures.by_the_largest, "as long as all ranks have equal numbers"),
    (1, cures.in_a_new_group, "the job does not need one"),
    (2, cures.passed_for_nothing, "what the calls brought"),
    (2, cures.passed_zeros, "by the program's own calls"),
    (2, cures.gathered, "the job can be done with less"),
    (2, partial(cures.passed_on, AS_RANK_2_ALONE, ranks=3), "4 ranks: it ends"),
    (2, partial(cures.passed_on, partial(cures.started, waits=False)), "keep the handle"),
    (3, partial(cures.with_zeros, of_bad=1.0), "[3.0, 6.0, 9.0]"),
    (3, partial(cures.with_zeros, instead=dist.barrier), "it never ends"),
    (4, partial(cures.sent, waits=False, pause=0.05), "where the values are right, that is luck"),
    (4, partial(cures.sent, boxes=2, waits=False), "a race"),
    (5, partial(cures.saved, cures.own_clock, start=dist.barrier), "is made once and told"),
    seldom(5, partial(cures.saved, cures.own_clock, late=0.0), "it never ends"),
    (5, partial(cures.saved, lambda seconds, step: True), "5 barriers of a rank at most"),
    (5, partial(cures.saved, lambda seconds, step: step % 2), "s after the one before"),
    (6, cures.counted_zeros, "by the program's own calls"),
    (6, partial(cures.counted, lambda items: 5), "3 ranks: rank 0 returns"),
    (6, partial(cures.counted, each=dist.barrier), "1 barriers of a rank at most"),
    (6, partial(cures.counted, cures.own, end=lambda: None), "it never ends"),
]


@pytest.mark.parametrize("number, cure", RIGHT)
def test_a_cure_is_accepted(number, cure):
    check_cure(number, cure)


@pytest.mark.parametrize("number, version, reason", WRONG)
def test_what_is_no_cure_is_refused_with_its_reason(number, version, reason):
    assert reason in refusal(check_cure, number, version)


@pytest.mark.parametrize("number", PATIENTS)
def test_values_that_nobody_sent_are_refused(number):
    def made_up():
        return PATIENTS[number].healthy(dist.get_rank(), dist.get_world_size())

    reason = "no checkpoint is ever written" if number == 5 else "no call"
    assert reason in refusal(check_cure, number, made_up)


@pytest.mark.parametrize("number", [1, 2])
def test_the_patient_itself_is_not_cured(number):
    assert "is not right yet" in refusal(check_cure, number, PATIENTS[number].program)


def test_a_hang_shows_the_learners_own_line():
    words = refusal(check_cure, 2, cures.all_receive_first)
    assert "in all_receive_first, line" in words and "dist.recv(theirs, (rank - 1) % n)" in words


def test_an_untouched_patient_is_not_treated(capsys):
    def mended():
        raise NotImplementedError

    treat(2, mended)
    assert capsys.readouterr().out == "Patient 2 is not treated yet.\n"
