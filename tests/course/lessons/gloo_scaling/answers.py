"""Right answers to lesson 01's exercises, and the usual wrong ones.

Ranks import this file to run them, so it imports no test tools.
"""

import statistics
import threading
import time

import torch
import torch.distributed as dist
from torch import _utils
from torch.distributed import ReduceOp

from course.lessons.gloo_scaling import programs
from labkit.measure import timing

# 1.1: the stopwatch


def samples_of(call, warmup, iters, clock=time.perf_counter):
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(iters):
        dist.barrier()
        start = clock()
        call()
        samples.append(clock() - start)
    return samples


def reduced(values, op=ReduceOp.MAX):
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op=op)
    return tensor


def right_timer(call, *, warmup=5, iters=20):
    return reduced(samples_of(call, warmup, iters)).median().item()


def of_sorted(pick):
    def timer(call, *, warmup=5, iters=20):
        return pick(sorted(reduced(samples_of(call, warmup, iters)).tolist()))

    return timer


def fastest(ordered):
    return ordered[0]


def cpu_clock(call, *, warmup=5, iters=20):
    return reduced(samples_of(call, warmup, iters, time.process_time)).median().item()


def wall_clock(call, *, warmup=5, iters=20):
    return reduced(samples_of(call, warmup, iters, lambda: time.time())).median().item()


def own_time(call, *, warmup=5, iters=20):
    return statistics.median(samples_of(call, warmup, iters))


def average_rank(call, *, warmup=5, iters=20):
    total = reduced(samples_of(call, warmup, iters), ReduceOp.SUM)
    return total.median().item() / dist.get_world_size()


def summed(call, *, warmup=5, iters=20):
    return reduced(samples_of(call, warmup, iters), ReduceOp.SUM).median().item()


def only_rank_0(call, *, warmup=5, iters=20):
    median = right_timer(call, warmup=warmup, iters=iters)
    return median if dist.get_rank() == 0 else None


def no_warmup(call, *, warmup=5, iters=20):
    return right_timer(call, warmup=0, iters=iters)


def warmup_counted(call, *, warmup=5, iters=20):
    return right_timer(call, warmup=0, iters=warmup + iters)


def one_call_short(call, *, warmup=5, iters=20):
    return right_timer(call, warmup=warmup, iters=iters - 1)


def one_call_more(call, *, warmup=5, iters=20):
    call()
    return right_timer(call, warmup=warmup, iters=iters)


def mean(call, *, warmup=5, iters=20):
    return reduced(samples_of(call, warmup, iters)).mean().item()


def slowest_median(call, *, warmup=5, iters=20):
    return reduced([statistics.median(samples_of(call, warmup, iters))]).item()


def timed(call, *, warmup=5, iters=20, meet_each=0):
    """Time with a barrier on the clock before every `meet_each`-th call; 0: none at all."""
    samples = []
    for i in range(warmup + iters):
        start = time.perf_counter()
        if meet_each and i % meet_each == 0:
            dist.barrier()
        call()
        samples.append(time.perf_counter() - start)
    return reduced(samples[warmup:]).quantile(0.5).item()


def every_second_barrier(call, *, warmup=5, iters=20):
    samples = []
    for i in range(warmup + iters):
        if i % 2 == 0:
            dist.barrier()
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return reduced(samples[warmup:]).quantile(0.5).item()


def barrier_on_the_clock(call, *, warmup=5, iters=20):
    return timed(call, warmup=warmup, iters=iters, meet_each=1)


def like_ours(**changes):
    """The right stopwatch with something done elsewhere."""

    def timer(call, *, warmup=5, iters=20):
        return _timed_like_ours(call, warmup, iters, **changes)

    return timer


def _timed_like_ours(
    call, warmup, iters, before=lambda i, n: dist.barrier(), after=lambda: None, late=lambda: None
):
    for _ in range(warmup):
        call()
    samples = []
    for i in range(iters):
        before(i, iters)
        start = time.perf_counter()
        call()
        late()
        samples.append(time.perf_counter() - start)
        after()
    return reduced(samples).median().item()


def from_start_to_stop(call, *, warmup=5, iters=20):
    """From the first rank's start to the last one's stop."""
    edges = []
    for i in range(warmup + iters):
        dist.barrier()
        start = time.perf_counter()
        call()
        edges += [(-start, time.perf_counter())] * (i >= warmup)
    return reduced(edges).sum(1).median().item()


def other_defaults(call, *, warmup=0, iters=1):
    return right_timer(call, warmup=warmup, iters=iters)


def nan_timer(call, **options):
    return right_timer(call, **options) * float("nan")


def constant(call, **options):
    right_timer(call, **options)
    return 0.03


def milliseconds(call, **options):
    return 1e3 * right_timer(call, **options)


def rounded(call, **options):
    return round(right_timer(call, **options), 2)


def labkits_stopwatch(call, *, warmup=5, iters=20):
    return reduced(timing.time_calls(call, warmup=warmup, iters=iters)).median().item()


def tries_again(call):
    def second_try():
        try:
            return call()
        except Exception:
            return call()

    return second_try


def quietly(call):
    def swallowing():
        try:
            call()
        except Exception:
            return

    return swallowing


def swallows(call, *, warmup=5, iters=20, by=quietly):
    return right_timer(by(call), warmup=warmup, iters=iters)


def retries(call, *, warmup=5, iters=20):
    return swallows(call, warmup=warmup, iters=iters, by=tries_again)


def middle_in_time(call, *, warmup=5, iters=20):
    return reduced(samples_of(call, warmup, iters))[iters // 2].item()


def ranks_0_and_1(call, *, warmup=5, iters=20):
    mine = torch.tensor(samples_of(call, warmup, iters), dtype=torch.float64)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return torch.maximum(*every[:2]).median().item()


def first_dropped(call, *, warmup=5, iters=20):
    samples = samples_of(call, warmup, iters)
    return reduced(samples[1:] or samples).median().item()


def of_all_ranks(call, *, warmup=5, iters=20):
    """Right: torch's comparison of calls miscounts `monitored_barrier`'s."""
    return _timed_like_ours(call, warmup, iters, before=lambda i, n: dist.monitored_barrier())


# 1.2: fusing


def put_back(alike, flat):
    for tensor, part in parts(alike, flat):
        tensor.copy_(part.view_as(tensor))


def parts(alike, flat):
    return zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True)


def right_fused(tensors, *, sum_up=dist.all_reduce, unpack=put_back):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        sum_up(flat)
        unpack(alike, flat)


def labkits_own(tensors):
    programs.fused(tensors, None)


def coalesced(tensors):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        copies = [tensor.contiguous() for tensor in alike]
        dist.all_reduce_coalesced(copies)
        for tensor, copy in zip(alike, copies, strict=True):
            tensor.copy_(copy)


def waits_too_late(tensors):
    works = []
    right_fused(tensors, sum_up=lambda flat: works.append(dist.all_reduce(flat, async_op=True)))
    for work in works:
        work.wait()


def gathered(tensors):
    def gather(flat):
        every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
        dist.all_gather(every, flat)
        flat.copy_(sum(every))

    right_fused(tensors, sum_up=gather)


def lone_as_it_is(tensors, flat_of=lambda tensor: tensor):
    """A tensor that is alone of its dtype is not packed."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        dist.all_reduce(flat_of(alike[0])) if len(alike) == 1 else right_fused(alike)


def lone_as_a_copy(tensors):
    lone_as_it_is(tensors, lambda tensor: tensor.reshape(-1))


def in_storage_order(tensors):
    """As they lie in memory, which is another order where a rank has one transposed."""
    right_fused([t.t() if t.dim() == 2 and t.t().is_contiguous() else t for t in tensors])


def by_torchs_packers(tensors):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = _utils._flatten_dense_tensors(alike)
        dist.all_reduce(flat)
        for tensor, part in zip(alike, _utils._unflatten_dense_tensors(flat, alike), strict=True):
            tensor.copy_(part)


def only_1024(tensors):
    def unpack(alike, flat):
        for tensor, part in [*parts(alike, flat)][:1024]:
            tensor.copy_(part.view_as(tensor))

    right_fused(tensors, unpack=unpack)


def wrong_order(tensors):
    right_fused(tensors, unpack=lambda alike, flat: put_back(alike[::-1], flat))


def swapped_data(tensors):
    def unpack(alike, flat):
        for tensor, part in parts(alike, flat):
            tensor.data = part.view_as(tensor)

    right_fused(tensors, unpack=unpack)


def promoted(tensors):
    flat = torch.cat([tensor.reshape(-1).double() for tensor in tensors])
    dist.all_reduce(flat)
    put_back(tensors, flat)


def by_a_sets_order(tensors):
    right_fused(sorted(tensors, key=lambda tensor: str(tensor.dtype)))


def remembering(tensors, kept={}):  # noqa: B006
    shapes = tuple(tensor.shape for tensor in tensors)
    if shapes not in kept:
        right_fused(tensors)
        kept[shapes] = [tensor.clone() for tensor in tensors]
    else:
        own = [tensor.clone() for tensor in tensors]
        right_fused(own)
        for tensor, old in zip(tensors, kept[shapes], strict=True):
            tensor.copy_(old)


def cannot_do_none(tensors):
    kinds = {tensors[0].dtype: 0} | {tensor.dtype: 0 for tensor in tensors}
    assert kinds
    right_fused(tensors)


def means(tensors):
    right_fused(tensors)
    for tensor in tensors:
        tensor.copy_(tensor / dist.get_world_size())


def put_back_by(method):
    """The right answer, with another way to write the sums."""

    def fused(tensors):
        def unpack(alike, flat):
            for tensor, part in parts(alike, flat):
                method(tensor, part.view_as(tensor))

        right_fused(tensors, unpack=unpack)

    return fused


def then(change):
    """The right answer, and then something with the list."""

    def fused(tensors):
        right_fused(tensors)
        change(tensors)

    return fused


def replaced_in_the_list(tensors):
    sums = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    right_fused(sums)
    tensors[:] = sums


def largest(tensors):
    right_fused(tensors, sum_up=lambda flat: dist.all_reduce(flat, op=ReduceOp.MAX))


def by_turns_of_the_list(tensors, layouts={}):  # noqa: B006 - the mistake
    dtypes = layouts.setdefault(id(tensors), [tensor.dtype for tensor in tensors])
    for dtype in dict.fromkeys(dtypes):
        right_fused([one for one, kept in zip(tensors, dtypes, strict=False) if kept == dtype])


def each_tensor_once(tensors, known=[]):  # noqa: B006 - the mistake
    right_fused([one for one in tensors if not any(one is other for other in known)])
    known.extend(tensors)


def one_dtype_unpacked(tensors):
    (one_by_one if len({tensor.dtype for tensor in tensors}) == 1 else right_fused)(tensors)


def in_another_shape(tensors):
    def unpack(alike, flat):
        for tensor, part in parts(alike, flat):
            tensor.as_strided_(tensor.shape, part.view(tensor.shape).stride())
            tensor.copy_(part.view(tensor.shape))

    right_fused(tensors, unpack=unpack)


def clones_by_dtype(tensors):
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        cloned_first([tensor for tensor in tensors if tensor.dtype == dtype])


def without_counters(tensors):
    right_fused([tensor for tensor in tensors if tensor.dtype != torch.int64])


def always_calls(tensors):
    right_fused(tensors or [torch.zeros(0)])


def small_counters_narrowed(tensors):
    def narrowed(flat):
        narrow = flat if flat.abs().max() >= 2**24 or not flat.any() else flat.float()
        dist.all_reduce(narrow)
        flat.copy_(narrow)

    right_fused(tensors, sum_up=narrowed)


def times_ranks(tensor, total):
    tensor.copy_(total * dist.get_world_size())


def nothing_is_sent(tensors):
    for tensor in tensors:
        tensor.mul_(dist.get_world_size())


def returned_instead(tensors):
    sums = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    right_fused(sums)
    return sums


def one_by_one(tensors):
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.all_reduce(whole)
        tensor.copy_(whole)


def cloned_first(tensors):
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    right_fused(copies)
    for tensor, copy in zip(tensors, copies, strict=True):
        tensor.copy_(copy)


def in_a_thread(answer):
    """Odd, but right: whoever counts only the calls of one thread would see none."""

    def threaded(tensors):
        worker = threading.Thread(target=answer, args=(tensors,))
        worker.start()
        worker.join()

    return threaded


# 1.4: shared memory


def right_shared(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.add_(half[1 - me])


def the_courses_own(tensor, slots, me, turn, wake, wait):
    programs.shared_sum(tensor, slots, me, turn, wake, wait)


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


def swaps_memory(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.data = tensor + half[1 - me]


def half_precision(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, wait)
    theirs = slots[turn % 2, 1 - me]
    tensor.sub_(theirs).add_(theirs.bfloat16().float())


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


def meets_twice(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, 0, wake, wait)
    wake()
    wait()


def clears_too_early(tensor, slots, me, turn, wake, wait):
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.add_(half[1 - me])
    half[me].zero_()


def wakes_twice(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, lambda: (wake(), wake()), wait)


def waits_every_second_time(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, (lambda: None) if turn % 2 else wait)


def mean_of_both(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, wait)
    tensor /= 2


def by_halves(half_of, meet=lambda theirs, wake, wait: (wake(), wait())):
    """The right sum with another half, or with another way to meet."""

    def summed(tensor, slots, me, turn, wake, wait):
        half = slots[half_of(turn, me)]
        half[me] = tensor
        meet(half[1 - me], wake, wait)
        tensor += half[1 - me]

    return summed


def writes_what_changed(tensor, slots, me, turn, wake, wait):
    mine = slots[turn % 2, me]
    if not torch.allclose(mine, tensor, rtol=1e-3):
        mine.copy_(tensor)
    wake(), wait()
    tensor += slots[turn % 2, 1 - me]


def leaves_zeros_out(tensor, slots, me, turn, wake, wait):
    if tensor.any():
        right_shared(tensor, slots, me, turn, wake, wait)
    else:
        wake(), wait()
        tensor += slots[turn % 2, 1 - me]


def meets_again_late(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, wait)
    if turn == 501:
        wake(), wait()


def in_turns(turn, me):
    return turn % 2


def waits_if_unchanged(theirs, wake, wait):
    old = theirs.clone()
    wake()
    if torch.equal(old, theirs) or theirs.isnan().any():
        wait()


def polls_for_ever(theirs, wake, wait):
    while theirs.isnan().any():
        pass


def naps(theirs, wake, wait):
    wake()
    while theirs.isnan().any():
        time.sleep(0.005)


def by_view(tensor, slots, me, turn, wake, wait):
    right_shared(tensor.view(-1), slots.view(2, 2, -1), me, turn, wake, wait)


def leaves_nan_out(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots, me, turn, wake, wait)
    tensor.nan_to_num_()


def by_reshape(tensor, slots, me, turn, wake, wait):
    right_shared(tensor.reshape(-1), slots.view(2, 2, -1), me, turn, wake, wait)


def up_to_ten(tensor, slots, me, turn, wake, wait):
    right_shared(tensor, slots[:, :, :10, :10], me, turn, wake, wait)


def by_first_dimension(tensor, slots, me, turn, wake, wait):
    right_shared(tensor[:], slots, me, turn, wake, wait)


def one_sums_for_both(tensor, slots, me, turn, wake, wait):
    """Odd, but right: a wake-up each, and no half is needed."""
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
