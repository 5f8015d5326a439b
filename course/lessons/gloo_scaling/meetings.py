"""Partners who meet at the worst moment, on purpose: what exercise 1.4's shared sum is tried on.

A race shows itself once in a million calls, or never on your machine. So one partner comes late, or
dawdles just after it was woken or just after it woke the other, *until it has seen the other one
get as far as it can*. A mistake is caught in every run, and a right answer is never held up.
"""

import os
import select
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.gloo_scaling import programs
from labkit.measure import calls, timing

SharedSum = Callable[..., None]
MEETINGS = {
    "": "both as fast as they can",
    "comes late": "comes to the call when the other cannot get any further alone",
    "dawdles when woken": "reads its partner's slot only when the partner has gone on",
    "dawdles after waking": "goes on after wake() only when the partner has gone on",
}
"""What the slow one of the two partners does."""
TURNS = 9
PATIENCE = 1.5
"""Seconds after which a partner who was never woken gives up."""
BUSY = 0.2
"""Seconds of CPU that no sum needs. One that polls is busy until the other's patience ends."""
_WAITS, _RETURNS = 0, 1


class Meeting:
    """One partner's view: the slots, wake() and wait(), with scripted delays at the worst places.

    Both partners count in shared memory how often they began to wait and how often they came back
    from a sum, so that each can see how far the other one is.
    """

    def __init__(self, shape: tuple[int, ...], delay: str) -> None:
        """Meet the partner; tensors have this shape, `delay` is a habit, a key of `MEETINGS`."""
        self.me, self.delay = dist.get_rank(), delay
        nbytes = 4 * torch.Size(shape).numel()
        # a few bytes more than the slots need hold the counters
        self.channel = programs.SharedMemory(programs.pair_group(), nbytes + 64)
        memory = self.channel.memory
        self.slots = torch.frombuffer(memory, dtype=torch.float32, count=nbytes).view(2, 2, *shape)
        self.counters = torch.frombuffer(
            memory, dtype=torch.int64, count=4, offset=len(memory) - 64
        ).view(2, 2)
        self.wakes = self.waits = 0
        self.stuck = False
        if self.me == 0:
            self.slots.fill_(float("nan"))
        dist.barrier()

    def sum(self, shared_sum: SharedSum, tensor: torch.Tensor, turn: int) -> None:
        """Let the learner sum one tensor."""
        if self.delay == "comes late":
            self._until(lambda other: other[_WAITS] > self.waits or other[_RETURNS] > turn)
        shared_sum(tensor, self.slots, self.me, turn, self.wake, self.wait)
        self.counters[self.me, _RETURNS] += 1

    def wake(self) -> None:
        """Wake the partner: its next wait() returns."""
        os.write(self.channel.wake, b"!")
        self.wakes += 1
        if self.delay == "dawdles after waking":
            self._until(lambda other: max(other[_WAITS], other[_RETURNS] + 1) > self.wakes)

    def wait(self) -> None:
        """Sleep until the partner has called wake() once more than we have waited.

        A wait that nobody ends is noted in `stuck`, and returns: what the answer does next tells a
        missing wake() from one that comes too late.
        """
        self.waits += 1
        self.counters[self.me, _WAITS] = self.waits
        if not select.select([self.channel.woken], [], [], PATIENCE)[0]:
            self.stuck = True
            return
        os.read(self.channel.woken, 1)
        if self.delay == "dawdles when woken":
            self._until(lambda other: other[_WAITS] > self.waits or other[_RETURNS] == TURNS)

    def _until(self, far_enough: Callable[[list[int]], bool]) -> None:
        """Wait until the partner's counters say so; not for ever, if the answer is a wrong one."""
        deadline = time.monotonic() + PATIENCE / 3
        while not far_enough(self.counters[1 - self.me].tolist()):
            if time.monotonic() > deadline:
                return
            time.sleep(20e-6)


def turns(shared_sum: SharedSum, delay: str, slow: int) -> dict[str, Any]:
    """Sum `TURNS` tensors while the slow partner keeps its habit; return what came of it."""
    rank = dist.get_rank()
    meeting = Meeting((3, 4), delay if rank == slow else "")
    got, views, cpu = [], [], []
    with calls.CallLog() as log:
        for turn in range(TURNS):
            tensor = data(turn, rank)
            view = tensor.view(3, 4)
            start = time.thread_time()
            meeting.sum(shared_sum, tensor, turn)
            cpu.append(time.thread_time() - start)
            if meeting.stuck:
                break
            got.append(tensor)
            views.append(view)
    counts = {"stuck": meeting.stuck, "wakes": meeting.wakes, "waits": meeting.waits}
    return {"got": got, "views": views, "cpu": cpu, "calls": log.calls} | counts


def data(turn: int, rank: int) -> torch.Tensor:
    """Make what a rank sums in a turn; no two turns or ranks have the same. Sums need 24 bits."""
    generator = torch.Generator().manual_seed(2 * turn + rank)
    return torch.randint(2**21, 2**23, (3, 4), generator=generator).float()


def race(shared_sum: SharedSum, count: int, blocks: int) -> tuple[list[float], list[float]]:
    """Time blocks of sums of a 10 x 10 tensor: the learner's, and gloo's all_reduce."""
    meeting, tensor = Meeting((10, 10), ""), torch.zeros(10, 10)
    numbers = iter(range(10**9))

    def shared() -> None:
        for _ in range(count):
            meeting.sum(shared_sum, tensor, next(numbers))

    def gloo() -> None:
        for _ in range(count):
            dist.all_reduce(tensor)

    return tuple(timing.time_calls(way, warmup=1, iters=blocks) for way in (shared, gloo))
