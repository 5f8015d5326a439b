"""Right answers to lesson 01's exercises, and the usual wrong ones.

Ranks import this file to run them, so it imports no test tools.
"""

import statistics
import time

import torch
import torch.distributed as dist

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
