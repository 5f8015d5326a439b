"""Lesson 05, exercise 5.3: the time of a transfer that nothing hides."""

from collections.abc import Callable
from itertools import pairwise

from labkit.comm.sharing import Span
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.pipeline_p2p.pipeline import Channel, activation
from labkit.lessons.pipeline_p2p.schedules import Task, one_f_one_b
from labkit.lessons.pipeline_p2p.simulator import Costs, Timeline, simulate

__all__ = ["check_exposed"]


def check_exposed(exposed: Callable) -> None:
    """Judge 5.3: seconds in which a rank only waits for a transfer to it."""
    with checking.exercise("5.3", par="exact") as verdict:
        f, t = Task("F", 1, 0), activation(0, 0)
        other = activation(1, 0)
        hand = [
            ("a transfer beside no task", [], [(t, 0.0, 2.0)], 2.0, ""),
            ("a transfer hidden by a task", [(1, f, 0.0, 3.0)], [(t, 1.0, 2.0)], 0.0,
             "time in which the rank computes is not exposed"),
            ("half hidden", [(1, f, 1.0, 3.0)], [(t, 0.0, 2.0)], 1.0,
             "only the part of the transfer outside of the rank's tasks counts"),
            ("a task in its middle", [(1, f, 1.0, 2.0)], [(t, 0.0, 4.0)], 3.0,
             "a task can cut a transfer into two exposed pieces"),
            ("two at once", [], [(t, 0.0, 2.0), (activation(0, 1), 1.0, 3.0)], 3.0,
             "two transfers at the same time make the rank wait once: take their union"),
            ("what this rank sends", [], [(other, 0.0, 2.0)], 0.0,
             "a rank waits for what comes to it; what it sends travels without it"),
            ("another rank's task", [(0, Task("F", 0, 0), 0.0, 2.0)], [(t, 0.0, 2.0)], 2.0,
             "only the rank's own tasks hide its transfers"),
        ]  # fmt: skip
        for name, tasks, transfers, expected, meaning in hand:
            seen = Timeline(
                3,
                tuple((rank, task, Span(a, b)) for rank, task, a, b in tasks),
                tuple((transfer, Span(a, b)) for transfer, a, b in transfers),
            )
            _same_seconds(exposed(seen, 1), expected, what=name, meaning=meaning)
        costs = Costs(forward=1.0, backward=2.0, nbytes=0.7, rate=1.0)
        for channel in (Channel.ORDERED, Channel.TAGGED):
            seen = simulate(one_f_one_b(stages=4, micro_batches=5), costs, channel=channel)
            for rank in range(4):
                _same_seconds(
                    exposed(seen, rank), _exposed(seen, rank),
                    what=f"1F1B, {channel.value}, rank {rank}",
                    meaning="right on small cases: check how you treat many intervals that touch",
                )  # fmt: skip
        verdict.reached = "all cases"


def _same_seconds(got: object, expected: float, *, what: str, meaning: str) -> None:
    if not isinstance(got, int | float) or abs(got - expected) > 1e-9:
        raise CheckFailed(f"{what}: {expected:g} s exposed", f"{got!r}", meaning or "see the task")


def _exposed(seen: Timeline, rank: int) -> float:
    """Cut time at every begin and end, and look at each piece."""
    inward = [span for transfer, span in seen.transfers if transfer.dst == rank]
    busy = [span for where, _, span in seen.tasks if where == rank]
    cuts = sorted({t for span in inward + busy for t in (span.begin, span.end)})
    total = 0.0
    for a, b in pairwise(cuts):
        moving = any(span.begin <= a and b <= span.end for span in inward)
        computing = any(span.begin <= a and b <= span.end for span in busy)
        total += b - a if moving and not computing else 0.0
    return total
