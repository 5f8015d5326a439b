"""The checks of lesson 01: a stopwatch, a foreign table, a knee, shared memory, two readings.

Two of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`sick_calls`) and the meetings of the partners (`meetings`) so that each
usual mistake shows every time, on a busy machine too.
"""

import math
from collections.abc import Callable
from numbers import Real
from statistics import mean, median

from course.checks import checking
from course.checks.checking import hold
from course.lessons.gloo_scaling import confined, meetings, sick_calls
from course.lessons.gloo_scaling.confined import Reading
from course.lessons.gloo_scaling.meetings import Meeting
from course.lessons.gloo_scaling.sick_calls import SickCall
from labkit.ranks.launcher import launch

# 1.1: the stopwatch

WITHIN = 0.4
"""Accepted relative error. The usual mistakes are off by a half or more."""
OWN_COST = 0.05
"""What a stopwatch may add to a call, in barriers. Reading a clock costs a thousandth of one."""
ATTEMPTS = 3
"""A busy machine can spoil a reading, hardly three in a row; a mistake spoils all of them."""
DEFAULTS = "who gives no `warmup` and `iters` wants 5 and 20: keep the defaults of the signature"


def check_time_call(time_call: Callable[..., float]) -> None:
    """Judge 1.1: ``time_call(call, warmup=, iters=)`` returns the same seconds on every rank.

    Three ranks time four calls that sleep by a script: one rank is slower, some calls are, ranks
    take turns, a rank comes late. Then a call that does nothing, and one that fails.
    """
    par = "within 40 % on four sick calls, own cost at most 5 % of a barrier"
    with checking.exercise("1.1", time_call, par=par) as verdict:
        errors: dict[SickCall, float] = {}
        for attempt in range(ATTEMPTS):
            left = [sick for sick in sick_calls.SICK_CALLS if errors.get(sick, 1) > WITHIN]
            every = checking.on_ranks(
                sick_calls.examine, time_call, left, world_size=3, checks=False
            )
            for sick, ranks in zip(left, zip(*every, strict=True), strict=True):
                seconds = _seconds(sick, ranks)
                low, high = sick.middle
                errors[sick] = max(1 - seconds / low, seconds / high - 1, 0.0)
                hold(
                    errors[sick] <= WITHIN or attempt < ATTEMPTS - 1,
                    f"{sick.name}: {high * 1e3:.1f} ms per call, give or take {WITHIN:.0%}",
                    f"{seconds * 1e3:.1f} ms",
                    _why_the_seconds(seconds, sick),
                    timed=True,
                )
        for _ in range(ATTEMPTS):
            cost = _own_cost(time_call)
            if cost <= OWN_COST:
                break
        checking.at_most(
            cost,
            OWN_COST,
            what="a call that does nothing",
            unit="barriers",
            meaning="the stopwatch times itself: a barrier, another collective or work of Python's "
            "own is done between start and stop",
            timed=True,
        )
        hold(
            checking.on_ranks(sick_calls.comes_out, time_call, world_size=1)[0],
            "an exception of the call comes out of the stopwatch",
            "it was swallowed",
            "a call that fails must not be timed as if it had worked: no bare `except`",
        )
        verdict.reached = f"within {max(errors.values()):.0%}, own cost {cost:.2%} of a barrier"


def _seconds(sick: SickCall, ranks: tuple[tuple[float, int], ...]) -> float:
    """Hold the number of calls and the answers to be alike; return the seconds."""
    for _, calls in ranks:
        hold(
            calls == sick.warmup + sick.iters,
            f"{sick.name}: {sick.warmup} calls to warm up and {sick.iters} that count",
            f"{calls} calls",
            "there is no warm-up: the first `warmup` calls must not be counted"
            if calls == sick.iters
            else "a loop begins with 1, ends early, or does not go by its argument",
        )
    what = f"{sick.name}: seconds, on every rank"
    answers = [checking.answer(checking.plain(seconds), float, what=what) for seconds, _ in ranks]
    hold(
        max(answers) - min(answers) <= 1e-3 * abs(max(answers)),
        f"{sick.name}: the same answer on every rank",
        f"{', '.join(f'{answer * 1e3:.4g}' for answer in answers)} ms on the ranks",
        "each rank reports its own time. A collective is done when its slowest rank is: exchange "
        "the times (all_reduce with ReduceOp.MAX) before you take the median",
    )
    return answers[0]


def _why_the_seconds(seconds: float, sick: SickCall) -> str:
    _, high = sick.middle
    ranks = [median(row[sick.warmup :]) / 1e3 for row in sick.script]
    mistakes = {
        "time.time() is for dates, its clock can be set back, and was: use time.perf_counter": (
            min(seconds, -1.0)
        ),
        "that is the mean, which a few slow calls decide: sort the samples, take the middle one": (
            mean(sick.each(max))
        ),
        "the first calls are in it, which connect, allocate and load: make `warmup` calls before "
        "you count": median(sick.each(max, first=0)),
        "ranks add up, or their mean is taken: a call is done when its slowest rank is": (
            median(sick.each(lambda seconds: sum(seconds)))
        ),
        "that is the slowest of the ranks' own medians, which hides that every single call was "
        "slow for somebody. First the slowest rank of each call, then the median": max(ranks),
        "you time the wait for a rank that is late. Meet (barrier) before *every* call, and start "
        "the clock after that": 2 * high,
        "seconds are asked for, not milliseconds": 1e3 * high,
    }
    otherwise = (
        "the median of the slowest rank's seconds: the middle one of *all* calls that count, "
        "sorted. (Or is this machine busy? Then run it once more)"
    )
    return checking.diagnose(seconds, mistakes, otherwise=otherwise, within=0.2)


def _own_cost(time_call: Callable[..., float]) -> float:
    """Return what the stopwatch adds to a call, in barriers; it is called without options."""
    every = checking.on_ranks(sick_calls.own_cost, time_call, world_size=2, checks=False)
    seconds, calls, barrier = every[0]
    hold(calls == 25, "time_call(call): 5 calls to warm up and 20 that count", calls, DEFAULTS)
    expected = "a call that does nothing: some hundred nanoseconds"
    hold(seconds > 0, expected, f"{seconds} s", "the time was rounded: return all its digits")
    return seconds / barrier


# 1.2: how many CPUs had they?

OURS = {1: 420e-6, 2: 410e-6, 4: 800e-6, 6: 1200e-6, 8: 1600e-6}
"""Seconds per call on one of our CPUs, by pairs."""
TABLES = {
    "a job with two CPUs": ({1: 400e-6, 2: 250e-6, 4: 400e-6, 8: 800e-6}, 2.0),
    "half a CPU": ({1: 830e-6, 2: 820e-6, 4: 1600e-6, 8: 3200e-6}, 0.5),
    "one row is spoilt": ({2: 140e-6, 4: 200e-6, 6: 300e-6, 8: 1600e-6}, 4.0),
    "nobody queues": ({1: 420e-6, 2: 420e-6, 4: 421e-6, 8: 422e-6}, None),
}
"""A job's seconds per call by pairs, and what exercise 1.2 asks of it."""


def check_cpus_like_ours(cpus_like_ours: Callable[..., float | None]) -> None:
    """Judge 1.2: the median of ours / theirs where calls queue; None where they do not.

    Four tables: two CPUs, half a CPU, one spoilt row, and one in which no time grows.
    """
    with checking.exercise("1.2", cpus_like_ours, par="every table"):
        for name, (theirs, right) in TABLES.items():
            got = checking.ask(cpus_like_ours, dict(OURS), dict(theirs), case=name)
            every = [OURS[p] / theirs[p] for p in theirs if p in OURS]
            full = [OURS[p] / theirs[p] for p in theirs if p in OURS and p >= 4]
            mistakes = {
                "that is theirs / ours; a call gets shorter with more CPUs": 1 / (right or 1),
                "fewer than four pairs do not fill a CPU yet: leave them out": median(every),
                "that is the mean, which one spoilt row moves: take the median": mean(full),
            }
            otherwise = "the rows of 4 pairs and more that both tables have; None where the last "
            otherwise += "time is less than 1.5 times the first: then calls do not queue"
            if right is None or got is None:
                hold(got is right, f"{name}: {right}", repr(got), otherwise)
            else:
                what = (name, right, mistakes, otherwise)
                checking.figures([got], [what], within=1e-6)


# 1.3: a prediction


def check_first_slower(vote: Callable[[], str]) -> None:
    """Judge 1.3: the first number of pairs that is slower than one pair."""
    wrong = {
        "a": "2 pairs are 4 ranks: 4 / 1.5 x 60 µs = 160 µs, less than the 200 of one pair alone",
        "c": "a pair has two ranks, and each of them needs the CPU",
        "d": "these are all the CPUs that the machine shows: cpu.max allows fewer, quota / period",
    }
    with checking.exercise("1.3", vote, par="the number"):
        checking.letter(vote, right="b", wrong=wrong)


# 1.4: a sum through shared memory


def check_shared_sum(shared_sum: Callable[..., None]) -> None:
    """Judge 1.4: ``shared_sum(tensor, slots, me, turn, wake, wait)`` adds the partner's tensor.

    Eight meetings of twelve sums each: one partner comes late, or dawdles at a bad moment, with
    tensors of many shapes, contiguous and not. Then two real ranks are timed.
    """
    par = "1 wake-up per sum, right in every meeting"
    raises = {"view size is not compatible": "a tensor need not be contiguous, and view(-1) of one "
              "that is not fails: copy in its own shape"}  # fmt: skip
    with checking.exercise("1.4", shared_sum, par=par, raises=raises) as verdict:
        hang = (
            "the partner's slot is polled: looking again and again takes a CPU, which on a busy "
            "machine is the partner's, and here it never gets on. wait() sleeps"
        )
        checking.on_ranks(_hold_meetings, shared_sum, world_size=1, timeout=6.0, hang=hang)
        ranks = launch(meetings.race, shared_sum, world_size=2)
        ours, gloo = (1e6 * max(times) for times in zip(*ranks, strict=True))
        verdict.reached = f"1 wake-up per sum, {ours:.0f} µs (gloo: {gloo:.0f} µs)"


def _hold_meetings(shared_sum: Callable[..., None]) -> None:
    for meeting in meetings.meetings():
        try:
            meeting.hold(shared_sum)
        except Exception as error:
            error.add_note(f"in a meeting: {meeting}")
            raise
        _judge_meeting(meeting)


def _judge_meeting(meeting: Meeting) -> None:
    for turn, tensors in enumerate(zip(*meeting.sums, strict=False)):
        data = [meeting.data(turn, me) for me in (0, 1)]
        for me in sorted((0, 1), key=lambda me: not tensors[me].isnan().any()):  # nan says most
            own, theirs, following = data[me], data[1 - me], meeting.data(turn + 1, 1 - me)
            mistakes = {
                "the tensor is as it was: add in place (add_), into the tensor's own memory. "
                "`tensor = tensor + ...` and `.data =` do not; reshape(-1) of one with gaps is a "
                "copy": own,
                "this is twice our own: the partner's slot is the one at 1 - me": 2 * own,
                "this is the mean: the sum is asked": (own + theirs) / 2,
                "we read what the partner wrote for the *next* turn: it was faster and overwrote "
                "its slot before we had read it. Two halves, used in turns, make that impossible": (
                    own + following
                ),
            }
            checking.same_values(
                tensors[me],
                own + theirs,
                what=f"turn {turn} on partner {me} ({meeting})",
                mistakes=mistakes,
                meaning="we read a slot that the partner had not written in this turn. What does a "
                "wake-up promise to who is woken? And do both partners mean the same half?"
                if tensors[me].isnan().any()
                else "which slot was read, what was written there last, and is a wait() missing?",
            )
    if meeting.stuck is not None:
        waits = "each waits before it wakes the other, so that both sleep"
        missing = "nobody calls wake(): each partner must wake the other"
        expected, got = f"every wait() ends ({meeting})", f"partner {meeting.stuck}'s never did"
        hold(False, expected, got, waits if any(meeting.wakes) else missing)
    hold(
        {*meeting.wakes, *meeting.waits} == {meetings.TURNS},
        "1 wake() and 1 wait() per sum",
        f"{meeting.wakes} and {meeting.waits} on the partners, in {meetings.TURNS} sums",
        "a second meeting does keep the fast one from overwriting, but writing to the other half "
        "in every second turn is free. And that a slot has changed does not say that all of it is "
        "written: no sum without a wait()",
    )


# 1.5: two launches, one of them confined


def check_confinement(confinement: Callable[[Reading], tuple[str, float]]) -> None:
    """Judge 1.5: ``confinement(reading)`` names what holds a rank back, and counts its CPUs.

    On eight readings in the kernel's format; each is special in its own way (`readings.json`).
    """
    with checking.exercise("1.5", confinement, par="every reading") as verdict:
        readings = confined.readings()
        for reading, (right, most), special in readings:
            expected = f"{right!r} and {most} CPUs, of {reading}"
            got = checking.ask(confinement, reading, case=str(reading))
            checking.answer(got, (tuple, list), what="a name and a number of CPUs")
            hold(len(got) == 2, expected, repr(got), "a name and a number of CPUs are asked")
            name = checking.word(got[0], confined.NAMES, what="a name")
            hold(name == right, expected, repr(got), special)
            cpus = checking.answer(got[1], Real, what="a number of CPUs")
            hold(
                math.isclose(cpus, most, rel_tol=1e-6),
                expected,
                repr(got),
                'the CPUs of the mask ("0-3,8" are five), or quota / period if that is less. It '
                "may be a part of a CPU, and is not rounded; both figures stand in cpu_max",
            )
        verdict.reached = f"{len(readings)} readings"
