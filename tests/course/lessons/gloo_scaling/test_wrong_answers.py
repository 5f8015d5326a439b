"""The usual mistakes in lesson 01's exercises: each is caught, and told apart from the others."""

import math
import time
from unittest import mock

import torch
from pytest import mark, raises

from course.catalogue import ROOT
from course.checking import CheckFailed
from course.lessons.gloo_scaling import checks
from tests.course.lessons.gloo_scaling import answers


def caught(check, *given):
    with raises(CheckFailed) as failure:
        check(*given)
    return " ".join(failure.value.meaning.split())


# 1.1: the stopwatch


RIGHT_TIMERS = [answers.right_timer, answers.gathering_timer, answers.stepping_timer]
TIMERS = {
    answers.own_time: "each rank reports its own time",
    answers.average_rank: "the average over ranks is a time that no rank had",
    answers.only_rank_0: "ends without `return`",
    answers.no_warmup: "there is no warm-up",
    answers.warmup_counted: "the first calls connect, allocate and load",
    answers.mean: "a mean lets one slow call decide",
    answers.fastest: "the fastest call is the luckiest one",
    answers.of_sorted(answers.trimmed): "a mean without its extremes",
    answers.of_sorted(answers.third_quartile): "a few slow calls must not decide",
    answers.of_sorted(answers.slowest_call): "the slowest call is an accident",
    answers.slowest_median: "first the slowest rank of each iteration",
    answers.no_barrier: "the clock starts while a rank is still on its way",
    answers.one_barrier: "Meet before *every* call",
    answers.barrier_on_the_clock: "the stopwatch times itself",
    answers.closing_barrier: "the stopwatch times itself",
    answers.default_group: "a collective lacks group=group",
    answers.milliseconds: "not milliseconds",
    answers.cpu_clock: "the clock stands while a rank waits",
}


@mark.timed
@mark.parametrize("answer", RIGHT_TIMERS, ids=lambda answer: answer.__name__)
def test_a_right_stopwatch_passes(answer, capsys):
    checks.check_time_call(answer)
    assert "Exercise 1.1 passed" in capsys.readouterr().out


@mark.timed
@mark.parametrize("answer", TIMERS, ids=TIMERS.get)
def test_each_wrong_stopwatch_is_named(answer, monkeypatch):
    monkeypatch.setattr(checks, "ATTEMPTS", 2)  # patience is for right answers; this saves time
    monkeypatch.setattr(checks, "PATIENCE", 2.5)
    assert TIMERS[answer] in caught(checks.check_time_call, answer)


# 1.2: fusing


RIGHT_FUSED = [
    answers.right_fused,
    answers.fused_by_name,
    answers.fused_with_torchs_helpers,
    answers.fused_in_a_thread,
]
FUSED = {
    answers.not_copied_back: "Copy each part back into its tensor",
    answers.returned_instead: "new ones that are returned",
    answers.new_tensors_in_the_list: "new ones that are returned",
    answers.view_fails: "`view` cannot flatten",
    answers.zero_dimensional: "a 0-dimensional tensor has no axis",
    answers.stacked: "`stack` needs equal shapes",
    answers.writes_to_a_copy: "writing to it changes nothing",
    answers.one_flat(torch.float32): "one flat tensor for all dtypes",
    answers.one_flat(torch.float64): "one flat tensor for all dtypes",
    answers.wrong_order: "cut in another order",
    answers.swapped_data: "assigning `.data` swaps the memory",
    answers.everybody: "pass group=group",
    answers.one_by_one: "a call per tensor",
    answers.in_halves: "more than one call per dtype",
    answers.gathered: "gathering everybody's tensors",
    answers.cloned_first: "a copy too many is alive",
    answers.in_half_precision: "in a narrower dtype",
    answers.waits_too_late: "with async_op=True a call only begins",
    answers.by_a_sets_order: "in another order than the list has them",
    answers.remembering: "keeps something between calls",
    answers.cannot_do_none: "for an empty list there is nothing to do",
    answers.means: "these are means",
    answers.labkits_own: "the exercise is to write one yourself",
    answers.nothing_is_sent: "nothing is summed through torch.distributed",
}


@mark.parametrize("answer", RIGHT_FUSED, ids=lambda answer: answer.__name__)
def test_a_right_fusion_passes(answer, capsys):
    checks.check_fused_all_reduce(answer)
    assert "1 call per dtype" in capsys.readouterr().out


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


def whole_ranks(pairs, figures):
    per_core = math.ceil(2 * pairs / cores_of(figures))
    return max(figures.wall, per_core * figures.on_cpu) / figures.calls


TIMES = {
    "the max is missing": {"join": lambda latency, busy: busy},
    "the law is missing": {"join": lambda latency, busy: latency},
    "not their sum": {"join": lambda latency, busy: latency + busy},
    "a pair has two ranks": {"ranks": 1},
    "the CPUs that the container shows": {"cores": visible},
    "gives no further CPUs": {"cores": quota_alone},
    "the period is not always": {"cores": period_assumed},
    "divide by their number": {"calls": 1},
    "seconds are asked for": {"join": lambda latency, busy: 1e6 * max(latency, busy)},
}


def by_formula(figures):
    """The knee without a search."""
    return max(2, math.floor(knee(figures) / 2) + 1)


def by_halving(figures):
    low, high = 1, 2
    while law(high, figures) <= law(1, figures):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if law(middle, figures) > law(1, figures) else (middle, high)
    return high


@mark.parametrize("answer", [first_slower, by_formula, by_halving], ids=lambda a: a.__name__)
def test_a_right_prediction_passes(answer, capsys):
    checks.check_knee(law, answer)
    assert "Exercise 1.3 passed" in capsys.readouterr().out


def test_whole_ranks_per_core_are_another_reading_of_the_law():
    assert "the average counts" in caught(checks.check_knee, whole_ranks, first_slower)


def test_a_search_that_ends_too_early_is_caught():
    def up_to_49(figures):
        return next((p for p in range(2, 50) if law(p, figures) > law(1, figures)), 49)

    assert "the first number of pairs with" in caught(checks.check_knee, law, up_to_49)


def test_a_search_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(checks.checking.ask, "__kwdefaults__", {"limit": 0.3})

    def endless(figures):
        while law(1, figures) <= law(1, figures):
            pass

    assert "a loop that does not end" in caught(checks.check_knee, law, endless)


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
        for pairs in range(2, 10_000)
        if law(pairs, figures, cores=visible) > law(1, figures, cores=visible)
    ),
    "at the knee itself": lambda figures: max(2, math.ceil(knee(figures) / 2)),
    "one pair cannot be slower": lambda figures: int(knee(figures) / 2) + 1,
    "the first *whole* number": lambda figures: knee(figures) / 2,
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
    answers.new_tensor: "Add in place",
    answers.partner_alone: "the partner's tensor alone",
    answers.meets_twice: "the partners meet twice",
    answers.library_instead: "torch.distributed does the sum here",
    answers.messages_instead: "torch.distributed does the sum here",
    answers.polls: "polled",
    answers.swaps_memory: "pointed at other memory",
    answers.sets_memory: "pointed at other memory",
    answers.half_precision: "digits are lost",
}


RIGHT_SHARED = [answers.right_shared, answers.shared_by_index, answers.shared_by_numpy]


@mark.timed
@mark.parametrize("answer", RIGHT_SHARED, ids=lambda answer: answer.__name__)
def test_a_right_shared_sum_passes(answer, capsys):
    checks.check_shared_sum(answer)
    assert "1 wake-up per sum" in capsys.readouterr().out


@mark.parametrize("answer", SHARED, ids=lambda answer: answer.__name__)
def test_each_wrong_shared_sum_is_named(answer):
    assert SHARED[answer] in caught(checks.check_shared_sum, answer)


@mark.timed
@mark.parametrize("delay", ["comes late", "dawdles when woken", "dawdles after waking"])
def test_a_right_shared_sum_is_never_held_up(delay):
    """The scripted delays must end because the partner went on, not because patience did."""
    from course.lessons.gloo_scaling import meetings
    from labkit import launch

    def turns():
        start = time.perf_counter()
        result = meetings.turns(answers.right_shared, delay, 0)
        return result["stuck"], time.perf_counter() - start

    for stuck, seconds in launch(turns, world_size=2):
        assert not stuck
        assert seconds < meetings.TURNS * meetings.PATIENCE / 3 / 2


# What a statement says and what its check says


def test_a_par_stands_once():
    statements = (ROOT / "solutions" / "01_gloo_scaling.ipynb").read_text()
    told = {}

    def noted(number, *, par):
        told[number] = par
        raise StopIteration

    for number, check in {
        "1.1": checks.check_time_call,
        "1.2": checks.check_fused_all_reduce,
        "1.3": lambda answer: checks.check_knee(answer, answer),
        "1.4": checks.check_shared_sum,
    }.items():
        with mock.patch.object(checks.checking, "exercise", noted), raises(StopIteration):
            check(None)
        assert f"**Par:** {told[number]} ·" in statements
