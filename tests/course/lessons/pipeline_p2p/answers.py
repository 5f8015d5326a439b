"""Answers to the exercises of lesson 05, right ones in another style and wrong ones.

Ranks import this module: it is light.
"""

from itertools import combinations

import torch
import torch.distributed as dist
from torch.distributed import irecv

from course.lessons.pipeline_p2p.checks import hanging_programs, receiving_first
from course.lessons.pipeline_p2p.schedules import (
    SCHEDULES,
    Batch,
    Channel,
    Task,
    activation,
    programs,
    transfers_of,
)
from course.lessons.pipeline_p2p.simulator import find_deadlock, simulate

# 5.2


def as_a_generator(rank, *, stages, micro_batches):
    coming = iter(range(micro_batches if rank else 0))
    for k in coming:
        yield Batch((activation(rank - 1, k),))
        if k == 1:
            break
    for k in range(micro_batches):
        yield Task("F", rank, k)
        out = (activation(rank, k),) if rank + 1 < stages else ()
        k = next(coming, None)
        moved = out + (() if k is None else (activation(rank - 1, k),))
        if moved:
            yield Batch(moved)


def one_after_the_other(rank, *, stages, micro_batches):
    for k in range(micro_batches):
        if rank:
            yield Batch((activation(rank - 1, k),))
        yield Task("F", rank, k)
        if rank + 1 < stages:
            yield Batch((activation(rank, k),))


def receives_all_first(rank, *, stages, micro_batches):
    steps = list(one_after_the_other(rank, stages=stages, micro_batches=micro_batches))
    return sorted(steps, key=lambda step: not receives(step, rank))


def receives(step, rank):
    return isinstance(step, Batch) and step.transfers[0].dst == rank


def sends_first(rank, *, stages, micro_batches):
    steps = list(one_after_the_other(rank, stages=stages, micro_batches=micro_batches))
    return sorted(steps, key=lambda step: isinstance(step, Task))


def without_batches(rank, *, stages, micro_batches):
    for step in one_after_the_other(rank, stages=stages, micro_batches=micro_batches):
        yield step.transfers[0] if isinstance(step, Batch) else step


def beyond_the_last_stage(rank, *, stages, micro_batches):
    return list(one_after_the_other(rank, stages=stages + 1, micro_batches=micro_batches))


# 5.3 and 5.5, with the functions that the cells above them print with


def the_smallest_that_ends():
    programs = hanging_programs()
    for count in range(len(programs)):
        for chosen in combinations(range(len(programs)), count):
            if not find_deadlock(receiving_first(programs, chosen), channel=Channel.BLOCKING):
                return chosen
    return None


def counted():
    most = []
    for build in SCHEDULES.values():
        kept = peak = 0
        for task in build(stages=4, micro_batches=8)[0]:
            kept += 1 if task.kind == "F" else -1
            peak = max(peak, kept)
        most.append(peak)
    return [*most, (most[2] - most[1]) * 0.5]


# 5.4


def into_reused_buffers(wanted, use, *, src, like, credits):
    """Take irecv by name; fill a buffer again once it has been used."""
    free = [torch.empty_like(like) for _ in range(credits)]
    works, unposted = {}, list(wanted)
    for tag in wanted:
        while free and unposted:
            following = unposted.pop(0)
            buffer = free.pop()
            works[following] = (irecv(buffer, src, tag=following), buffer)
        work, buffer = works.pop(tag)
        work.wait()
        use(tag, buffer)
        free.append(buffer)


def one_at_a_time(wanted, use, *, src, like, credits):
    for tag in wanted:
        buffer = torch.empty_like(like)
        dist.recv(buffer, src, tag=tag)
        use(tag, buffer)


def all_at_once(wanted, use, *, src, like, credits):
    buffers = [torch.empty_like(like) for _ in wanted]
    works = [dist.irecv(buffer, src, tag=tag) for buffer, tag in zip(buffers, wanted, strict=True)]
    for tag, buffer, work in zip(wanted, buffers, works, strict=True):
        work.wait()
        use(tag, buffer)


def without_tags(wanted, use, *, src, like, credits):
    for tag in wanted:
        buffer = torch.empty_like(like)
        dist.recv(buffer, src)
        use(tag, buffer)


def into_one_buffer(wanted, use, *, src, like, credits):
    works = [dist.irecv(like, src, tag=tag) for tag in wanted[:credits]]
    for place, tag in enumerate(wanted):
        works[place].wait()
        use(tag, like)
        works += [dist.irecv(like, src, tag=tag) for tag in wanted[place + credits :][:1]]


def without_a_wait(wanted, use, *, src, like, credits):
    for tag in wanted:
        buffer = torch.empty_like(like)
        dist.irecv(buffer, src, tag=tag)
        use(tag, buffer)


# 5.6


def by_end(schedule, costs):
    free = simulate(programs(schedule), costs, channel=Channel.TAGGED)
    yield from (t for t, _ in sorted(free.transfers, key=lambda pair: pair[1].end))


def by_begin(schedule, costs):
    return tuple(
        t for t, _ in simulate(programs(schedule), costs, channel=Channel.TAGGED).transfers
    )


def by_micro_batch(schedule, costs):
    return sorted(by_begin(schedule, costs), key=lambda t: t.task.micro_batch)


def all_receives_first(schedule, costs):
    def hop(transfer):
        forward = transfer.task.kind == "F"
        return (not forward, transfer.src if forward else -transfer.src)

    return sorted(by_begin(schedule, costs), key=hop)


def without_the_last(schedule, costs):
    return by_begin(schedule, costs)[:-1]


def from_every_rank(schedule, costs):
    return [t for program in programs(schedule) for t in transfers_of(program)]
