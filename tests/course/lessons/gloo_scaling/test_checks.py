"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import contextlib
import statistics
from dataclasses import replace
from functools import partial

import pytest
import torch.distributed as dist

from course.checks import checking
from course.lessons.gloo_scaling import checks, paying, stopwatches
from course.lessons.gloo_scaling.model import Saturation
from tests.course.lessons.gloo_scaling import answers
from tests.course.lessons.gloo_scaling.answers import (
    confinement,
    over_ranks,
    stopwatch,
    timed,
    timed_at_once,
)
from tests.course.lessons.gloo_scaling.answers import cpus_like_ours as like_ours
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


def never_warms_up(call, *, warmup=5, iters=20):
    return stopwatch(call, warmup=0, iters=iters)


def medians_first(samples):
    return over_ranks([statistics.median(samples)])


def one_above_the_middle(samples):
    is_even = len(samples) % 2 == 0
    return sorted(samples)[len(samples) // 2 + is_even]


def with_the_meeting(call):
    def meet_and_call():
        dist.barrier()
        call()

    return timed_at_once(meet_and_call)


def swallowing(call):
    def tried():
        with contextlib.suppress(Exception):
            call()

    return timed(tried)


def printing(call):
    def call_and_print():
        call()
        print()

    return timed(call_and_print)


add_up = partial(over_ranks, op=dist.ReduceOp.SUM)
SLOW, FAR, EVEN, IN_TURNS, LATE = stopwatches.SICK_CALLS
WRONG_STOPWATCHES = [
    (partial(stopwatch, exchange=list), SLOW, "each rank reports its own time"),
    (partial(stopwatch, exchange=add_up), SLOW, "ranks add up"),
    (partial(stopwatch, middle=statistics.mean), FAR, "that is the mean"),
    (partial(stopwatch, middle=max), FAR, "the middle one of *all* calls"),
    (partial(stopwatch, sample=partial(timed, clock="time")), SLOW, "time.time() is for dates"),
    (partial(stopwatch, sample=timed_at_once), LATE, "the wait for a rank that is late"),
    (never_warms_up, SLOW, "no warm-up"),
    (partial(stopwatch, exchange=medians_first), IN_TURNS, "the slowest of the ranks' own medians"),
    (partial(stopwatch, sample=with_the_meeting), None, "a barrier, another collective"),
    (partial(stopwatch, sample=swallowing), None, "it was swallowed"),
    (partial(stopwatch, sample=printing), None, "only call() between start and stop"),
    (partial(stopwatch, middle=one_above_the_middle), EVEN, "an even number of calls"),
]
"""What differs from a right one, the first sick call that shows it, or None, and the words."""


@pytest.mark.timed
@pytest.mark.parametrize(("answer", "sick", "words"), WRONG_STOPWATCHES)
def test_wrong_stopwatches(answer, sick, words, monkeypatch):
    monkeypatch.setattr(checks, "ATTEMPTS", 1)  # patience is for right answers
    monkeypatch.setattr(stopwatches, "SICK_CALLS", [sick] if sick else [])
    for _ in range(3):
        message = refusal(checks.check_time_call, answer)
        if "run it once more" not in message or words in message:
            break  # else as the check says, for where a pause of the machine spoilt its reading
    assert words in message


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


def theirs_over_ours(ours, theirs):
    rows = answers.full_rows(ours, theirs)
    return statistics.median(theirs[pairs] / ours[pairs] for pairs in rows)


def both_have(ours, theirs):
    return ours.keys() & theirs.keys()


def they_have(ours, theirs):
    return [pairs for pairs in theirs if pairs >= 4]


def in_more_than(theirs):
    return theirs[max(theirs)] > 1.5 * theirs[min(theirs)]


def in_the_last_row(theirs):
    return [*theirs.values()][-1] >= 1.5 * theirs[min(theirs)]


def in_the_longest(theirs):
    return max(theirs.values()) >= 1.5 * theirs[min(theirs)]


def one_thread(reading):
    thread = next(iter(reading.after))
    return confinement(replace(reading, after={thread: reading.after[thread]}))


def since_the_cgroup_was_made(reading):
    return confinement(replace(reading, stat_before=None))


def slowest_for_all(own):
    return [over_ranks(own)] * dist.get_world_size()


WRONG = [
    (cpus, theirs_over_ours, "a call gets shorter"),
    (cpus, partial(like_ours, rows=both_have), "do not fill a CPU yet"),
    (cpus, partial(like_ours, rows=they_have), "KeyError"),
    (cpus, partial(like_ours, middle=statistics.mean), "one spoilt row moves"),
    (cpus, partial(like_ours, middle=statistics.median_low), "the two in the middle"),
    (cpus, partial(like_ours, queue=lambda theirs: True), "do not queue"),
    (cpus, partial(like_ours, queue=in_more_than), "exactly one and a half"),
    (cpus, partial(like_ours, queue=in_the_last_row), "in no order"),
    (cpus, partial(like_ours, queue=in_the_longest), "one row is spoilt"),
    (slower, lambda: "a", "160 µs"),
    (slower, lambda: "c", "two ranks"),
    (slower, lambda: "d", "cpu.max"),
    (check_sum, answers.one_half, "overwrote its slot before we had read it"),
    (check_sum, answers.meets_twice, "keep the fast one from"),
    (check_sum, answers.wakes_before_it_writes, "a wake-up promise"),
    (check_sum, answers.waits_before_it_wakes, "each waits before it wakes the other"),
    (check_sum, answers.adds_into_a_new_tensor, "add in place"),
    (check_sum, answers.waits_if_unchanged, "is a wait() missing"),
    (check_sum, answers.reads_a_third_slot, "IndexError"),
    (confined, one_thread, "add up all threads"),
    (confined, since_the_cgroup_was_made, "only the difference"),
    (confined, answers.knows_the_period, "stand in cpu_max"),
    (confined, answers.has_no_cpus_without_a_quota, '"0-3,8" are five'),
    (
        confined,
        partial(confinement, throttles=lambda _, throttled: throttled > 0),
        "less than a tenth",
    ),
    (confined, partial(confinement, size=lambda part: answers.size(part) - 1), '"0-47" are 48'),
    (confined, answers.mask_before_none, "The rules are asked in their order"),
    (confined, lambda reading: (part for part in ("mask",)), "are asked"),
    (who_pays, partial(answers.who_pays, exchange=slowest_for_all), "*own* time"),
    (who_pays, partial(answers.who_pays, sample=timed_at_once), "rank that is late"),
    (who_pays, partial(answers.who_pays, largest=min), "sends the *most* bytes"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_wrong_answers_are_told_why_without_a_line_of_ours(check, answer, words):
    message = refusal(check, answer)
    assert words in message
    assert not [ours for ours in ("checks", "meetings", "threading") if f"/{ours}.py" in message]


@pytest.mark.parametrize(("letter", "words"), [("a", "is not the bytes"), ("c", "nobody is late")])
def test_a_wrong_reason_for_what_was_measured(letter, words, monkeypatch):
    monkeypatch.setattr(paying, "FLEETS", ())  # who pays is right
    assert words in refusal(who_pays, partial(answers.who_pays, reason=letter))


def test_a_sum_that_polls_is_ended_and_its_line_is_shown(monkeypatch):
    monkeypatch.setattr(checking, "patience", lambda seconds: 1.0)
    message = refusal(check_sum, answers.polls)
    assert "the partner's slot is polled" in message and "in polls" in message
    assert "n=1" not in message and "/threading.py" not in message


def test_the_knee_follows_from_the_law():
    law = Saturation(alone=200e-6, cpu_per_call=60e-6)
    assert next(p for p in range(2, 99) if law.time(2 * p / 1.5) > law.time(2 / 1.5)) == 3
