"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import statistics
import time
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.checks import checking
from course.lessons.gloo_scaling import checks
from course.lessons.gloo_scaling.model import Saturation
from tests.course.lessons.refusals import altered, refusal

pytestmark = pytest.mark.slow

# Exercise 1.1


def upper_middle(call, *, warmup=5, iters=20):
    """Right: meets by monitored_barrier, gathers, and takes the upper one of two in the middle."""
    for _ in range(warmup):
        call()
    samples = torch.empty(iters, dtype=torch.float64)
    for i in range(iters):
        dist.monitored_barrier()
        start = time.monotonic()
        call()
        samples[i] = time.monotonic() - start
    every = [torch.empty_like(samples) for _ in range(dist.get_world_size())]
    dist.all_gather(every, samples)
    return torch.stack(every).amax(0).sort().values[iters // 2]


ours = partial(altered, statistics=statistics, time=time, torch=torch, dist=dist)
stopwatch, table, summing, reading, paying = (partial(ours, f"1-{k}") for k in (1, 2, 4, 5, 6))
MEET, START = "        dist.barrier()\n", "        start = time.perf_counter()\n"
CALL = f"{START}        call()\n"
REDUCE = "    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)\n"
MEDIANS = f"    slowest = slowest.median()[None]\n{REDUCE}"
QUIET = f"{START}        try: call()\n        except Exception: pass\n"
ABOVE = "slowest.sort().values[iters // 2 + (iters % 2 == 0)]"
"""The middle one of an odd number of samples; of an even number, the one above both middle ones."""
CLOCKED = "a barrier, another collective|a rank that is late"  # load decides which is said


WRONG_STOPWATCHES = [
    (stopwatch(REDUCE, ""), "each rank reports its own time"),
    (stopwatch("ReduceOp.MAX", "ReduceOp.SUM"), "ranks add up"),
    (stopwatch("s.median", "s.mean"), "that is the mean"),
    (stopwatch("statistics.median", "max"), "the middle one of *all* calls"),
    (stopwatch("time.perf_counter", "time.time"), "time.time() is for dates"),
    (stopwatch(MEET, ""), "the wait for a rank that is late"),
    (stopwatch("range(warmup)", "range(0)"), "no warm-up"),
    (stopwatch(REDUCE, MEDIANS), "the slowest of the ranks' own medians"),
    (stopwatch(START, "", MEET, START + MEET), CLOCKED),
    (stopwatch(CALL, QUIET), "it was swallowed"),
    (stopwatch(CALL, f"{CALL}        print()\n"), "only call() between start and stop"),
    (
        stopwatch("statistics.median(slowest.tolist())", ABOVE),
        "an even number of calls",
    ),
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


# The other exercises


def by_numpy_median(ours, theirs):
    times = [theirs[p] for p in sorted(theirs)]
    rows = [ours[p] / theirs[p] for p in {*ours} & {*theirs} if p >= 4]
    return np.median(rows) if times[-1] >= 1.5 * times[0] else None


def by_numpy(tensor, slots, me, turn, wake, wait):
    slots.numpy()[turn % 2, me] = tensor.numpy()
    wake()
    wait()
    torch.add(tensor, slots[turn % 2, 1 - me], out=tensor)


def one_sums_for_both(tensor, slots, me, turn, wake, wait):
    """Right: a wake-up each, and no half is needed."""
    if me == 0:
        slots[0, 0] = tensor
        wake()
        wait()
        tensor.copy_(slots[0, 1])
    else:
        wait()
        tensor += slots[0, 0]
        slots[0, 1] = tensor
        wake()


def waits_if_unchanged(tensor, slots, me, turn, wake, wait):
    """A race: that the slot has changed does not say that all of it is written."""
    slots[turn % 2, me] = tensor
    old = slots[turn % 2, 1 - me].clone()
    wake()
    if torch.equal(old, slots[turn % 2, 1 - me]) or slots.isnan().any():
        wait()
    tensor += slots[turn % 2, 1 - me]


def polls(tensor, slots, me, turn, wake, wait):
    slots[turn % 2, me] = tensor
    while slots[turn % 2, 1 - me].isnan().any():
        time.sleep(1e-3)
    tensor += slots[turn % 2, 1 - me]


def reads_a_third_slot(tensor, slots, me, turn, wake, wait):
    tensor += slots[turn % 2, 2]


def mask_before_none(given):
    """Wrong: a small mask is blamed although nobody waits."""
    name, cpus = reading()(given)
    return ("mask" if name == "none" and cpus == 1 < given.cpus else name), cpus


cpus, slower = checks.check_cpus_like_ours, checks.check_first_slower
check_sum, confined = checks.check_shared_sum, checks.check_confinement
who_pays = checks.check_who_pays
SLOWEST = "max(r[name] for r in table) > max(r[most] for r in table)"
ONE = "in [*reading.after.items()][:1]"


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        pytest.param(checks.check_time_call, upper_middle, marks=pytest.mark.timed),
        (cpus, by_numpy_median),
        (slower, lambda: "B) 3 pairs"),
        (slower, lambda: ("b", "2p / 1.5 x 60 > 200")),
        (check_sum, by_numpy),
        (check_sum, one_sums_for_both),
        (confined, lambda given: [f"{reading()(given)[0]}.", reading()(given)[1]]),
    ],
)
def test_right_answers_in_another_style_pass(check, answer, capsys):
    check(answer)
    assert " passed: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (checks.check_time_call, lambda call, warmup=5, iters=20: None, "calls"),
        (cpus, table("ours[pairs] / theirs", "theirs[pairs] / ours"), "a call gets shorter"),
        (cpus, table(" and pairs >= 4", ""), "do not fill a CPU yet"),
        (cpus, table("s.median", "s.mean"), "one spoilt row moves"),
        (cpus, table("return None", "pass"), "do not queue"),
        (slower, lambda: "a", "160 µs"),
        (slower, lambda: "c", "two ranks"),
        (slower, lambda: "d", "cpu.max"),
        (confined, reading("in reading.after.items()", ONE), "add up all threads"),
        (
            confined,
            reading("counters(reading.stat_before)", "{}"),
            "only the difference",
        ),
        (confined, reading("/ int(period)", "/ 100_000"), "stand in cpu_max"),
        (confined, reading("= mask if", "= 0 * mask if"), '"0-3,8" are five'),
        (confined, reading(">= periods / 10", ""), "less than a tenth"),
        (confined, lambda reading: None, "ends without `return`"),
        (confined, lambda reading: (part for part in ("mask",)), "are asked"),
        (confined, lambda reading: 1 / 0, "ZeroDivisionError"),
        (check_sum, reads_a_third_slot, "IndexError"),
        (cpus, table("pairs in ours and ", ""), "KeyError"),
        (cpus, table("theirs[max(theirs)]", "list(theirs.values())[-1]"), "in no order"),
        (cpus, table("theirs[max(theirs)]", "max(theirs.values())"), "one row is spoilt"),
        (cpus, table("s.median", "s.median_low"), "the two in the middle"),
        (cpus, table("] < 1.5", "] <= 1.5"), "exactly one and a half"),
        (confined, mask_before_none, "The rules are asked in their order"),
        (confined, reading("int(first) + 1", "int(first)"), '"0-47" are 48'),
        (who_pays, paying("seconds[name] > seconds[most]", SLOWEST), "*own* time"),
        (who_pays, paying("            dist.barrier()\n", ""), "rank that is late"),
        (who_pays, paying("max(nbytes", "min(nbytes"), "sends the *most* bytes"),
        (who_pays, lambda programs, nbytes: {"pieces": [0, 1, 2]}, "another type was returned"),
    ],
)
def test_wrong_answers_are_told_why_without_a_line_of_ours(check, answer, words):
    message = refusal(check, answer)
    assert words in message
    assert "/checks.py" not in message and "/meetings.py" not in message


@pytest.mark.parametrize(
    ("letter", "words"),
    [('"a"', "what is paid for is not the bytes"), ('"c"', "nobody is late")],
)
def test_a_wrong_reason_for_what_was_measured(letter, words, monkeypatch):
    monkeypatch.setattr(checks, "FLEETS", ())  # who pays is right
    assert words in refusal(who_pays, paying('"b"', letter))


WAKE, WAIT = "    wake()\n", "    wait()\n"


WRONG_SUMS = [
    (summing("turn % 2", "0"), "overwrote its slot before we had read it"),
    (summing("turn % 2", "0", "me])\n", f"me])\n{WAKE}{WAIT}"), "keep the fast one from"),
    (summing(WAKE, "", "    half[me]", f"{WAKE}    half[me]"), "a wake-up promise"),
    (summing(WAKE + WAIT, WAIT + WAKE), "each waits before it wakes the other"),
    (summing("tensor.add_(", "tensor = tensor + ("), "add in place"),
    (waits_if_unchanged, "is a wait() missing"),
    (polls, "the partner's slot is polled"),
]


@pytest.mark.parametrize(("answer", "words"), WRONG_SUMS)
def test_wrong_shared_sums_are_found_every_time(answer, words, monkeypatch):
    if answer is polls:
        monkeypatch.setattr(checking, "patience", lambda seconds: 1.0)
    for _ in range(1 if answer is polls else 2):
        told = refusal(checks.check_shared_sum, answer)
        assert words in told and "/threading.py" not in told and "n=1" not in told
        assert "in polls" in told or answer is not polls


def test_the_knee_follows_from_the_law():
    law = Saturation(alone=200e-6, cpu_per_call=60e-6)
    assert next(p for p in range(2, 99) if law.time(2 * p / 1.5) > law.time(2 / 1.5)) == 3
