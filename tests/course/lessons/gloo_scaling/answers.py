"""Answers to exercises of lesson 01: right ones, whose parts can be exchanged, and wrong ones."""

import statistics
import time
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist

# Exercise 1.1


def timed(call, *, meet=dist.barrier, clock="perf_counter"):
    """Meet, then time one call by a clock, which the check may have exchanged."""
    meet()
    start = getattr(time, clock)()
    call()
    return getattr(time, clock)() - start


def timed_at_once(call):
    """Time one call, whoever is late for it."""
    return timed(call, meet=lambda: None)


def over_ranks(samples, op=dist.ReduceOp.MAX):
    """Reduce the samples over the ranks, call by call."""
    slowest = torch.tensor(samples, dtype=torch.float64)
    dist.all_reduce(slowest, op=op)
    return slowest.tolist()


def stopwatch(
    call, *, warmup=5, iters=20, sample=timed, exchange=over_ranks, middle=statistics.median
):
    """Right: time each call by `sample`, `exchange` the times among ranks, take the `middle`."""
    for _ in range(warmup):
        call()
    samples = [sample(call) for _ in range(iters)]
    return middle(exchange(samples))


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


# Exercise 1.2


def queue(theirs):
    """Say whether calls queue."""
    return theirs[max(theirs)] >= 1.5 * theirs[min(theirs)]


def full_rows(ours, theirs):
    """List the numbers of pairs that fill a CPU, and that both have."""
    return [pairs for pairs in theirs if pairs in ours and pairs >= 4]


def cpus_like_ours(ours, theirs, *, queue=queue, rows=full_rows, middle=statistics.median):
    """Right: where calls `queue`, the `middle` of what the `rows` say."""
    if not queue(theirs):
        return None
    return middle(ours[pairs] / theirs[pairs] for pairs in rows(ours, theirs))


def by_numpy_median(ours, theirs):
    """Right: takes an array's median."""
    times = [theirs[p] for p in sorted(theirs)]
    rows = [ours[p] / theirs[p] for p in {*ours} & {*theirs} if p >= 4]
    return np.median(rows) if times[-1] >= 1.5 * times[0] else None


# Exercise 1.4


def one_half(tensor, slots, me, turn, wake, wait):
    """Wrong: the slot of the next turn is that of this one, which may not yet be read."""
    slots[0, me] = tensor
    wake()
    wait()
    tensor += slots[0, 1 - me]


def meets_twice(tensor, slots, me, turn, wake, wait):
    """Wrong: a second meeting keeps the one half from being overwritten."""
    one_half(tensor, slots, me, turn, wake, wait)
    wake()
    wait()


def wakes_before_it_writes(tensor, slots, me, turn, wake, wait):
    """Wrong: who is woken finds an old slot."""
    wake()
    slots[turn % 2, me] = tensor
    wait()
    tensor += slots[turn % 2, 1 - me]


def waits_before_it_wakes(tensor, slots, me, turn, wake, wait):
    """Wrong: both sleep."""
    slots[turn % 2, me] = tensor
    wait()
    wake()
    tensor += slots[turn % 2, 1 - me]


def adds_into_a_new_tensor(tensor, slots, me, turn, wake, wait):
    """Wrong: the caller's tensor stays as it was."""
    slots[turn % 2, me] = tensor
    wake()
    wait()
    tensor = tensor + slots[turn % 2, 1 - me]


def by_numpy(tensor, slots, me, turn, wake, wait):
    """Right: writes through an array, and adds by `out`."""
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
    """Wrong: looking again and again takes the partner's CPU."""
    slots[turn % 2, me] = tensor
    while slots[turn % 2, 1 - me].isnan().any():
        time.sleep(1e-3)
    tensor += slots[turn % 2, 1 - me]


def reads_a_third_slot(tensor, slots, me, turn, wake, wait):
    """Wrong: there are two."""
    tensor += slots[turn % 2, 2]


# Exercise 1.5


def size(part):
    """Count the CPUs of a part of a mask, "8" or "0-3"."""
    first, *last = part.split("-")
    return int(last[0] if last else first) - int(first) + 1


def throttles(periods, throttled):
    """Say whether a quota stopped the group in a tenth of the periods."""
    return periods > 0 and throttled >= periods / 10


def counters(text):
    """Read a cpu.stat; of a file that is not there, nothing."""
    return {name: int(value) for name, value in map(str.split, (text or "").splitlines())}


def confinement(reading, *, size=size, throttles=throttles):
    """Right: asks for the quota, then whether threads wait, then for the mask."""
    on_cpu = waiting = 0
    for thread, text in reading.after.items():
        now, old = text.split(), reading.before.get(thread, "0 0 0").split()
        on_cpu += int(now[0]) - int(old[0])
        waiting += int(now[1]) - int(old[1])

    mask = sum(map(size, reading.allowed.split(",")))
    most, period = (reading.cpu_max or "max 100000").split()
    cpus = mask if most == "max" else min(mask, int(most) / int(period))

    earlier, later = counters(reading.stat_before), counters(reading.stat_after)
    names = "nr_periods", "nr_throttled"
    if throttles(*(later.get(name, 0) - earlier.get(name, 0) for name in names)):
        return "quota", cpus
    if waiting < on_cpu / 2:
        return "none", cpus
    return ("mask" if mask < reading.cpus else "neighbours"), cpus


def confinement_in_a_list(reading):
    """Right: a list, and a full stop."""
    name, cpus = confinement(reading)
    return [f"{name}.", cpus]


def counts_one_thread(reading):
    """Wrong: the other threads of the process run and wait as well."""
    thread = next(iter(reading.after))
    return confinement(replace(reading, after={thread: reading.after[thread]}))


def knows_the_period(reading):
    """Wrong: a period need not be 100 ms."""
    quota = reading.cpu_max and f"{reading.cpu_max.split()[0]} 100000"
    return confinement(replace(reading, cpu_max=quota))


def has_no_cpus_without_a_quota(reading):
    """Wrong: where no quota is set, the mask says how many CPUs there are."""
    name, cpus = confinement(reading)
    return name, 0 if (reading.cpu_max or "max").startswith("max") else cpus


def mask_before_none(reading):
    """Wrong: a small mask is blamed although nobody waits."""
    name, cpus = confinement(reading)
    return ("mask" if name == "none" and cpus == 1 < reading.cpus else name), cpus


# Exercise 1.6


def gathered(own):
    """Return every rank's seconds, program by program."""
    mine = torch.tensor(own, dtype=torch.float64)
    ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(ranks, mine)
    return [seconds.tolist() for seconds in ranks]


def who_pays(programs, nbytes, *, sample=timed, exchange=gathered, largest=max, reason="b"):
    """Right: ranks that take longer than in the `largest` program, by their own medians."""
    own = [
        stopwatch(program, warmup=1, iters=5, sample=sample, exchange=list)
        for program in programs.values()
    ]
    table = [dict(zip(programs, seconds, strict=True)) for seconds in exchange(own)]
    most = largest(nbytes, key=nbytes.get)
    pays = {
        name: [rank for rank, seconds in enumerate(table) if seconds[name] > seconds[most]]
        for name in programs
    }
    return pays, reason
