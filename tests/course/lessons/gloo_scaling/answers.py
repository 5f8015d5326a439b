"""Right answers to lesson 01's exercises, and the usual wrong ones.

Ranks import this file to run them, so it imports no test tools.
"""

import statistics
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp, all_gather_object, all_reduce, barrier

from course.lessons.gloo_scaling import programs

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


def gathering_timer(call, *, warmup=5, iters=20, group=None):
    """The same by objects, and by functions that were imported by name."""
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(iters):
        barrier(group=group)
        start = time.monotonic()
        call()
        samples.append(time.monotonic() - start)
    everybody = [None] * dist.get_world_size(group)
    all_gather_object(everybody, samples, group=group)
    return statistics.median(map(max, zip(*everybody, strict=True)))


def stepping_timer(call, *, warmup=5, iters=20, group=None):
    """The slowest rank of each iteration at once; an all_reduce of one element as the barrier."""
    slowest = []
    for i in range(warmup + iters):
        all_reduce(torch.zeros(1), group=group)
        start = time.perf_counter_ns()
        call()
        elapsed = torch.tensor([time.perf_counter_ns() - start])
        all_reduce(elapsed, op=ReduceOp.MAX, group=group)
        if i >= warmup:
            slowest.append(elapsed.item() / 1e9)
    return sorted(slowest)[len(slowest) // 2]


def of_sorted(pick):
    def timer(call, *, warmup, iters, group):
        samples = samples_of(call, warmup, iters, group)
        return pick(sorted(reduced(samples, dist.ReduceOp.MAX, group).tolist()))

    return timer


def trimmed(ordered):
    return statistics.fmean(ordered[1:-1])


def third_quartile(ordered):
    return ordered[3 * len(ordered) // 4]


def slowest_call(ordered):
    return ordered[-1]


def cpu_clock(call, *, warmup, iters, group):
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(iters):
        dist.barrier(group=group)
        start = time.process_time()
        call()
        samples.append(time.process_time() - start)
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


# 1.2: fusing


def right_fused(tensors, group=None):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.all_reduce(flat, group=group)
        parts = flat.split([tensor.numel() for tensor in alike])
        for tensor, part in zip(alike, parts, strict=True):
            tensor.copy_(part.view_as(tensor))


def fused_by_name(tensors, group=None):
    """Functions imported by name, works, and slices that are cut by hand."""
    by_dtype = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    flats, works = [], []
    for alike in by_dtype.values():
        flats.append(torch.cat([tensor.flatten() for tensor in alike]))
        works.append(all_reduce(flats[-1], group=group, async_op=True))
    for work, flat, alike in zip(works, flats, by_dtype.values(), strict=True):
        work.wait()
        start = 0
        for tensor in alike:
            tensor[...] = flat[start : start + tensor.numel()].reshape(tensor.shape)
            start += tensor.numel()


def fused_with_torchs_helpers(tensors, group=None):
    from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = _flatten_dense_tensors([tensor.contiguous() for tensor in alike])
        all_reduce(flat, op=ReduceOp.SUM, group=group)
        for tensor, part in zip(alike, _unflatten_dense_tensors(flat, alike), strict=True):
            tensor.copy_(part)


def fused_in_a_thread(tensors, group=None):
    """Odd, but right: whoever counts only the calls of one thread would see none."""
    worker = threading.Thread(target=right_fused, args=(tensors, group))
    worker.start()
    worker.join()


def labkits_own(tensors, group=None):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        programs.fused(alike, programs.Pair(0, 1, group))


def waits_too_late(tensors, group=None):
    works = []
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        works.append(dist.all_reduce(flat, group=group, async_op=True))
        for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))
    for work in works:
        work.wait()


def in_half_precision(tensors, group):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        if dtype == torch.float32:
            flat = flat.bfloat16()
        dist.all_reduce(flat, group=group)
        for tensor, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))


def by_a_sets_order(tensors, group):
    right_fused(sorted(tensors, key=lambda tensor: str(tensor.dtype)), group)


def remembering(tensors, group, kept={}):  # noqa: B006
    if len(tensors) not in kept:
        right_fused(tensors, group)
        kept[len(tensors)] = [tensor.clone() for tensor in tensors]
    else:
        own = [tensor.clone() for tensor in tensors]
        right_fused(own, group)
        for tensor, old in zip(tensors, kept[len(tensors)], strict=True):
            tensor.copy_(old)


def cannot_do_none(tensors, group):
    kinds = {tensors[0].dtype: 0} | {tensor.dtype: 0 for tensor in tensors}
    assert kinds
    right_fused(tensors, group)


def means(tensors, group):
    right_fused(tensors, group)
    for tensor in tensors:
        tensor.copy_(tensor / dist.get_world_size(group))


def nothing_is_sent(tensors, group):
    for tensor in tensors:
        tensor.mul_(dist.get_world_size(group))


def not_copied_back(tensors, group):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
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


# 1.4: shared memory


def right_shared(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.add_(half[1 - me])


def shared_by_index(tensor, slots, me, turn, wake, wait):
    slots[turn & 1, me] = tensor
    wake()
    wait()
    tensor += slots[turn & 1, 1 - me]


def shared_by_numpy(tensor, slots, me, turn, wake, wait):
    half, other = turn % 2, 1 - me
    slots.numpy()[half, me] = tensor.numpy()
    wake()
    wait()
    torch.add(tensor, slots[half, other], out=tensor)


def library_instead(tensor, slots, me, turn, wake, wait):
    wake()
    wait()
    dist.all_reduce(tensor)


def messages_instead(tensor, slots, me, turn, wake, wait):
    work = dist.isend(tensor.clone(), 1 - me)
    theirs = torch.empty_like(tensor)
    dist.recv(theirs, 1 - me)
    work.wait()
    wake()
    wait()
    tensor += theirs


def polls(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    end = time.monotonic() + 20
    while half[1 - me].isnan().any() and time.monotonic() < end:
        pass
    wait()
    tensor.add_(half[1 - me])
    half[1 - me].fill_(float("nan"))


def swaps_memory(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.data = tensor + half[1 - me]


def sets_memory(tensor, slots, me, turn, wake, wait):
    total = tensor.clone()
    right_shared(total, slots, me, turn, wake, wait)
    tensor.set_(total)


def half_precision(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, wait)
    theirs = slots[turn % 2, 1 - me]
    tensor.sub_(theirs).add_(theirs.bfloat16().float())


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


# What fooled the checks of the first edition


def every_second_barrier(call, *, warmup, iters, group):
    samples = []
    for i in range(warmup + iters):
        if i % 2 == 0:
            dist.barrier(group=group)
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return reduced(samples[warmup:], ReduceOp.MAX, group).quantile(0.5).item()


def without_the_slow(ordered):
    return statistics.fmean(ordered[:-2])


def cost_subtracted(call, *, warmup, iters, group):
    median = barrier_on_the_clock(call, warmup=warmup, iters=iters, group=group)
    start = time.perf_counter()
    for _ in range(20):
        dist.barrier(group=group)
    return median - (time.perf_counter() - start) / 2


def swallows(call, *, warmup, iters, group):
    def quietly():
        try:
            call()
        except Exception:
            return

    return right_timer(quietly, warmup=warmup, iters=iters, group=group)


def gathers_at_rank_0(call, *, warmup, iters, group):
    samples = torch.tensor(samples_of(call, warmup, iters, group), dtype=torch.float64)
    dist.reduce(samples, 0, op=ReduceOp.MAX, group=group)
    dist.broadcast(samples, 0, group=group)
    return samples.quantile(0.5).item()


def hidden_in_numpy(tensors, group):
    copies = [tensor.numpy().copy() for tensor in tensors]
    right_fused(tensors, group)
    del copies


def hidden_in_a_thread(tensors, group):
    copies = []
    thread = threading.Thread(target=lambda: copies.extend(t.clone() for t in tensors))
    thread.start()
    thread.join()
    right_fused(tensors, group)


def by_a_set_of_names(tensors, group):
    for name in {str(tensor.dtype) for tensor in tensors}:
        right_fused([tensor for tensor in tensors if str(tensor.dtype) == name], group)


def one_sided_half(tensor, slots, me, turn, wake, wait):
    halves = {0: turn % 2, 1: 0}  # partner 1 has one slot only
    slots[halves[me], me].copy_(tensor)
    wake()
    wait()
    tensor.add_(slots[halves[1 - me], 1 - me])


def clears_too_early(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.add_(half[1 - me])
    half[me].zero_()
