"""Partners who meet at the worst moment, on purpose: what exercise 1.4's shared sum is tried on.

A race shows itself once in a million calls, or never on your machine. So both partners are threads
of which one runs at a time, and a script says which: each goes on until it must wait, and the slow
one stops at its bad moment until the other has got *as far as it can*. A mistake is caught in every
run, and a right answer is never held up. Who looks again and again instead of waiting would keep
the other from its turn for ever: that is noticed by the lines of code that it runs meanwhile.
"""

import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

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
SHAPES = (), (1,), (0,), (7,), (2, 3, 5)
"""Of small tensors that have other than two dimensions; in odd turns they have gaps."""
TURNS = 32
"""Sums of a meeting: for the halves to be right once or twice is not enough."""
MANY = 700
"""Sums of a long meeting: what goes wrong or is done once more after a hundred, or five hundred."""
ALWAYS = 20
"""So many sums long the slow one keeps its habit, and is behind; then in every second one only."""
LINES, SECONDS = 100_000, 2.0
"""What a partner may run between a wake() or a wait() and the next: far more than a sum needs."""


class Polled(Exception):
    """A partner does not wait, but looks again and again."""


class Meeting:
    """Both partners' slots, wake() and wait(), and the script of who goes on."""

    def __init__(
        self,
        habit: str,
        slow: int,
        *,
        large: bool = False,
        shape: tuple[int, ...] = (3, 4),
        spoilt: bool = False,
        turns: int = TURNS,
    ) -> None:
        """Have partner `slow` keep a habit, a key of `HABITS`.

        The tensors are small, contiguous and of a shape, or `large` and transposed. Partner 1's
        begin with nan where they are `spoilt`. `turns`: how many sums they make.
        """
        self.turns = turns
        self.habit, self.slow, self.large, self.spoilt = habit, slow, large, spoilt
        self.shape = (40, 30) if large else shape
        self.slots = torch.full((2, 2, *self.shape), float("nan"))
        self.wakes, self.waits = [0, 0], [0, 0]
        self.stuck: int | None = None
        """Who waited for a wake-up that never came."""
        self.got: list[list[torch.Tensor]] = [[], []]
        self.kept = True
        """Whether all sums are in the tensors' own memory."""
        self.borrowed = False
        """Whether the course's own answer summed."""
        self._turns, self._lines, self._since = [0, 0], [0, 0], [0.0, 0.0]
        self._pending, self._idle, self._done = [0, 0], [False, False], [False, False]
        self._go = [threading.Semaphore(1), threading.Semaphore(0)]

    def data(self, turn: int, rank: int) -> torch.Tensor:
        """Make what a rank sums in a turn; no two turns or ranks have the same. Sums need 24 bits.

        Some are below zero, and most are no whole numbers. Of sixteen turns, some give a rank
        zeros only, tiny numbers or pairs that add up to zero; others the elements of two turns
        before, in another order or all but one.

        A transposed tensor is not contiguous, and its sums are right only in its own order.
        """
        generator = torch.Generator().manual_seed(2 * turn + rank)
        shape = self.shape[::-1] if self.large else self.shape
        gaps = turn % 2 and self.shape in SHAPES  # then every second element of a larger one
        made = torch.randint(-(2**23), 2**23, (*shape, 2) if gaps else shape, generator=generator)
        made = made.float() / 8
        flat = made.view(-1)
        if turn % 16 == 7:
            flat *= 2**-40
        elif turn % 8 == 3:
            flat[1::2] = -flat[: flat.numel() // 2 * 2 : 2]
        elif turn % 8 == 5 and rank == turn // 8 % 2:
            flat.zero_()
        elif turn % 8 in (4, 6) and turn > 4 and not gaps and flat.numel() > 1 and not self.spoilt:
            before = self.data(turn - 2, rank)
            before = (before.t() if self.large else before).reshape(-1)
            flat.copy_(before.roll(1) if turn % 8 == 4 else before)
            flat[-1] += turn % 8 == 6
        if gaps:
            return made[..., 0]
        if self.spoilt and rank == 1:
            made[0, 0] = math.nan
        return made.t() if self.large else made

    def hold(self, shared_sum: SharedSum) -> None:
        """Sum `turns` tensors, or as many as it takes to get stuck.

        Raises:
            Polled: The learner's function does not wait.
            Exception: What else it raises.
        """
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(self._play, shared_sum), (0, 1)))

    def _play(self, shared_sum: SharedSum, me: int) -> None:
        self._go[me].acquire()
        try:
            for turn in range(self.turns):
                self._turns[me] = turn
                self._pause(me, "comes late")
                tensor = self.data(turn, me)
                place = tensor.data_ptr()
                wake, wait = partial(self._wake, me), partial(self._wait, me)
                self._begin(me)
                sys.settrace(partial(self._watch, me))
                try:
                    shared_sum(tensor, self.slots, me, turn, wake, wait)
                finally:
                    sys.settrace(None)
                if self.stuck is not None:
                    break
                self.got[me].append(tensor)
                self.kept &= tensor.data_ptr() == place
        finally:
            self._done[me] = True
            self._go[1 - me].release()

    def _begin(self, me: int) -> None:
        self._lines[me], self._since[me] = 0, time.monotonic()

    def _watch(self, me: int, frame: FrameType, event: str, _: Any) -> Callable | None:
        """Count the lines that the learner's function runs; end it where they do not end."""
        if frame.f_code.co_filename == __file__:
            return None
        self._lines[me] += event == "line"
        lines, seconds = self._lines[me], time.monotonic() - self._since[me]
        if lines > LINES or (lines > LINES / 1000 and seconds > SECONDS):
            raise Polled
        return partial(self._watch, me)

    def _wake(self, me: int) -> None:
        frame = sys._getframe(1)
        while frame is not None:
            self.borrowed |= frame.f_code is programs.shared_sum.__code__
            frame = frame.f_back
        self.wakes[me] += 1
        self._pending[1 - me] += 1
        self._pause(me, "dawdles after waking")
        self._begin(me)

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
        self._begin(me)

    def _pause(self, me: int, moment: str) -> None:
        now = self._turns[me] < ALWAYS or self._turns[me] % 2
        if now and (me, moment) == (self.slow, self.habit) and self._can_go_on(1 - me):
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
