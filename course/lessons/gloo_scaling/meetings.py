"""Partners who meet at the worst moment, on purpose: what exercise 1.4's shared sum is tried on.

A race shows itself once in a million calls, or never on your machine. So both partners are threads
of which one runs at a time, and the slow one stops before each call, after each wake() and after
each wait() until the other has got *as far as it can*. They take turns in being slow. A mistake is
caught in every run, and a right answer is never held up.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Semaphore

import torch

from course.lessons.gloo_scaling import programs
from labkit.measure import timing

SHAPES = (3, 4), (), (40, 30), (2, 3, 5)
"""Of the tensors of two meetings each; in each another partner is slow first."""
TURNS = 8  # sums of a meeting


class Meeting:
    """Both partners' slots, wake() and wait(), and who goes on."""

    def __init__(self, slow: int, shape: tuple[int, ...]) -> None:
        """Have partner `slow` be slow first."""
        self.slow, self.shape = slow, shape
        self.slots = torch.full((2, 2, *shape), float("nan"))
        self.wakes, self.waits = [0, 0], [0, 0]
        self.sums: tuple[list[torch.Tensor], ...] = [], []  # what each partner's tensors held
        self.stuck: int | None = None  # who waited for a wake-up that never came
        self._moments, self._done = [0, 0], [False, False]
        self._go = Semaphore(1), Semaphore(0)

    def __str__(self) -> str:
        return f"tensors of shape {self.shape}; at first partner {self.slow} is slow"

    def data(self, turn: int, me: int) -> torch.Tensor:
        """Make a partner's tensor of a turn: no two are alike; in odd turns none is contiguous."""
        generator = torch.Generator().manual_seed(2 * turn + me)
        values = torch.randint(-(2**23), 2**23, (2, *self.shape[::-1]), generator=generator) / 8
        turned = values.permute(*reversed(range(values.dim())))[..., 0]  # with gaps
        return turned if turn % 2 else turned.contiguous()

    def hold(self, shared_sum: Callable[..., None]) -> None:
        """Sum `TURNS` tensors, or as many as it takes to get stuck.

        Partner 0 plays here, where a case file shows its line.
        """
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(self._play, shared_sum, 1)
            self._play(shared_sum, 0)
            other.result()

    def _play(self, shared_sum: Callable[..., None], me: int) -> None:
        wake, wait = partial(self._wake, me), partial(self._wait, me)
        self._go[me].acquire()
        try:
            for turn in range(TURNS):
                self._dawdle(me)
                tensor = self.data(turn, me)
                shared_sum(tensor[...], self.slots, me, turn, wake, wait)  # a view of the memory
                if self.stuck is not None:
                    break
                self.sums[me].append(tensor)
        finally:
            self._done[me] = True
            self._go[1 - me].release()

    def _wake(self, me: int) -> None:
        self.wakes[me] += 1
        self._dawdle(me)

    def _wait(self, me: int) -> None:
        self.waits[me] += 1
        while self._is_asleep(me):
            if not self._let_the_other_on(me):
                self.stuck = me
                return
        self._dawdle(me)

    def _is_asleep(self, me: int) -> bool:
        return self.wakes[1 - me] < self.waits[me]

    def _dawdle(self, me: int) -> None:
        self._moments[me] += 1
        swapped = self._moments[me] % 7 > 3  # of three moments a sum: swaps wander through the sums
        if (me == self.slow) != swapped:
            self._let_the_other_on(me)

    def _let_the_other_on(self, me: int) -> bool:
        """Let the other go on until it waits; say whether it could."""
        if self._done[1 - me] or self._is_asleep(1 - me):
            return False
        self._go[1 - me].release()
        self._go[me].acquire()
        return True


def race(shared_sum: Callable[..., None], count: int = 50) -> list[float]:
    """Return the seconds of a sum of a 10 x 10 tensor: the learner's, and gloo's all_reduce."""
    group, tensors = programs.pair_group(), [torch.zeros(programs.SHAPE)] * count
    ways = programs.SharedMemory(group, programs.SHAPE, shared_sum), programs.blocking
    blocks = [timing.time_calls(partial(way, tensors, group), warmup=1, iters=5) for way in ways]
    return [timing.summarize(block).median / count for block in blocks]
