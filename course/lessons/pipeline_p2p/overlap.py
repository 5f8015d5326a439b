"""Does communication slow down the computing beside it? On CPUs.

With gloo, a CPU pushes the bytes. On a GPU, NCCL's send is a kernel: it takes multiprocessors (SMs)
and memory bandwidth; a copy to pinned host memory runs on a copy engine, which has neither
(`course.gpus.beside`).
"""

import math
import threading
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from labkit.measure import sched
from labkit.ranks import affinity


@dataclass(frozen=True, slots=True)
class Overlap:
    """What one rank saw. Seconds; CPU seconds are those of all its threads."""

    compute_alone: float
    compute_beside: float
    """The same work, while messages went both ways all the time."""
    cpu_alone: float
    cpu_beside: float
    message_alone: float
    """One exchange of messages, both ways, nothing else running."""
    cpu_per_message: float

    @property
    def slow_down(self) -> float:
        """How many times longer the computing takes on a CPU that nobody else uses.

        From CPU seconds: other programs do not change them much, and make any clock useless.
        """
        return self.cpu_beside / self.cpu_alone

    @property
    def cpu_share(self) -> float:
        """How many CPUs the messages kept busy, on average."""
        return self.cpu_per_message / self.message_alone


def measure(nbytes: int = 1 << 20, seconds: float = 0.1, repeats: int = 5) -> Overlap:
    """Compute alone, exchange alone, then both; on two ranks, through `launch`.

    Each rank keeps to one CPU, where the system lets it: computing and pushing bytes share it, as
    kernels share a GPU's multiprocessors. On spare CPUs the pushing would cost nobody anything.
    Returned is the repetition with the median slow-down.
    """
    if affinity.available():
        cpus = affinity.cpus()
        affinity.pin([cpus[dist.get_rank() % len(cpus)]])
    exchange = _Exchange(nbytes)
    _compute(20)
    rounds = _agree(max(1, round(seconds / (_compute(50) / 50))))  # so many last so long
    exchange.times(2)
    seen = [_once(exchange, rounds) for _ in range(repeats)]
    return sorted(seen, key=lambda one: one.slow_down)[repeats // 2]


def _once(exchange: "_Exchange", rounds: int) -> Overlap:
    dist.barrier()
    with sched.watch() as alone:
        _compute(rounds)
    count = _agree(math.ceil(alone.wall / exchange.times(3)))
    dist.barrier()
    with sched.watch() as talking:
        message_alone = exchange.times(count)
    # Beside the computing messages must go on until it has ended, on both ranks.
    long = _agree(math.ceil(3 * alone.wall / message_alone))
    talker = threading.Thread(target=exchange.times, args=(long,))
    dist.barrier()
    talker.start()
    with sched.watch() as beside:
        _compute(rounds)
    talker.join()
    return Overlap(
        alone.wall, beside.wall, alone.on_cpu, beside.on_cpu, message_alone, talking.on_cpu / count
    )


class _Exchange:
    """Messages both ways between two ranks."""

    def __init__(self, nbytes: int) -> None:
        self._out, self._back = torch.ones(nbytes // 4), torch.empty(nbytes // 4)
        self._other = 1 - dist.get_rank()

    def times(self, count: int) -> float:
        """Exchange so many messages; return the seconds of one."""
        begin = time.perf_counter()
        for _ in range(count):
            arriving = dist.irecv(self._back, self._other)
            dist.isend(self._out, self._other).wait()
            arriving.wait()
        return (time.perf_counter() - begin) / count


def _compute(rounds: int) -> float:
    a = torch.full((192, 192), 1 / 192)
    begin = time.perf_counter()
    for _ in range(rounds):
        a = a @ a
        a.fill_(1 / 192)
    return time.perf_counter() - begin


def _agree(number: int) -> int:
    box = torch.tensor([number])
    dist.broadcast(box, src=0)
    return int(box)
