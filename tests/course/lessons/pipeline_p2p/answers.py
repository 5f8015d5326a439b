"""Right answers to the exercises of lesson 05, in another style than the solutions.

Ranks import this module: it is light.
"""

from itertools import combinations

import torch
from torch.distributed import irecv

from course.lessons.pipeline_p2p.checks import hanging_programs, receiving_first
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Batch, Channel, Task, activation
from course.lessons.pipeline_p2p.simulator import find_deadlock

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
