"""Right answers in several styles, and the usual wrong ones, each caught with its own message."""

import functools
import math
import random
import statistics
import threading
import time
from statistics import fmean

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce

from course.checking import CheckFailed
from course.comm import shapes
from course.comm.buckets import plan as reference_plan
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import said


def caught(check, answer, words):
    assert words in said(check, answer)


# Exercise 2.1


def by_sorting(seconds):
    transfer, cost = 0.0, [0.0] * len(seconds)
    for timers in zip(*seconds, strict=True):
        ranks = sorted(range(len(timers)), key=timers.__getitem__)
        transfer += timers[ranks[0]]
        cost[ranks[0]] += timers[ranks[1]] - timers[ranks[0]]
    worst = cost.index(max(cost))
    return worst, transfer, cost[worst]


def by_arithmetic_without(seconds):
    """What would be saved without each rank, in tensors."""
    table = torch.tensor(seconds, dtype=torch.float64)
    first = table.min(0).values
    saved = [
        float((torch.cat([table[:r], table[r + 1 :]]).min(0).values - first).clamp(min=0).sum())
        for r in range(len(seconds))
    ]
    worst = max(range(len(saved)), key=saved.__getitem__)
    return worst, float(first.sum()), saved[worst]


def by_loops(seconds):
    lost, moved = {}, 0
    for c in range(len(seconds[0])):
        column = [own[c] for own in seconds]
        last = column.index(min(column))
        others = [t for r, t in enumerate(column) if r != last]
        lost[last] = lost.get(last, 0) + min(others) - column[last]
        moved += column[last]
    return max(lost, key=lost.get), moved, max(lost.values())


@pytest.mark.parametrize("answer", [by_sorting, by_arithmetic_without, by_loops])
def test_right_diagnoses(answer, capsys):
    checks.check_diagnose(answer)
    assert "2.1 passed" in capsys.readouterr().out


def with_rank(choose):
    def answer(seconds):
        rank = choose(seconds)
        return rank, *by_sorting(seconds)[1:]

    return answer


def total(choose):
    return with_rank(lambda s: choose(range(len(s)), key=lambda rank: sum(s[rank])))


@with_rank
def most_often_last(seconds):
    last = [min(range(len(seconds)), key=lambda r: seconds[r][c]) for c in range(len(seconds[0]))]
    return max(range(len(seconds)), key=last.count)


@with_rank
def largest_single_gap(seconds):
    gaps = []
    for call in zip(*seconds, strict=True):
        first, second = sorted(call)[:2]
        gaps.append((second - first, call.index(first)))
    return max(gaps, key=lambda gap: gap[0])[1]


@with_rank
def blaming_the_first_of_a_tie(seconds):
    cost = [0.0] * len(seconds)
    for call in zip(*seconds, strict=True):
        later = [timer for timer in call if timer > min(call)]
        cost[call.index(min(call))] += min(later, default=min(call)) - min(call)
    return cost.index(max(cost))


def with_transfer(transfer):
    def answer(seconds):
        rank, _, lost = by_sorting(seconds)
        return rank, transfer(seconds), lost

    return answer


def with_lost(lost):
    def answer(seconds):
        rank, transfer, right = by_sorting(seconds)
        cost = [[] for _ in seconds]
        for call in zip(*seconds, strict=True):
            first, second, *_ = sorted(call)
            cost[call.index(first)].append((second - first, max(call) - first, call))
        return rank, transfer, lost(rank, right, cost)

    return answer


def everybody(rank, right, cost):
    return sum(gap for own in cost for gap, *_ in own)


def minus_runner_up(rank, right, cost):
    return right - sorted(sum(gap for gap, *_ in own) for own in cost)[-2]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (total(max), "it is the first victim, not the cause"),
        (total(min), "the smallest total is not enough"),
        (most_often_last, "need not cost most"),
        (largest_single_gap, "one large gap may be less than many small ones"),
        (blaming_the_first_of_a_tie, "two ranks that arrive last together cost nothing each"),
        (with_transfer(lambda s: fmean(map(sum, s))), "averaging over ranks mixes the waiting"),
        (with_transfer(lambda s: min(map(sum, s))), "no rank is last in every call"),
        (with_transfer(lambda s: sum(map(max, zip(*s, strict=True)))), "has all the waiting in it"),
        (with_lost(everybody), "that is what all ranks cost together"),
        (with_lost(minus_runner_up), "how much more than the runner-up"),
        (
            with_lost(lambda rank, right, cost: sum(spread for _, spread, _ in cost[rank])),
            "the next to last would decide",
        ),
        (
            with_lost(
                lambda rank, right, cost: sum(
                    sum(call) - len(call) * min(call) for *_, call in cost[rank]
                )
            ),
            "the group loses that time once",
        ),
        (lambda seconds: None, "ends without `return`"),
        (lambda seconds: by_sorting(seconds)[:2], "three values are asked"),
        (lambda seconds: [own.clear() for own in seconds] or (0, 0.0, 0.0), "use a copy"),
    ],
)
def test_wrong_diagnoses(answer, words):
    caught(checks.check_diagnose, answer, words)


# Exercise 2.2


def one_open_bucket(nbytes, cap, first_cap):
    buckets, bucket, held = [], [], 0
    for place in reversed(range(len(nbytes))):
        if bucket and held + nbytes[place] > (cap if buckets else first_cap):
            buckets.append(bucket)
            bucket, held = [], 0
        bucket.append(place)
        held += nbytes[place]
    return [*buckets, bucket] if bucket else buckets


def appending_to_the_last(nbytes, cap, first_cap):
    buckets = []
    for place in range(len(nbytes) - 1, -1, -1):
        limit = first_cap if len(buckets) == 1 else cap
        if not buckets or sum(nbytes[p] for p in buckets[-1]) + nbytes[place] > limit:
            buckets.append([])
        buckets[-1].append(place)
    return tuple(map(tuple, buckets))


def recursively(nbytes, cap, first_cap):
    def rest(end, limit):
        if end == 0:
            return []
        begin = end - 1
        while begin and sum(nbytes[begin - 1 : end]) <= limit:
            begin -= 1
        return [list(range(end - 1, begin - 1, -1)), *rest(begin, cap)]

    return rest(len(nbytes), first_cap)


@pytest.mark.parametrize("answer", [one_open_bucket, appending_to_the_last, recursively])
def test_right_plans(answer, capsys):
    checks.check_plan(answer)
    assert "2.2 passed" in capsys.readouterr().out


def forwards(nbytes, cap, first_cap):
    last = len(nbytes) - 1
    plan = one_open_bucket(nbytes[::-1], cap, first_cap)
    return [[last - place for place in bucket] for bucket in plan]


def by_size(nbytes, cap, first_cap):
    order = sorted(range(len(nbytes)), key=lambda place: (-nbytes[place], place))
    plan = one_open_bucket([nbytes[place] for place in order], cap, first_cap)
    return [[order[place] for place in bucket] for bucket in plan]


def first_fit(nbytes, cap, first_cap):
    buckets = []
    for place in reversed(range(len(nbytes))):
        for number, bucket in enumerate(buckets):
            held = sum(nbytes[p] for p in bucket)
            if held + nbytes[place] <= (cap if number else first_cap):
                bucket.append(place)
                break
        else:
            buckets.append([place])
    return buckets


def over_the_cap(nbytes, cap, first_cap):
    buckets, bucket, held = [], [], 0
    for place in reversed(range(len(nbytes))):
        bucket.append(place)
        held += nbytes[place]
        if held >= (cap if buckets else first_cap):
            buckets.append(bucket)
            bucket, held = [], 0
    return [*buckets, bucket] if bucket else buckets


def closing_when_full(nbytes, cap, first_cap):
    """`<` for `<=`: a bucket may not be exactly full."""
    return one_open_bucket(nbytes, cap - 1, first_cap - 1)


def without_empty_tensors(nbytes, cap, first_cap):
    return [
        kept
        for bucket in one_open_bucket(nbytes, cap, first_cap)
        if (kept := [place for place in bucket if nbytes[place]])
    ]


def emptying(nbytes, cap, first_cap):
    plan = one_open_bucket(nbytes, cap, first_cap)
    nbytes.clear()
    return plan


def labkits_own(nbytes, cap, first_cap):
    specs = [shapes.TensorSpec(str(size), (size,), "int8") for size in nbytes]
    found = reference_plan(specs, cap=cap, reverse=True)
    return [list(bucket.members) for bucket in found]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (forwards, "go through the list backwards"),
        (by_size, "do not sort by size"),
        (first_fit, "no tensor moved forward"),
        (lambda *args: one_open_bucket(*args)[:-1], "the last bucket is never closed"),
        (over_the_cap, "look before you put a tensor in"),
        (lambda nbytes, cap, first_cap: one_open_bucket(nbytes, cap, cap), "smaller cap"),
        (lambda nbytes, *_: [[p] for p in reversed(range(len(nbytes)))], "would have fitted"),
        (closing_when_full, "would have fitted"),
        (lambda *args: [[], *one_open_bucket(*args)], "only if something is in it"),
        (lambda *args: one_open_bucket(*args) or [[]], "there may be no tensor at all"),
        (without_empty_tensors, "a tensor without elements has a place, too"),
        (emptying, "use a copy"),
        (labkits_own, "an answer of your own"),
        (lambda *_: None, "ends without `return`"),
    ],
)
def test_wrong_plans(answer, words):
    caught(checks.check_plan, answer, words)


# Exercise 2.3


def in_background(parameter):
    return dist.all_reduce(parameter.grad, async_op=True)


def imported_by_name(parameter):
    return all_reduce(parameter.grad, async_op=True)


def divided_before(parameter):
    parameter.grad /= dist.get_world_size()
    return all_reduce(parameter.grad, async_op=True)


def waiting(works):
    for work, _ in works:
        work.wait()


def waiting_for_futures(works):
    torch.futures.wait_all([work.get_future() for work, _ in works])


def waiting_for_each_future(works):
    for work, _ in works:
        work.get_future().wait()


def asking(works):
    for work, _ in works:
        while not work.is_completed():
            time.sleep(0.001)
        work.wait()


def attached(start=in_background, *, wait=waiting, divide=True, forget=True, give_back=True):
    def attach(model):
        works = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda parameter: works.append((start(parameter), parameter))
            )

        def finish():
            wait(works)
            for _, parameter in works:
                if divide:
                    parameter.grad /= dist.get_world_size()
            if forget:
                works.clear()

        return finish if give_back else None

    return attach


def attached_with_futures(model):
    """Each future divides when its sum is there, and finish waits for what comes of it."""
    futures = []

    def hook(parameter):
        future = all_reduce(parameter.grad, async_op=True).get_future()

        def divide(_):
            parameter.grad /= dist.get_world_size()

        futures.append(future.then(divide))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        while futures:
            futures.pop().wait()

    return finish


class Averager:
    """An object instead of closures; works in a dictionary, waited for in another order."""

    def __init__(self, model):
        self.works = {}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.start)

    def start(self, parameter):
        self.works[parameter] = dist.all_reduce(parameter.grad, async_op=True)

    def __call__(self):
        for parameter, work in reversed(self.works.items()):
            work.wait()
            parameter.grad.div_(dist.get_world_size())
        self.works = {}


@pytest.mark.parametrize(
    "answer",
    [
        attached(),
        attached(imported_by_name, wait=waiting_for_futures),
        attached(wait=waiting_for_each_future),
        attached(divided_before, wait=asking, divide=False),
        attached_with_futures,
        Averager,
    ],
)
def test_right_overlaps(answer, capsys):
    checks.check_overlap(answer)
    assert "2.3 passed" in capsys.readouterr().out


def at_once(parameter):
    dist.all_reduce(parameter.grad)


def after_backward(model):
    def finish():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, async_op=True).wait()
            parameter.grad /= dist.get_world_size()

    return finish


def behind_the_one_before(model):
    works = []

    def hook(parameter):
        if works:
            works[-1][0].wait()
        works.append((in_background(parameter), parameter))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        waiting(works)
        for _, parameter in works:
            parameter.grad /= dist.get_world_size()
        works.clear()

    return finish


def in_half_precision(model):
    works = []

    def hook(parameter):
        half = parameter.grad.half()
        works.append((dist.all_reduce(half, async_op=True), half, parameter))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for work, half, parameter in works:
            work.wait()
            parameter.grad.copy_(half / dist.get_world_size())
        works.clear()

    return finish


def in_threads(model):
    """Blocking calls in threads: the ranks' calls come in different orders."""
    threads = []

    def hook(parameter):
        def later():
            time.sleep(0.01 * ((parameter.numel() + dist.get_rank() * 7) % 5))
            dist.all_reduce(parameter.grad)

        threads.append(threading.Thread(target=later, daemon=True))
        threads[-1].start()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for thread in threads:
            thread.join()
        threads.clear()

    return finish


def divided_at_once(parameter):
    work = in_background(parameter)
    parameter.grad /= dist.get_world_size()
    return work


def with_a_barrier(works):
    dist.barrier()
    waiting(works)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (attached(divide=False), "divide by the world size"),
        (attached(at_once, wait=lambda works: None), "waits, be it for the work before"),
        (behind_the_one_before, "waits, be it for the work before"),
        (after_backward, "the calls start after backward is over"),
        (attached(wait=lambda works: works[-1][0].wait()), "says nothing of the others"),
        (attached(wait=lambda works: time.sleep(0.1)), "no sleep is long enough"),
        (
            attached(lambda p: dist.all_reduce(p.grad.clone(), async_op=True), divide=False),
            "the sum is in another tensor",
        ),
        (attached(divided_at_once, divide=False), "a gradient belongs to the library"),
        (attached(forget=False), "forget last step's works"),
        (attached(give_back=False), "`return finish` is missing"),
        (in_half_precision, "the all_reduce of its own parameter, whole, as it is"),
        (
            attached(lambda p: (in_background(p), in_background(p))[1], divide=False),
            "the all_reduce of its own parameter, whole, as it is, and once",
        ),
        (attached(wait=with_a_barrier), "nothing else has to be sent"),
        (lambda model: lambda: None, "no all_reduce was made"),
    ],
)
def test_wrong_overlaps(answer, words):
    caught(checks.check_overlap, answer, words)


def test_threads_that_start_all_reduces_are_told_so():
    with pytest.raises((CheckFailed, RuntimeError)) as failure:  # gloo may notice before a hang
        checks.check_overlap(in_threads)
    if isinstance(failure.value, CheckFailed):
        assert "own parameter" in str(failure.value) or "thread of backward" in str(failure.value)


# Exercise 2.4


def by_probabilities(delays, n):
    ordered, m = sorted(delays), len(delays)
    return sum(x * ((k + 1) ** n - k**n) / m**n for k, x in enumerate(ordered))


def by_survival(delays, n):
    """The mean is the sum of the steps between delays, each times the chance to be above it."""
    ordered, m = sorted(delays), len(delays)
    steps = zip([0.0, *ordered], ordered, range(m), strict=False)
    return sum((upper - lower) * (1 - (k / m) ** n) for lower, upper, k in steps)


def by_counting_values(delays, n):
    share = functools.cache(lambda x: sum(d <= x for d in delays) / len(delays))
    total, below = 0.0, 0.0
    for x in sorted(set(delays)):
        total, below = total + x * (share(x) ** n - below), share(x) ** n
    return total


@pytest.mark.parametrize("answer", [by_probabilities, by_survival, by_counting_values])
def test_right_latest(answer, capsys):
    checks.check_latest(answer)
    assert "2.4 passed" in capsys.readouterr().out


def simulated(delays, n):
    draw = random.Random(1)
    return fmean(max(draw.choices(delays, k=n)) for _ in range(5000))


def without_replacement(delays, n):
    m, ordered = len(delays), sorted(delays)
    if n >= m:
        return ordered[-1]
    return sum(math.comb(k, n - 1) * x for k, x in enumerate(ordered)) / math.comb(m, n)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda delays, n: fmean(delays), "the mean of one rank's delays"),
        (lambda delays, n: n * fmean(delays), "not for one after the other"),
        (lambda delays, n: max(delays), "with few ranks, most steps are spared it"),
        (lambda delays, n: statistics.median(delays), "the median of one rank's delays"),
        (
            lambda delays, n: sorted(delays)[math.ceil(0.5 ** (1 / n) * len(delays)) - 1],
            "that is the median of the latest",
        ),
        (
            lambda delays, n: fmean(delays) * sum(1 / k for k in range(1, n + 1)),
            "right for exponential delays only",
        ),
        (lambda delays, n: by_probabilities(sorted(set(delays)), n), "keep the ties"),
        (without_replacement, "ranks draw independently"),
        (simulated, "a simulation comes near"),
        (lambda delays, n: 0.5 * max(delays) + 1.0, "if *every* rank is"),
        (lambda delays, n: None, "ends without `return`"),
        (lambda delays, n: time.sleep(60), "an answer within"),
    ],
)
def test_wrong_latest(answer, words):
    caught(checks.check_latest, answer, words)


def test_an_unattempted_exercise_says_so():
    def stub(*_):
        raise NotImplementedError("exercise 2.2")

    with pytest.raises(NotImplementedError, match=r"exercise 2\.2"):
        checks.check_plan(stub)
