"""Partners who meet at the worst moment, on purpose: what exercise 1.4's shared sum is tried on.

A race shows itself once in a million calls, or never on your machine. So both partners are threads
of which one runs at a time, and a script says which: each goes on until it must wait, and the slow
one stops at its bad moment until the other has got *as far as it can*. A mistake is caught in every
run, and a right answer is never held up.
"""

import sys
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
    "comes late": "comes to the call when the other cannot get any further alone",
    "dawdles when woken": "reads its partner's slot only when the partner has gone on",
    "dawdles after waking": "goes on after wake() only when the partner has gone on",
}
"""What the slow one of the two partners does."""
TURNS, SHAPE = 6, (3, 4)


def data(turn: int, rank: int) -> torch.Tensor:
    """Make what a rank sums in a turn; no two turns or ranks have the same. Sums need 24 bits."""
    generator = torch.Generator().manual_seed(2 * turn + rank)
    return torch.randint(2**21, 2**23, SHAPE, generator=generator).float()


class Meeting:
    """Both partners' slots, wake() and wait(), and the script of who goes on."""

    def __init__(self, habit: str, slow: int) -> None:
        """Have partner `slow` keep a habit, a key of `HABITS`."""
        self.habit, self.slow = habit, slow
        self.slots = torch.full((2, 2, *SHAPE), float("nan"))
        self.wakes, self.waits = [0, 0], [0, 0]
        self.stuck: int | None = None
        """Who waited for a wake-up that never came."""
        self.got: list[list[torch.Tensor]] = [[], []]
        self.kept = True
        """Whether all sums are in the tensors' own memory."""
        self.borrowed = False
        """Whether the course's own answer summed."""
        self._pending, self._idle, self._done = [0, 0], [False, False], [False, False]
        self._go = [threading.Semaphore(1), threading.Semaphore(0)]

    def hold(self, shared_sum: SharedSum) -> None:
        """Sum `TURNS` tensors, or as many as it takes to get stuck.

        Raises:
            Exception: What the learner's function raises.
        """
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(self._play, shared_sum), (0, 1)))

    def _play(self, shared_sum: SharedSum, me: int) -> None:
        self._go[me].acquire()
        try:
            for turn in range(TURNS):
                self._pause(me, "comes late")
                tensor = data(turn, me)
                place = tensor.data_ptr()
                wake, wait = partial(self._wake, me), partial(self._wait, me)
                shared_sum(tensor, self.slots, me, turn, wake, wait)
                if self.stuck is not None:
                    break
                self.got[me].append(tensor)
                self.kept &= tensor.data_ptr() == place
        finally:
            self._done[me] = True
            self._go[1 - me].release()

    def _wake(self, me: int) -> None:
        frame = sys._getframe(1)
        while frame is not None:
            self.borrowed |= frame.f_code is programs.shared_sum.__code__
            frame = frame.f_back
        self.wakes[me] += 1
        self._pending[1 - me] += 1
        self._pause(me, "dawdles after waking")

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
        self._pause(me, "dawdles when woken")

    def _pause(self, me: int, moment: str) -> None:
        if (me, moment) == (self.slow, self.habit) and self._can_go_on(1 - me):
            self._switch(me)

    def _can_go_on(self, who: int) -> bool:
        return not self._done[who] and (not self._idle[who] or self._pending[who] > 0)

    def _switch(self, me: int) -> None:
        self._go[1 - me].release()
        self._go[me].acquire()


def race(shared_sum: SharedSum, count: int = 100) -> list[float]:
    """Return the seconds of a sum of a 10 x 10 tensor: the learner's, and gloo's all_reduce."""
    group, tensors = programs.pair_group(), [torch.zeros(programs.SHAPE)] * count
    ways = programs.SharedMemory(group, programs.SHAPE, shared_sum), programs.blocking
    blocks = [timing.time_calls(partial(way, tensors, group), warmup=1, iters=5) for way in ways]
    return [timing.summarize(block).median / count for block in blocks]
