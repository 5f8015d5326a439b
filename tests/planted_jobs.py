"""Small DDP jobs, each slow for a reason that is known, since it was planted.

Computing is a sleep, as of a host that waits for its GPU: so several ranks compute at once on few
CPUs. Each program trains in `checkup.examine`'s loop and returns what rank 0 was shown.
"""

import contextlib
import itertools
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit import Fabric


class Computes(torch.autograd.Function):
    """Pass a tensor on, and its gradient back; each takes some time."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


class Layer(torch.nn.Module):
    def __init__(self, width, seconds):
        super().__init__()
        self.linear, self.seconds = torch.nn.Linear(width, width), seconds

    def forward(self, x):
        return Computes.apply(self.linear(x), self.seconds)


def network(layers, width, seconds, bucket_cap_mb=1.0):
    stack = torch.nn.Sequential(*(Layer(width, seconds) for _ in range(layers)))
    return DistributedDataParallel(stack, bucket_cap_mb=bucket_cap_mb)


def train(model, width, *, loader=None, before=None, after=None, accumulate=1):
    """Train in checkup's loop; `before` backward and `after` it something else may be done."""
    from checkup import examine  # examples/ is on the ranks' path

    shown = []
    batches = loader or itertools.repeat(torch.ones(2, width))
    for step, batch in enumerate(examine(batches, model, show=shown.append)):
        for _ in range(accumulate):
            loss = model(batch).sum()
            if before:
                before()
            loss.backward()
        if after:
            after(step)
    return "\n".join(shown)


def healthy():
    """Four buckets, of which the first three travel while the ranks compute."""
    return train(network(8, 128, 0.004, 0.14), 128)


def straggler():
    """Rank 1 does something else before each backward."""

    def elsewhere():
        time.sleep(0.03 if dist.get_rank() == 1 else 0)

    return train(network(8, 128, 0.002), 128, before=elsewhere)


def batches_after(seconds):
    """Batches that are as long in coming, each."""
    while True:
        time.sleep(seconds)
        yield torch.ones(2, 128)


def slow_loader():
    """Rank 1 waits for its input."""
    loader = batches_after(0.03 if dist.get_rank() == 1 else 0.001)
    return train(network(8, 128, 0.002), 128, loader=loader)


def slow_loaders():
    """All ranks wait for their input alike."""
    return train(network(8, 128, 0.001, 0.14), 128, loader=batches_after(0.08))


def tiny_buckets():
    """A bucket for each of forty weights and biases."""
    return train(network(20, 64, 0.0, 1e-4), 64)


def huge_bucket():
    """All 20 MB in one bucket, whose sum begins when the last gradient is there."""
    return train(network(10, 700, 0.005, 1000.0), 700)


def shared_cpu():
    """All ranks may use one CPU, and compute on it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def work():
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass

    return train(network(4, 128, 0.001), 128, before=work)


def logging_rank():
    """Rank 0 writes its log in every third step."""

    def log(step):
        time.sleep(0.06 if dist.get_rank() == 0 and step % 3 == 0 else 0)

    return train(network(8, 128, 0.002), 128, after=log)


def slow_link():
    """On hosts of which one has a tenth of the others' rate."""
    return train(network(8, 256, 0.002), 256)


def every_micro_batch():
    """Four micro-batches a step, each of which is summed."""
    return train(network(4, 512, 0.001, 6.0), 512, accumulate=4)


JOBS = {
    "straggler": ("2: rank 1", straggler, 4),
    "slow loader": ("2: rank 1 is late in 11 of 11 steps, through its input", slow_loader, 4),
    "forty tiny buckets, 2 ranks": ("4:", tiny_buckets, 2),
    "forty tiny buckets, 4 ranks": ("4:", tiny_buckets, 4),
    "one huge bucket": ("7:", huge_bucket, 2),
    "CPU shared by ranks": ("3: 4 ranks may use 1 CPUs", shared_cpu, 4),
    "logging rank": ("2: rank 0", logging_rank, 4),
    "slow link": ("6: rank 2's link", slow_link, 4),
    "every micro-batch": ("5:", every_micro_batch, 2),
    "slow loaders": ("none: no network will help this job. Profile the fetching", slow_loaders, 2),
    "nothing wrong": ("none: no network will help this job. Profile the computing", healthy, 2),
}
"""By cause: the beginning of the row, the program, and its ranks."""


def hosts_of(cause):
    if cause == "slow link":
        return Fabric.star(hosts=4, rate=["1gbit", "1gbit", "100mbit", "1gbit"])
    return contextlib.nullcontext()
