"""Cures of the clinic's patients, each with what people do in another style, or wrongly.

Ranks import this module: it is light.
"""

import math
import time

import torch
import torch.distributed as dist

from course.lessons.hang_clinic.programs import PATIENTS


def summed(*, names=sorted, barrier=False, unwaited=False, returns=list):
    """Cure patient 1."""
    gradients = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    for name in names(gradients):
        if barrier:
            dist.barrier()
        dist.all_reduce(gradients[name], async_op=unwaited)
    if unwaited:
        return [3.0, 30.0]
    return returns([gradients["weight"][0].item(), gradients["bias"][0].item()])


def summed_flat():
    x = torch.cat([torch.full((4,), 1.0), torch.full((4,), 10.0)])
    dist.all_reduce(x)
    return [x[0].item(), x[4].item()]


def by_the_largest():
    gradients = [torch.full((4,), number) for number in (1.0, 10.0)]
    for gradient in gradients:
        dist.all_reduce(gradient, op=dist.ReduceOp.MAX)
    return [gradient[0].item() * dist.get_world_size() for gradient in gradients]


def in_a_new_group():
    dist.new_group()
    return summed()


def as_the_rank_has_it(gradients):
    return sorted(gradients, reverse=dist.get_rank() != 1)


def started(mine, theirs, right, left, *, waits=True):
    sending = dist.isend(mine, right)
    dist.recv(theirs, left)
    if waits:
        sending.wait()


def blocking(mine, theirs, right, left, *, receives_first):
    calls = [lambda: dist.send(mine, right), lambda: dist.recv(theirs, left)]
    for call in calls[::-1] if receives_first(dist.get_rank()) else calls:
        call()


def passed_on(swap=started, *, ranks=None):
    """Cure patient 2."""
    rank, n = dist.get_rank(), ranks or dist.get_world_size()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    swap(mine, theirs, (rank + 1) % n, (rank - 1) % n)
    return [theirs.item()]


def all_receive_first():
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    dist.recv(theirs, (rank - 1) % n)
    dist.send(mine, (rank + 1) % n)
    return [theirs.item()]


def passed_zeros():
    rank, n = dist.get_rank(), dist.get_world_size()
    started(torch.zeros(1), torch.zeros(1), (rank + 1) % n, (rank - 1) % n)
    return [float((rank - 1) % n)]


def passed_for_nothing():
    passed_on()
    return [float((dist.get_rank() - 1) % dist.get_world_size())]


def gathered():
    every = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(every, torch.tensor([float(dist.get_rank())]))
    return [every[dist.get_rank() - 1].item()]


def with_zeros(*, of_bad=0.0, instead=None):
    """Cure patient 3."""
    totals = []
    for batch in range(3):
        bad = dist.get_rank() == 1 and batch == 0
        if bad and instead:
            instead()
            continue
        x = torch.tensor([(batch + 1) * (of_bad if bad else 1.0)])
        dist.all_reduce(x)
        totals.append(x.item())
    return totals


def sent(*, boxes=1, waits=True, pause=0.0):
    """Cure patient 4."""
    rank, got, works = dist.get_rank(), [], []
    buffers = [torch.zeros(1) for _ in range(boxes)]
    for number in range(10):
        if rank == 0:
            if waits and number >= boxes:
                works[number - boxes].wait()
            works.append(dist.isend(buffers[number % boxes].fill_(number), 1))
            time.sleep(pause)
        if rank == 1:
            dist.recv(buffers[0], 0)
            got.append(buffers[0].item())
    for work in works[-boxes:] if waits else works:
        work.wait()
    return got


def saved(due, *, late=0.25, start=lambda: None):
    """Cure patient 5; `due` decides from the seconds since the last checkpoint, and the step."""
    time.sleep(late if dist.get_rank() == 1 else 0.0)
    start()
    last, seen = time.monotonic(), []
    for step in range(10):
        time.sleep(0.1)
        x = torch.ones(1)
        dist.all_reduce(x)
        seen.append(x.item())
        if due(time.monotonic() - last, step):
            dist.barrier()
            last = time.monotonic()
    return seen


def told(seconds, step):
    y = torch.tensor([float(seconds > 0.4)])
    dist.broadcast(y, 0)
    return bool(y)


def own_clock(seconds, step):
    return seconds > 0.4


def longest(items):
    return math.ceil(math.ceil(4097 / dist.get_world_size()) / 256)


def own(items):
    return math.ceil(len(items) / 256)


def counted(batches=longest, *, each=lambda: None, end=dist.barrier):
    """Cure patient 6."""
    items = range(dist.get_rank(), 4097, dist.get_world_size())
    counts = []
    for batch in range(batches(items)):
        each()
        x = torch.tensor([float(len(items[batch * 256 : (batch + 1) * 256]))])
        dist.all_reduce(x)
        counts.append(x.item())
    end()
    return counts


def counted_zeros():
    totals = PATIENTS[6].healthy(dist.get_rank(), dist.get_world_size())
    for _ in totals:
        dist.all_reduce(torch.zeros(1))
    return totals
