"""Cures of the clinic's patients, right ones in another style and what people do wrongly.

Ranks import this module: it is light.
"""

import math
import time

import torch
import torch.distributed as dist

# Patient 1


def gradients():
    return {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}


def sums(of, names):
    for name in names:
        dist.all_reduce(of[name])
    return [of["weight"][0].item(), of["bias"][0].item()]


def summed():
    return sums(gradients(), ("weight", "bias"))


def summed_in_the_order_of_a_set():
    return sums(gradients(), {"weight", "bias"})


def summed_in_a_sorted_set():
    return sums(gradients(), sorted({"weight", "bias"}))


def summed_with_barriers():
    of = gradients()
    for name in of:
        dist.barrier()
        dist.all_reduce(of[name])
    return [of["weight"][0].item(), of["bias"][0].item()]


def summed_flat():
    x = torch.cat([torch.full((4,), 1.0), torch.full((4,), 10.0)])
    dist.all_reduce(x)
    return x[0], x[4]


def averaged():
    return [value / dist.get_world_size() for value in summed()]


# Patient 2


def neighbours():
    rank, n = dist.get_rank(), dist.get_world_size()
    return torch.tensor([float(rank)]), torch.zeros(1), (rank + 1) % n, (rank - 1) % n


def odd_ranks_receive_first(remainders=(1,)):
    mine, theirs, right, left = neighbours()
    steps = [(dist.send, mine, right), (dist.recv, theirs, left)]
    for call, tensor, peer in steps[:: -1 if dist.get_rank() % 2 in remainders else 1]:
        call(tensor, peer)
    return [theirs.item()]


def sent_without_a_handle():
    mine, theirs, right, left = neighbours()
    dist.isend(mine, right)
    dist.recv(theirs, left)
    return [theirs.item()]


def received_from_itself():
    mine, theirs, right, _ = neighbours()
    sending = dist.isend(mine, right)
    dist.recv(theirs, dist.get_rank())
    sending.wait()
    return [theirs.item()]


def passed_on_among_three():
    rank = dist.get_rank()
    mine, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    sending = dist.isend(mine, (rank + 1) % 3)
    dist.recv(theirs, (rank - 1) % 3)
    sending.wait()
    return [theirs.item()]


# Patient 3


def with_zeros(of_bad=0.0):
    totals = []
    for batch in range(3):
        bad = dist.get_rank() == 1 and batch == 0
        x = torch.tensor([(batch + 1) * (of_bad if bad else 1.0)])
        dist.all_reduce(x)
        totals.append(x.item())
    return totals


def with_zeros_in_tensors():
    return [torch.tensor([total]) for total in with_zeros()]


# Patient 4


def received():
    box, numbers = torch.zeros(1), []
    for _ in range(10 if dist.get_rank() == 1 else 0):
        dist.recv(box, 0)
        numbers.append(box.item())
    return numbers


def sent_one_by_one(first=0):
    for number in range(10 if dist.get_rank() == 0 else 0):
        dist.send(torch.tensor([float(first + number)]), 1)
    return received()


def sent_with_a_pause():
    box, works = torch.zeros(1), []
    for number in range(10 if dist.get_rank() == 0 else 0):
        works.append(dist.isend(box.fill_(number), 1))
        time.sleep(0.05)
    for work in works:
        work.wait()
    return received()


# Patient 5


def told(seconds, step):
    answer = [seconds > 0.4]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]


def saved(due=told):
    time.sleep(0.25 if dist.get_rank() == 1 else 0.0)
    last, sums = time.monotonic(), []
    for step in range(10):
        time.sleep(0.1)
        x = torch.ones(1)
        dist.all_reduce(x)
        sums.append(x.item())
        if due(time.monotonic() - last, step):
            dist.barrier()
            last = time.monotonic()
    return sums


def saved_once():
    return saved(lambda seconds, step: step == 9)


def never_saved():
    return saved(lambda seconds, step: False)


# Patient 6


def the_most(items):
    most = torch.tensor([math.ceil(len(items) / 256)])
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return int(most)


def counted(batches=the_most):
    items = range(dist.get_rank(), 4097, dist.get_world_size())
    counts = []
    for batch in range(batches(items)):
        x = torch.tensor([float(len(items[batch * 256 : (batch + 1) * 256]))])
        dist.all_reduce(x)
        counts.append(x.item())
    return counts
