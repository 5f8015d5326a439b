"""The usual mistakes in lesson 01's exercises: each is caught, and told apart from the others."""

import math
import statistics
import time

import torch
import torch.distributed as dist
from pytest import mark, raises

from labkit.course.checks import lesson_01
from labkit.course.checks.judging import CheckFailed
from labkit.course.checks.lesson_01 import timer


def caught(check, *answers):
    with raises(CheckFailed) as failure:
        check(*answers)
    return " ".join(failure.value.meaning.split())


# 1.1: the stopwatch


def samples_of(call, warmup, iters, group):
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(iters):
        dist.barrier(group=group)
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples


def reduced(values, op, group):
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op=op, group=group)
    return tensor


def right_timer(call, *, warmup=5, iters=20, group=None):
    samples = samples_of(call, warmup, iters, group)
    return reduced(samples, dist.ReduceOp.MAX, group).median().item()


def own_time(call, *, warmup, iters, group):
    return statistics.median(samples_of(call, warmup, iters, group))


def average_rank(call, *, warmup, iters, group):
    samples = samples_of(call, warmup, iters, group)
    total = reduced(samples, dist.ReduceOp.SUM, group)
    return total.median().item() / dist.get_world_size(group)


def only_rank_0(call, *, warmup, iters, group):
    median = right_timer(call, warmup=warmup, iters=iters, group=group)
    return median if dist.get_rank() == 0 else None


def no_warmup(call, *, warmup, iters, group):
    return right_timer(call, warmup=0, iters=iters, group=group)


def warmup_counted(call, *, warmup, iters, group):
    return right_timer(call, warmup=0, iters=warmup + iters, group=group)


def mean(call, *, warmup, iters, group):
    samples = samples_of(call, warmup, iters, group)
    return reduced(samples, dist.ReduceOp.MAX, group).mean().item()


def fastest(call, *, warmup, iters, group):
    samples = samples_of(call, warmup, iters, group)
    return reduced(samples, dist.ReduceOp.MAX, group).min().item()


def slowest_median(call, *, warmup, iters, group):
    median = statistics.median(samples_of(call, warmup, iters, group))
    return reduced([median], dist.ReduceOp.MAX, group).item()


def no_barrier(call, *, warmup, iters, group):
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(iters):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return reduced(samples, dist.ReduceOp.MAX, group).median().item()


def one_barrier(call, *, warmup, iters, group):
    dist.barrier(group=group)
    return no_barrier(call, warmup=warmup, iters=iters, group=group)


def barrier_on_the_clock(call, *, warmup, iters, group):
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(iters):
        start = time.perf_counter()
        dist.barrier(group=group)
        call()
        samples.append(time.perf_counter() - start)
    return reduced(samples, dist.ReduceOp.MAX, group).median().item()


def closing_barrier(call, *, warmup, iters, group):
    def call_and_meet():
        call()
        dist.barrier(group=group)

    return right_timer(call_and_meet, warmup=warmup, iters=iters, group=group)


def default_group(call, *, warmup, iters, group):
    return right_timer(call, warmup=warmup, iters=iters)


def milliseconds(call, **options):
    return 1e3 * right_timer(call, **options)


TIMERS = {
    own_time: "each rank reports its own time",
    average_rank: "the average over ranks is a time that no rank had",
    only_rank_0: "only one rank returns",
    no_warmup: "there is no warm-up",
    warmup_counted: "the first calls connect, allocate and load",
    mean: "lets one hiccup decide",
    fastest: "the fastest call is the luckiest one",
    slowest_median: "first the slowest rank of each iteration",
    no_barrier: "the clock starts while a rank is still on its way",
    one_barrier: "Meet before *every* call",
    barrier_on_the_clock: "the stopwatch times itself",
    closing_barrier: "the stopwatch times itself",
    default_group: "a collective lacks group=group",
    milliseconds: "not milliseconds",
}


def test_a_right_stopwatch_passes(capsys):
    lesson_01.check_time_call(right_timer)
    assert "Exercise 1.1 passed" in capsys.readouterr().out


@mark.parametrize("answer", TIMERS, ids=lambda answer: answer.__name__)
def test_each_wrong_stopwatch_is_named(answer, monkeypatch):
    monkeypatch.setattr(timer, "ATTEMPTS", 2)  # repetition is for right answers; this saves time
    assert TIMERS[answer] in caught(lesson_01.check_time_call, answer)


# 1.2: fusing


def right_fused(tensors, group=None):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.all_reduce(flat, group=group)
        parts = flat.split([tensor.numel() for tensor in alike])
        for tensor, part in zip(alike, parts, strict=True):
            tensor.copy_(part.view_as(tensor))


def not_copied_back(tensors, group):
    for dtype in (torch.float32, torch.int64):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        dist.all_reduce(torch.cat([tensor.reshape(-1) for tensor in alike]), group=group)


def returned_instead(tensors, group):
    sums = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    right_fused(sums, group)
    return sums


def new_tensors_in_the_list(tensors, group):
    sums = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    right_fused(sums, group)
    tensors[:] = sums


def view_fails(tensors, group):
    torch.cat([tensor.view(-1) for tensor in tensors])


def zero_dimensional(tensors, group):
    torch.cat([tensor for tensor in tensors if tensor.dim() < 2])


def stacked(tensors, group):
    torch.stack([tensor.reshape(-1) for tensor in tensors])


def writes_to_a_copy(tensors, group):
    for dtype in (torch.float32, torch.int64):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.all_reduce(flat, group=group)
        for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
            tensor.reshape(-1).copy_(part)


def one_flat(dtype):
    def promoted(tensors, group):
        flat = torch.cat([tensor.reshape(-1).to(dtype) for tensor in tensors])
        dist.all_reduce(flat, group=group)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    return promoted


def wrong_order(tensors, group):
    flat = torch.cat([t.reshape(-1) for t in tensors if t.dtype == torch.float32])
    dist.all_reduce(flat, group=group)
    offset = 0
    for tensor in reversed([t for t in tensors if t.dtype == torch.float32]):
        tensor.copy_(flat[offset : offset + tensor.numel()].view_as(tensor))
        offset += tensor.numel()
    right_fused([t for t in tensors if t.dtype != torch.float32], group)


def swapped_data(tensors, group):
    for dtype in (torch.float32, torch.int64):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.all_reduce(flat, group=group)
        for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
            tensor.data = part.view_as(tensor)


def everybody(tensors, group):
    right_fused(tensors)


def one_by_one(tensors, group):
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.all_reduce(whole, group=group)
        tensor.copy_(whole)


def in_halves(tensors, group):
    right_fused(tensors[::2], group)
    right_fused(tensors[1::2], group)
    right_fused([torch.zeros(1)], group)


def gathered(tensors, group):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        every = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
        dist.all_gather(every, flat, group=group)
        for tensor, part in zip(alike, sum(every).split([t.numel() for t in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))


def cloned_first(tensors, group):
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    right_fused(copies, group)
    for tensor, copy in zip(tensors, copies, strict=True):
        tensor.copy_(copy)


FUSED = {
    not_copied_back: "Copy each part back into its tensor",
    returned_instead: "new ones that are returned",
    new_tensors_in_the_list: "new ones that are returned",
    view_fails: "`view` cannot flatten",
    zero_dimensional: "a 0-dimensional tensor has no axis",
    stacked: "`stack` needs equal shapes",
    writes_to_a_copy: "writing to it changes nothing",
    one_flat(torch.float32): "only the integers are wrong",
    one_flat(torch.float64): "only the integers are wrong",
    wrong_order: "cut in another order",
    swapped_data: "assigning `.data` swaps the memory",
    everybody: "pass group=group",
    one_by_one: "a call per tensor",
    in_halves: "more than one call per dtype",
    gathered: "everybody's tensors gathered",
    cloned_first: "a copy too many is alive",
}


def test_a_right_fusion_passes(capsys):
    lesson_01.check_fused_all_reduce(right_fused)
    assert "2 calls for 64 tensors" in capsys.readouterr().out


@mark.parametrize("answer", FUSED, ids=lambda answer: answer.__name__)
def test_each_wrong_fusion_is_named(answer):
    assert FUSED[answer] in caught(lesson_01.check_fused_all_reduce, answer)


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
    lesson_01.check_knee(law, first_slower)
    assert "Exercise 1.3 passed" in capsys.readouterr().out


@mark.parametrize("meaning", TIMES)
def test_each_wrong_law_is_named(meaning):
    options = TIMES[meaning]
    answer = caught(
        lesson_01.check_knee, lambda p, figures: law(p, figures, **options), first_slower
    )
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
    assert meaning in caught(lesson_01.check_knee, law, KNEES[meaning])


@mark.parametrize("got", [None, "many"])
def test_no_number_is_no_answer(got):
    assert caught(lesson_01.check_knee, lambda pairs, figures: got, first_slower)
    assert caught(lesson_01.check_knee, law, lambda figures: got)


# 1.4: shared memory


def right_shared(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.add_(half[1 - me])


def one_half(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, 0, wake, wait)


def half_by_partner(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, me, wake, wait)


def no_wait(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, lambda: None)


def no_wake(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, lambda: None, wait)


def wait_first(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wait, wake)


def wake_before_writing(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    wake()
    half[me].copy_(tensor)
    wait()
    tensor.add_(half[1 - me])


def own_slot(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, wait)
    tensor.sub_(slots[turn % 2, 1 - me]).mul_(2)


def new_tensor(tensor, slots, me, turn, wake, wait):
    right_shared(tensor.clone(), slots, me, turn, wake, wait)


def partner_alone(tensor, slots, me, turn, wake, wait):
    right_shared(tensor.clone(), slots, me, turn, wake, wait)
    tensor.copy_(slots[turn % 2, 1 - me])


def meets_twice(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, 0, wake, wait)
    wake()
    wait()


SHARED = {
    one_half: "overwrote its slot before we had read it",
    half_by_partner: "both partners must use the same half",
    no_wait: "wait() is never called",
    no_wake: "nobody calls wake()",
    wait_first: "each waits before it wakes the other",
    wake_before_writing: "write first, then wake",
    own_slot: "twice our own tensor",
    new_tensor: "add in place",
    partner_alone: "the partner's tensor alone",
    meets_twice: "the partners meet twice",
}


def test_a_right_shared_sum_passes(capsys):
    lesson_01.check_shared_sum(right_shared)
    assert "1 wake-up per sum" in capsys.readouterr().out


@mark.parametrize("answer", SHARED, ids=lambda answer: answer.__name__)
def test_each_wrong_shared_sum_is_named(answer):
    assert SHARED[answer] in caught(lesson_01.check_shared_sum, answer)


@mark.parametrize("delay", ["comes late", "dawdles when woken", "dawdles after waking"])
def test_a_right_shared_sum_is_never_held_up(delay, monkeypatch):
    """The scripted delays must end because the partner went on, not because patience did."""
    from labkit import launch
    from labkit.course.checks.lesson_01 import shared

    def turns():
        start = time.perf_counter()
        result = shared._turns(right_shared, delay, 0)
        return result["stuck"], time.perf_counter() - start

    for stuck, seconds in launch(turns, world_size=2):
        assert not stuck
        assert seconds < shared.TURNS * shared.PATIENCE / 3 / 2
