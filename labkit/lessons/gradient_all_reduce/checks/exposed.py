"""Check of exercise 2.4: the exposed part of a schedule."""

from collections.abc import Callable, Sequence

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.gradient_all_reduce import model

Exposed = Callable[[Sequence[float], Sequence[int], Callable[[int], float], float], float]


def check_exposed(exposed: Exposed) -> None:
    """Judge exercise 2.4 on schedules where the usual short cuts go wrong.

    Raises:
        CheckFailed: the exposed time differs from the schedule's.
    """

    def cost(nbytes: int) -> float:
        return 0.001 + nbytes * 1e-9

    mb = 1_000_000
    cases = {
        "one bucket, ready in the middle": ([0.02], [30 * mb], 0.04),
        "two buckets, the wire is still busy": ([0.01, 0.02], [40 * mb, 40 * mb], 0.05),
        "all hidden": ([0.01, 0.02], [5 * mb, 5 * mb], 0.10),
        "the wire rests in between": ([0.00, 0.09], [10 * mb, 20 * mb], 0.10),
        "all after backward": ([0.05, 0.05, 0.05], [mb, 2 * mb, 3 * mb], 0.05),
        "nothing to send": ([], [], 0.05),
    }
    with checking.exercise("2.4", par="the schedule's time, six times") as verdict:
        for what, (ready, nbytes, backward) in cases.items():
            step = model.overlapped(ready, nbytes, cost, backward=backward)
            got = exposed(list(ready), list(nbytes), cost, backward)
            if isinstance(got, int | float) and abs(got - step.exposed) <= 1e-9:
                continue
            raise CheckFailed(
                f"{what}: {1e3 * step.exposed:.3f} ms exposed",
                f"{1e3 * got:.3f} ms" if isinstance(got, int | float) else repr(got),
                _why_not_exposed(got, step, ready, nbytes, cost, backward),
            )
        verdict.reached = "all six"


def _why_not_exposed(got, step, ready, nbytes, cost, backward: float) -> str:
    if not isinstance(got, int | float):
        return "the function lacks a `return` on this path"
    alone = max((r + cost(b) for r, b in zip(ready, nbytes, strict=True)), default=0.0) - backward
    shortcuts = {
        step.communication: "that is all of the communication, hidden or not",
        step.communication - backward: "communication cannot start before a bucket is ready",
        max(0.0, alone): "the wire carries one bucket at a time: a ready bucket may have to wait",
        step.exposed + backward: "subtract backward: only what ends after it is exposed",
    }
    for value, meaning in shortcuts.items():
        if abs(got - value) <= 1e-9:
            return meaning
    if got < 0:
        return "communication that ends before backward is hidden: exposed time is never negative"
    return "begin = max(ready, when the wire is free); end = begin + cost; go on from there"
