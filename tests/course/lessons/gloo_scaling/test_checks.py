"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

from functools import partial

import pytest

from course.checks import checking
from course.lessons.gloo_scaling import checks, paying
from course.lessons.gloo_scaling.model import Saturation
from tests.course.lessons.gloo_scaling import answers
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow

CLOCKED = "a barrier, another collective|a rank that is late"  # load decides which is said
WRONG_STOPWATCHES = [
    (answers.reports_its_own_time, "each rank reports its own time"),
    (answers.adds_the_ranks_up, "ranks add up"),
    (answers.takes_the_mean, "that is the mean"),
    (answers.takes_the_slowest_call, "the middle one of *all* calls"),
    (answers.reads_the_wall_clock, "time.time() is for dates"),
    (answers.never_meets, "the wait for a rank that is late"),
    (answers.never_warms_up, "no warm-up"),
    (answers.takes_each_ranks_median, "the slowest of the ranks' own medians"),
    (answers.starts_before_it_meets, CLOCKED),
    (answers.swallows_exceptions, "it was swallowed"),
    (answers.prints_inside, "only call() between start and stop"),
    (answers.takes_one_above_the_middle, "an even number of calls"),
]


@pytest.mark.timed
@pytest.mark.parametrize(("answer", "words"), WRONG_STOPWATCHES)
def test_wrong_stopwatches(answer, words, monkeypatch):
    monkeypatch.setattr(checks, "ATTEMPTS", 1)  # patience is for right answers
    for _ in range(3):
        message = refusal(checks.check_time_call, answer)
        if "run it once more" not in message or words in message:
            break  # else as the check says, for where a pause of the machine spoilt its reading
    assert any(text in message for text in words.split("|"))


cpus, slower = checks.check_cpus_like_ours, checks.check_first_slower
check_sum, confined = checks.check_shared_sum, checks.check_confinement
who_pays = checks.check_who_pays


RIGHT = [
    pytest.param(checks.check_time_call, answers.upper_middle, marks=pytest.mark.timed),
    (cpus, answers.by_numpy_median),
    (slower, lambda: "B) 3 pairs"),
    (check_sum, answers.by_numpy),
    (check_sum, answers.one_sums_for_both),
    (confined, answers.confinement_in_a_list),
]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_in_another_style_pass(check, answer, capsys):
    check(answer)
    assert " passed: " in capsys.readouterr().out


WRONG = [
    (checks.check_time_call, lambda call, warmup=5, iters=20: None, "calls"),
    (cpus, answers.divides_theirs_by_ours, "a call gets shorter"),
    (cpus, answers.takes_rows_of_few_pairs, "do not fill a CPU yet"),
    (cpus, answers.takes_the_mean_of_the_rows, "one spoilt row moves"),
    (cpus, answers.never_says_none, "do not queue"),
    (slower, lambda: "a", "160 µs"),
    (slower, lambda: "c", "two ranks"),
    (slower, lambda: "d", "cpu.max"),
    (confined, answers.counts_one_thread, "add up all threads"),
    (confined, answers.counts_since_the_cgroup_was_made, "only the difference"),
    (confined, answers.knows_the_period, "stand in cpu_max"),
    (confined, answers.has_no_cpus_without_a_quota, '"0-3,8" are five'),
    (confined, answers.blames_a_quota_for_one_period, "less than a tenth"),
    (confined, lambda reading: None, "ends without `return`"),
    (confined, lambda reading: (part for part in ("mask",)), "are asked"),
    (confined, lambda reading: 1 / 0, "ZeroDivisionError"),
    (check_sum, answers.reads_a_third_slot, "IndexError"),
    (cpus, answers.asks_for_rows_that_we_lack, "KeyError"),
    (cpus, answers.takes_the_last_row_for_the_most_pairs, "in no order"),
    (cpus, answers.takes_the_longest_for_the_most_pairs, "one row is spoilt"),
    (cpus, answers.takes_the_lower_middle, "the two in the middle"),
    (cpus, answers.wants_more_than_one_and_a_half, "exactly one and a half"),
    (confined, answers.mask_before_none, "The rules are asked in their order"),
    (confined, answers.leaves_out_a_cpu_of_the_mask, '"0-47" are 48'),
    (who_pays, answers.compares_the_slowest_ranks, "*own* time"),
    (who_pays, answers.pays_for_the_wait, "rank that is late"),
    (who_pays, answers.compares_with_the_fewest_bytes, "sends the *most* bytes"),
    (who_pays, lambda programs, nbytes: {"pieces": [0, 1, 2]}, "another type was returned"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_wrong_answers_are_told_why_without_a_line_of_ours(check, answer, words):
    message = refusal(check, answer)
    assert words in message
    assert "/checks.py" not in message and "/meetings.py" not in message


WRONG_REASONS = [("a", "what is paid for is not the bytes"), ("c", "nobody is late")]


@pytest.mark.parametrize(("letter", "words"), WRONG_REASONS)
def test_a_wrong_reason_for_what_was_measured(letter, words, monkeypatch):
    monkeypatch.setattr(paying, "FLEETS", ())  # who pays is right
    assert words in refusal(who_pays, partial(answers.who_pays, reason=letter))


WRONG_SUMS = [
    (answers.one_half, "overwrote its slot before we had read it"),
    (answers.meets_twice, "keep the fast one from"),
    (answers.wakes_before_it_writes, "a wake-up promise"),
    (answers.waits_before_it_wakes, "each waits before it wakes the other"),
    (answers.adds_into_a_new_tensor, "add in place"),
    (answers.waits_if_unchanged, "is a wait() missing"),
    (answers.polls, "the partner's slot is polled"),
]


@pytest.mark.parametrize(("answer", "words"), WRONG_SUMS)
def test_wrong_shared_sums_are_found_every_time(answer, words, monkeypatch):
    if answer is answers.polls:
        monkeypatch.setattr(checking, "patience", lambda seconds: 1.0)
    for _ in range(1 if answer is answers.polls else 2):
        told = refusal(checks.check_shared_sum, answer)
        assert words in told and "/threading.py" not in told and "n=1" not in told
        assert "in polls" in told or answer is not answers.polls


def test_the_knee_follows_from_the_law():
    law = Saturation(alone=200e-6, cpu_per_call=60e-6)
    assert next(p for p in range(2, 99) if law.time(2 * p / 1.5) > law.time(2 / 1.5)) == 3
