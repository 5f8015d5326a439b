"""Exercise 1.4: a sum through shared memory, judged under the meetings that go wrong.

A race shows itself once in a million calls, or never on your machine. So the partners here are made
to meet at the worst moment, on purpose: one comes late, or dawdles just after it was woken or just
after it woke the other, *until it has seen the other one get as far as it can*. No sleeping and
hoping: a mistake is caught in every run, and a right answer is never held up.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.launch.launcher import launch
from labkit.lessons.gloo_scaling import pairwise
from labkit.measure import timing

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
_WAITS, _RETURNS = 0, 1


class Meeting:
    """One partner's view: the slots, wake() and wait(), with scripted delays at the worst places.

    Both partners count in shared memory how often they began to wait and how often they came back
    from a sum, so that each can see how far the other one is.
    """

    def __init__(self, shape: tuple[int, ...], delay: str) -> None:
        """Meet the partner; both ranks call this.

        Args:
            shape: Shape of the tensors.
            delay: This partner's habit, a key of `MEETINGS`.
        """
        self.me, self.delay = dist.get_rank(), delay
        nbytes = 4 * torch.Size(shape).numel()
        # a few bytes more than the slots need hold the counters
        self.channel = pairwise.SharedMemory(pairwise.Pair.of(self.me, 2), nbytes + 64)
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


def check_shared_sum(shared_sum: SharedSum) -> None:
    """Judge a sum of two partners through shared memory.

    Args:
        shared_sum: ``(tensor, slots, me, turn, wake, wait)``; adds the partner's tensor to ours, in
            place. ``slots``: float32, shape (2, 2) and then the tensor's.

    Raises:
        CheckFailed: Says which value is wrong under which meeting, or what costs too much.
    """
    with checking.exercise("1.4", par="1 wake-up per sum") as verdict:
        for delay, means in MEETINGS.items():
            for slow in (0, 1) if delay else (0,):
                results = checking.on_ranks(_turns, shared_sum, delay, slow, world_size=2)
                for rank, result in enumerate(results):
                    who = "" if not delay else f"; rank {slow} {means}"
                    _judge(result, rank, who)
        ours, gloo = race(shared_sum)
        verdict.reached = f"1 wake-up per sum, {ours * 1e6:.0f} µs (gloo: {gloo * 1e6:.0f} µs)"


def _turns(shared_sum: SharedSum, delay: str, slow: int) -> dict[str, Any]:
    rank = dist.get_rank()
    meeting = Meeting((3, 4), delay if rank == slow else "")
    got: list[torch.Tensor] = []
    for turn in range(TURNS):
        tensor = data(turn, rank)
        meeting.sum(shared_sum, tensor, turn)
        if meeting.stuck:
            break
        got.append(tensor)
    counts = {"wakes": meeting.wakes, "waits": meeting.waits}
    return {"got": got, "stuck": meeting.stuck, **counts}


def data(turn: int, rank: int) -> torch.Tensor:
    """Make what a rank sums in a turn; no two turns or ranks have the same."""
    return checking.rank_data(12, rank=rank, seed=turn).reshape(3, 4)


def _judge(result: dict[str, Any], rank: int, who: str) -> None:
    got = result["got"]
    for turn, tensor in enumerate(got):
        expected = data(turn, 0) + data(turn, 1)
        meaning = _why(tensor, turn, rank, result)
        checking.same_values(
            tensor, expected, what=f"turn {turn} on rank {rank}{who}", meaning=meaning
        )
    turn = len(got)
    if result["stuck"]:
        raise checking.CheckFailed(
            f"turn {turn} on rank {rank} ends{who}",
            f"its wait() number {result['waits']} was never answered: wake() was called "
            f"{result['wakes']} times here",
            "nobody calls wake(): each partner must wake the other"
            if not result["wakes"]
            else "each waits before it wakes the other: write, wake, and only then wait",
        )
    checking.at_most(
        result["wakes"] / turn,
        1,
        what="wake-ups per sum",
        unit="",
        meaning="the values are right, but the partners meet twice. A second meeting does keep the "
        "fast one from overwriting; writing to the other half in every second turn does it free",
    )


def _why(got: torch.Tensor, turn: int, rank: int, result: dict[str, Any]) -> str:
    """Name the mistake that leads to this value."""
    mine, theirs = data(turn, rank), data(turn, 1 - rank)
    later = data(turn + 1, 1 - rank)
    if not result["waits"]:
        return "wait() is never called: the partner's slot is read before the partner wrote it"
    if torch.equal(got, mine):
        return (
            "the tensor is as it was: `tensor = tensor + ...` makes a new one; add in place (add_)"
        )
    if torch.equal(got, 2 * mine):
        return "this is twice our own tensor: the partner's slot is the one at 1 - me"
    if torch.equal(got, mine + later) or torch.equal(got, later):
        return (
            "we read what the partner wrote for the *next* turn: it was faster and overwrote its "
            "slot before we had read it. Two halves, used in turns, make that impossible"
        )
    earlier = [data(before, 1 - rank) for before in range(turn)]
    if torch.isnan(got).any() or any(torch.equal(got, mine + old) for old in earlier):
        return (
            "we read a slot that the partner had not written in this turn: write first, then wake, "
            "then wait, then read; and both partners must use the same half, told by `turn`"
        )
    if torch.equal(got, theirs):
        return "this is the partner's tensor alone: add it to ours"
    return "write slots[half, me], wake, wait, add slots[half, 1 - me]; half alternates by turn"


def race(shared_sum: SharedSum, calls: int = 100, blocks: int = 5) -> tuple[float, float]:
    """Measure seconds per sum of a 10 x 10 tensor: the learner's, and gloo's all_reduce."""
    per_rank = launch(_race, shared_sum, calls, blocks, world_size=2)
    ours, gloo = (
        timing.summarize(timing.slowest([rank[way] for rank in per_rank])).median / calls
        for way in (0, 1)
    )
    return ours, gloo


def _race(shared_sum: SharedSum, calls: int, blocks: int) -> tuple[list[float], list[float]]:
    meeting, tensor = Meeting((10, 10), ""), torch.zeros(10, 10)
    turns = iter(range(10**9))

    def shared() -> None:
        for _ in range(calls):
            meeting.sum(shared_sum, tensor, next(turns))

    def gloo() -> None:
        for _ in range(calls):
            dist.all_reduce(tensor)

    return tuple(timing.time_calls(way, warmup=1, iters=blocks) for way in (shared, gloo))
