"""The usual mistakes in lesson 01's exercises: each is caught, and told apart from the others."""

import math
import time

import torch
from pytest import mark, raises

from labkit.course.checking import CheckFailed
from labkit.lessons.gloo_scaling import checks
from tests.lessons.gloo_scaling import answers


def caught(check, *given):
    with raises(CheckFailed) as failure:
        check(*given)
    return " ".join(failure.value.meaning.split())


# 1.1: the stopwatch


TIMERS = {
    answers.own_time: "each rank reports its own time",
    answers.average_rank: "the average over ranks is a time that no rank had",
    answers.only_rank_0: "only one rank returns",
    answers.no_warmup: "there is no warm-up",
    answers.warmup_counted: "the first calls connect, allocate and load",
    answers.mean: "lets one hiccup decide",
    answers.fastest: "the fastest call is the luckiest one",
    answers.slowest_median: "first the slowest rank of each iteration",
    answers.no_barrier: "the clock starts while a rank is still on its way",
    answers.one_barrier: "Meet before *every* call",
    answers.barrier_on_the_clock: "the stopwatch times itself",
    answers.closing_barrier: "the stopwatch times itself",
    answers.default_group: "a collective lacks group=group",
    answers.milliseconds: "not milliseconds",
}


@mark.timed
def test_a_right_stopwatch_passes(capsys):
    checks.check_time_call(answers.right_timer)
    assert "Exercise 1.1 passed" in capsys.readouterr().out


@mark.timed
@mark.parametrize("answer", TIMERS, ids=lambda answer: answer.__name__)
def test_each_wrong_stopwatch_is_named(answer, monkeypatch):
    monkeypatch.setattr(checks, "ATTEMPTS", 2)  # repetition is for right answers; this saves time
    assert TIMERS[answer] in caught(checks.check_time_call, answer)


# 1.2: fusing


FUSED = {
    answers.not_copied_back: "Copy each part back into its tensor",
    answers.returned_instead: "new ones that are returned",
    answers.new_tensors_in_the_list: "new ones that are returned",
    answers.view_fails: "`view` cannot flatten",
    answers.zero_dimensional: "a 0-dimensional tensor has no axis",
    answers.stacked: "`stack` needs equal shapes",
    answers.writes_to_a_copy: "writing to it changes nothing",
    answers.one_flat(torch.float32): "only the integers are wrong",
    answers.one_flat(torch.float64): "only the integers are wrong",
    answers.wrong_order: "cut in another order",
    answers.swapped_data: "assigning `.data` swaps the memory",
    answers.everybody: "pass group=group",
    answers.one_by_one: "a call per tensor",
    answers.in_halves: "more than one call per dtype",
    answers.gathered: "everybody's tensors gathered",
    answers.cloned_first: "a copy too many is alive",
}


def test_a_right_fusion_passes(capsys):
    checks.check_fused_all_reduce(answers.right_fused)
    assert "2 calls for 64 tensors" in capsys.readouterr().out


@mark.parametrize("answer", FUSED, ids=lambda answer: answer.__name__)
def test_each_wrong_fusion_is_named(answer):
    assert FUSED[answer] in caught(checks.check_fused_all_reduce, answer)


# 1.3: the knee


def cores_of(figures):
    quota, period = figures.cpu_max.split()
    return figures.cpus if quota == "max" else min(figures.cpus, int(quota) / int(period))


def law(pairs, figures, *, cores=cores_of, ranks=2, join=max, calls=None):
    calls = calls or figures.calls
    busy = ranks * pairs / cores(figures) * figures.on_cpu / calls
    return join(figures.wall / calls, busy)


def first_slower(figures):
    pairs = 1
    while law(pairs, figures) == law(1, figures):
        pairs += 1
    return pairs


def visible(figures):
    return figures.cpus


def quota_alone(figures):
    quota, period = figures.cpu_max.split()
    return figures.cpus if quota == "max" else int(quota) / int(period)


def period_assumed(figures):
    quota, _ = figures.cpu_max.split()
    return figures.cpus if quota == "max" else min(figures.cpus, int(quota) / 100_000)


TIMES = {
    "the max is missing": {"join": lambda latency, busy: busy},
    "the law is missing": {"join": lambda latency, busy: latency},
    "not their sum": {"join": lambda latency, busy: latency + busy},
    "a pair has two ranks": {"ranks": 1},
    "the CPUs that the container shows": {"cores": visible},
    "gives no further CPUs": {"cores": quota_alone},
    "the period is not always": {"cores": period_assumed},
    "divide by their number": {"calls": 1},
}


def test_a_right_prediction_passes(capsys):
    checks.check_knee(law, first_slower)
    assert "Exercise 1.3 passed" in capsys.readouterr().out


@mark.parametrize("meaning", TIMES)
def test_each_wrong_law_is_named(meaning):
    options = TIMES[meaning]
    answer = caught(checks.check_knee, lambda p, figures: law(p, figures, **options), first_slower)
    assert meaning in answer


def knee(figures):
    return figures.wall * cores_of(figures) / figures.on_cpu


KNEES = {
    "asked for is the first that is not": lambda figures: first_slower(figures) - 1,
    "asked for are pairs": lambda figures: int(knee(figures)) + 1,
    "look into cpu.max": lambda figures: next(
        pairs
        for pairs in range(2, 1000)
        if law(pairs, figures, cores=visible) > law(1, figures, cores=visible)
    ),
    "at the knee itself": lambda figures: max(2, math.ceil(knee(figures) / 2)),
    "one pair cannot be slower": lambda figures: int(knee(figures) / 2) + 1,
}


@mark.parametrize("meaning", KNEES)
def test_each_wrong_knee_is_named(meaning):
    assert meaning in caught(checks.check_knee, law, KNEES[meaning])


@mark.parametrize("got", [None, "many"])
def test_no_number_is_no_answer(got):
    assert caught(checks.check_knee, lambda pairs, figures: got, first_slower)
    assert caught(checks.check_knee, law, lambda figures: got)


# 1.4: shared memory


SHARED = {
    answers.one_half: "overwrote its slot before we had read it",
    answers.half_by_partner: "both partners must use the same half",
    answers.no_wait: "wait() is never called",
    answers.no_wake: "nobody calls wake()",
    answers.wait_first: "each waits before it wakes the other",
    answers.wake_before_writing: "write first, then wake",
    answers.own_slot: "twice our own tensor",
    answers.new_tensor: "add in place",
    answers.partner_alone: "the partner's tensor alone",
    answers.meets_twice: "the partners meet twice",
}


@mark.timed
def test_a_right_shared_sum_passes(capsys):
    checks.check_shared_sum(answers.right_shared)
    assert "1 wake-up per sum" in capsys.readouterr().out


@mark.parametrize("answer", SHARED, ids=lambda answer: answer.__name__)
def test_each_wrong_shared_sum_is_named(answer):
    assert SHARED[answer] in caught(checks.check_shared_sum, answer)


@mark.timed
@mark.parametrize("delay", ["comes late", "dawdles when woken", "dawdles after waking"])
def test_a_right_shared_sum_is_never_held_up(delay):
    """The scripted delays must end because the partner went on, not because patience did."""
    from labkit import launch
    from labkit.lessons.gloo_scaling import meetings

    def turns():
        start = time.perf_counter()
        result = meetings.turns(answers.right_shared, delay, 0)
        return result["stuck"], time.perf_counter() - start

    for stuck, seconds in launch(turns, world_size=2):
        assert not stuck
        assert seconds < meetings.TURNS * meetings.PATIENCE / 3 / 2
