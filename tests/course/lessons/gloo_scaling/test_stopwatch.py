"""Right stopwatches of exercise 1.1 pass; each wrong one is told apart from the others."""

import statistics

import torch
import torch.distributed as dist
from pytest import mark

from course.lessons.gloo_scaling import checks
from course.lessons.gloo_scaling.sick_calls import SICK_CALLS
from tests.course.lessons.gloo_scaling import answers
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = mark.slow

TIMERS = {
    answers.own_time: "each rank reports its own time",
    answers.average_rank: "neither an average over ranks",
    answers.only_rank_0: "ends without `return`",
    answers.no_warmup: "there is no warm-up",
    answers.warmup_counted: "the first calls connect, allocate and load",
    answers.mean: "a few slow calls must not decide",
    answers.of_sorted(answers.fastest): "the fastest call, not the typical one",
    answers.one_call_short: "a loop begins with 1",
    answers.one_call_more: "made outside the two loops",
    answers.middle_in_time: "sort, take the middle one",
    answers.of_sorted(lambda s: s[len(s) // 2 + (len(s) % 2 == 0)]): "take the middle one",
    answers.first_dropped: "middle one of all of them",
    answers.of_sorted(statistics.geometric_mean): "neither a mean of any kind",
    answers.of_sorted(lambda s: s[len(s[: -len(s) // 10]) // 2]): "none may be left out",
    answers.ranks_0_and_1: "nor one rank's own time",
    answers.retries: "no second try",
    answers.slowest_median: "first the slowest rank of each iteration",
    answers.wall_clock: "time.time() is for dates",
    answers.barrier_on_the_clock: "the stopwatch times itself",
    answers.milliseconds: "not milliseconds",
    answers.cpu_clock: "the clock stands while a rank waits",
    answers.every_second_barrier: "meet before *every* call",
    answers.swallows: "a call that fails must not be timed",
    answers.rounded: "the time was rounded",
    answers.summed: "all ranks' seconds together",
    answers.labkits_stopwatch: "the exercise is to write one yourself",
    answers.like_ours(before=lambda i, n: dist.barrier(async_op=True)): "nobody waits for it",
    answers.like_ours(before=lambda i, n: i and dist.barrier()): "not all ranks have met",
    answers.like_ours(before=lambda i, n: i < n - 1 and dist.barrier()): "not all ranks have met",
    answers.like_ours(before=lambda i, n: None, after=dist.barrier): "not all ranks have met",
    answers.like_ours(before=lambda i, n: dist.broadcast(torch.zeros(1), 0)): "not all ranks",
    answers.like_ours(late=lambda: [str(k) for k in range(1000)]): "work of Python's own",
    answers.from_start_to_stop: "a zero of its own",
    answers.other_defaults: "keep the defaults",
    answers.nan_timer: "no number",
    answers.constant: "no barrier takes that long",
}


@mark.timed
@mark.exhaustive
def test_a_right_stopwatch_of_another_kind_passes(capsys):
    checks.check_time_call(answers.of_all_ranks)
    assert "Exercise 1.1 passed" in capsys.readouterr().out


def test_a_sum_over_ranks_is_known_for_each_sick_call():
    """By hand: 2 + 2 + 25; twice the middle one; 25 + 2 + 2; 40 + 0, the truth; 80 + 3 times 2."""
    assert [round(1e3 * one.together) for one in SICK_CALLS] == [29, 160, 40, 29, 40, 86, 86, 86]


SAMPLE = answers.own_time, answers.no_warmup, answers.middle_in_time, answers.cpu_clock


@mark.timed
@mark.parametrize(
    "answer", [one if one in SAMPLE else seldom(one) for one in TIMERS], ids=TIMERS.get
)
def test_each_wrong_stopwatch_is_named(answer, monkeypatch):
    monkeypatch.setattr(checks, "ATTEMPTS", 2)  # patience is for right answers; this saves time
    assert TIMERS[answer] in refusal(checks.check_time_call, answer)
