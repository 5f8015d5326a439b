"""Lesson 05, exercise 5.4: the receiving half of a layer that lets messages overtake."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.course.checking import CheckFailed

__all__ = ["check_consume"]


def check_consume(consume: Callable) -> None:
    """Judge 5.4 on real ranks: values in order of use, tags, and buffers posted early, bounded."""
    with checking.exercise("5.4", par="as many buffers posted as there are credits") as verdict:
        for credits, count in ((1, 2), (2, 7), (3, 5), (3, 1)):
            used, most, least, left = checking.on_ranks(
                _sender_and_consumer, consume, count, credits, world_size=2, timeout=3.0
            )[1]
            where = f"{count} messages, {credits} credits"
            expected = [(tag, float(tag)) for tag in _wanted(count)]
            if used != expected:
                raise CheckFailed(
                    f"{where}: used {expected}",
                    repr(used),
                    "each message has a tag: give it to irecv. And `use` wants them in the "
                    "order of `wanted`, whatever arrives first",
                )
            if most > credits:
                raise CheckFailed(
                    f"{where}: at most {credits} buffers posted and not yet used",
                    f"{most}",
                    "every posted buffer is memory that a sender may fill: post the next one "
                    "only when you have used one",
                )
            if least < min(credits, count):
                raise CheckFailed(
                    f"{where}: {min(credits, count)} buffers posted before the first wait",
                    f"{least}",
                    "a receive posted after the wait for the one before moves nothing beside "
                    "the computing: post `credits` of them first",
                )
            if left:
                raise CheckFailed(
                    f"{where}: every irecv waited for", f"{left} were not",
                    "a buffer without a wait may not have its bytes yet",
                )  # fmt: skip
        verdict.reached = "that"


def _wanted(count: int) -> list[int]:
    """Make tags that are neither consecutive nor sorted."""
    return [(5 * k + 3) % 11 + 1 for k in range(count)]


def _sender_and_consumer(consume: Callable, count: int, credits: int) -> tuple | None:
    tags = _wanted(count)
    if dist.get_rank() == 0:
        # The sender's order is not the receiver's: backwards, within what its credits allow.
        order = [t for k in range(0, count, credits) for t in tags[k : k + credits][::-1]]
        works = [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in order]
        for work in works:
            work.wait()
        return None
    watch = _Watch()
    used: list[tuple[int, float]] = []

    def use(tag: int, tensor: torch.Tensor) -> None:
        used.append((tag, tensor[0].item()))
        watch.open -= 1

    with watch:
        consume(tags, use, src=0, like=torch.empty(3), credits=credits)
    return used, watch.most, watch.before_first_wait, watch.posted - watch.waited


class _Watch:
    """Count the receives that are posted and not yet used, by standing in for dist.irecv."""

    def __init__(self) -> None:
        self.open = self.most = self.posted = self.waited = self.before_first_wait = 0

    def __enter__(self) -> "_Watch":
        self._irecv = dist.irecv
        dist.irecv = self._post
        return self

    def __exit__(self, *exception: object) -> None:
        dist.irecv = self._irecv

    def _post(self, *args, **named):
        self.posted += 1
        self.open += 1
        self.most = max(self.most, self.open)
        return _Waited(self, self._irecv(*args, **named))


class _Waited:
    """A work that tells when it is waited for."""

    def __init__(self, watch: _Watch, work) -> None:
        self._watch, self._work = watch, work

    def wait(self, *args):
        if not self._watch.waited:
            self._watch.before_first_wait = self._watch.posted
        self._watch.waited += 1
        return self._work.wait(*args)
