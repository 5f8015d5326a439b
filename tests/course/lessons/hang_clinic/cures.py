"""Cures of the clinic's patients, each with what people do in another style, or wrongly.

Ranks import this module: it is light.
"""

import datetime
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


def batched(mine, theirs, right, left):
    operations = [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def blocking(mine, theirs, right, left, *, receives_first):
    calls = [lambda: dist.send(mine, right), lambda: dist.recv(theirs, left)]
    for call in calls[::-1] if receives_first(dist.get_rank()) else calls:
        call()


def passed_on(swap=started, *, ranks=None, barrier=False):
    """Cure patient 2."""
    rank, n = dist.get_rank(), ranks or dist.get_world_size()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    if barrier:
        dist.barrier()
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


def gathered():
    every = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(every, torch.tensor([float(dist.get_rank())]))
    return [every[dist.get_rank() - 1].item()]


def with_zeros(*, of_bad=0.0, barrier=False, instead=None):
    """Cure patient 3."""
    totals = []
    for batch in range(3):
        bad = dist.get_rank() == 1 and batch == 0
        if bad and instead:
            instead()
            continue
        if barrier:
            dist.barrier()
        x = torch.tensor([(batch + 1) * (of_bad if bad else 1.0)])
        dist.all_reduce(x)
        totals.append(x.item())
    return totals


def sent(*, boxes=1, waits=True, pause=0.0, barrier=False):
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
        if barrier:
            dist.barrier()
    for work in works[-boxes:] if waits else works:
        work.wait()
    return got


def broadcast_ten():
    numbers = [torch.tensor([float(number)]) for number in range(10)]
    for x in numbers:
        dist.broadcast(x, 0)
    return [x.item() for x in numbers] if dist.get_rank() == 1 else []


def saved(due, *, late=0.25, start=lambda: None, now=lambda: time.monotonic()):
    """Cure patient 5; `due` decides from the seconds since the last checkpoint, and the step."""
    time.sleep(late if dist.get_rank() == 1 else 0.0)
    start()
    last, seen = now(), []
    for step in range(10):
        time.sleep(0.1)
        x = torch.ones(1)
        dist.all_reduce(x)
        seen.append(x.item())
        if due(now() - last, step):
            dist.barrier()
            last = now()
    return seen


def told(seconds, step):
    y = torch.tensor([float(seconds > 0.4)])
    dist.broadcast(y, 0)
    return bool(y)


def by_date():
    return datetime.datetime.now().timestamp()


def own_clock(seconds, step):
    return seconds > 0.4


def longest(items):
    return math.ceil(math.ceil(4097 / dist.get_world_size()) / 256)


def asked(items):
    most = torch.tensor([math.ceil(len(items) / 256)])
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return int(most)


def own(items):
    return math.ceil(len(items) / 256)


def one_more_but_rank_0(items):
    return own(items) + (dist.get_rank() > 0)


def counted(batches=longest, *, total=4097, each=lambda: None, end=dist.barrier):
    """Cure patient 6."""
    items = range(dist.get_rank(), total, dist.get_world_size())
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


def counted_at_once():
    rank, n = dist.get_rank(), dist.get_world_size()
    items, starts = range(rank, 4097, n), range(0, math.ceil(4097 / n), 256)
    counts = torch.tensor([float(len(items[start : start + 256])) for start in starts])
    dist.all_reduce(counts)
    dist.barrier()
    return counts.tolist()
