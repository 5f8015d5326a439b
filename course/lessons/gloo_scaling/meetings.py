"""Partners who meet at the worst moment, on purpose: what exercise 1.4's shared sum is tried on.

A race shows itself once in a million calls, or never on your machine. So both partners are threads
of which one runs at a time, and a script says which: each goes on until it must wait, and the slow
one stops at its bad moment until the other has got *as far as it can*. A mistake is caught in every
run, and a right answer is never held up.
"""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from course.lessons.gloo_scaling import programs
from labkit.measure import timing

SharedSum = Callable[..., None]
HABITS = {
    "": "each goes on until it must wait",
    "late": "comes to the call when the other cannot get any further alone",
    "woken": "reads its partner's slot only when the partner has gone on",
    "waking": "goes on after wake() only when the partner has gone on",
}
"""What the slow one of the two partners does."""
SHAPES = (3, 4), (), (7,), (2, 3, 5), (1,), (40, 30), (0,), (10, 10)
"""Of the tensors of each meeting."""
TURNS = 12
"""Sums of a meeting: the slow one keeps its habit in the first half, then in every second one."""


class Meeting:
    """Both partners' slots, wake() and wait(), and the script of who goes on."""

    def __init__(self, habit: str, slow: int, shape: tuple[int, ...]) -> None:
        """Have partner `slow` keep a habit, a key of `HABITS`."""
        self.habit, self.slow, self.shape = habit, slow, shape
        self.slots = torch.full((2, 2, *shape), float("nan"))
        self.wakes, self.waits = [0, 0], [0, 0]
        self.sums: list[list[torch.Tensor]] = [[], []]
        """Of each partner, what its tensors held afterwards."""
        self.stuck: int | None = None
        """Who waited for a wake-up that never came."""
        self._turns = [0, 0]
        self._pending, self._idle, self._done = [0, 0], [False, False], [False, False]
        self._go = [threading.Semaphore(1), threading.Semaphore(0)]

    def __str__(self) -> str:
        return f"tensors of shape {self.shape}; partner {self.slow} {HABITS[self.habit]}"

    def data(self, turn: int, me: int) -> torch.Tensor:
        """Make a partner's tensor of a turn: no two are alike; in odd turns none is contiguous."""
        generator = torch.Generator().manual_seed(2 * turn + me)
        values = torch.randint(-(2**23), 2**23, (2, *self.shape[::-1]), generator=generator) / 8
        turned = values.permute(*reversed(range(values.dim())))[..., 0]  # with gaps
        return turned if turn % 2 else turned.contiguous()

    def hold(self, shared_sum: SharedSum) -> None:
        """Sum `TURNS` tensors, or as many as it takes to get stuck."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(self._play, shared_sum), (0, 1)))

    def _play(self, shared_sum: SharedSum, me: int) -> None:
        self._go[me].acquire()
        try:
            for turn in range(TURNS):
                self._turns[me] = turn
                self._pause(me, "late")
                tensor = self.data(turn, me)
                wake, wait = partial(self._wake, me), partial(self._wait, me)
                shared_sum(tensor[...], self.slots, me, turn, wake, wait)  # a view of the memory
                if self.stuck is not None:
                    break
                self.sums[me].append(tensor)
        finally:
            self._done[me] = True
            self._go[1 - me].release()

    def _wake(self, me: int) -> None:
        self.wakes[me] += 1
        self._pending[1 - me] += 1
        self._pause(me, "waking")

    def _wait(self, me: int) -> None:
        self.waits[me] += 1
        while not self._pending[me]:
            if not self._can_go_on(1 - me):
                self.stuck = me  # what it does next tells a missing wake() from a late one
                return
            self._idle[me] = True
            self._switch(me)
            self._idle[me] = False
        self._pending[me] -= 1
        self._pause(me, "woken")

    def _pause(self, me: int, moment: str) -> None:
        keeps = self._turns[me] < TURNS / 2 or self._turns[me] % 2
        if keeps and (me, moment) == (self.slow, self.habit) and self._can_go_on(1 - me):
            self._switch(me)

    def _can_go_on(self, me: int) -> bool:
        return not self._done[me] and (not self._idle[me] or self._pending[me] > 0)

    def _switch(self, me: int) -> None:
        self._go[1 - me].release()
        self._go[me].acquire()


def meetings() -> list[Meeting]:
    """Return a meeting for each habit and each partner that may have it."""
    habits = itertools.product(HABITS, (0, 1))
    return [Meeting(*habit, shape) for habit, shape in zip(habits, SHAPES, strict=True)]


def race(shared_sum: SharedSum, count: int = 100) -> list[float]:
    """Return the seconds of a sum of a 10 x 10 tensor: the learner's, and gloo's all_reduce."""
    group, tensors = programs.pair_group(), [torch.zeros(programs.SHAPE)] * count
    ways = programs.SharedMemory(group, programs.SHAPE, shared_sum), programs.blocking
    blocks = [timing.time_calls(partial(way, tensors, group), warmup=1, iters=5) for way in ways]
    return [timing.summarize(block).median / count for block in blocks]
