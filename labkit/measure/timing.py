"""Time a call on every rank: warm up, let the ranks meet, time each call on each rank.

Afterwards the time of a collective is the *slowest* rank's, per iteration; what is reported is the
median with the 10th and 90th percentile; bandwidths follow from the time and are never averaged.
(nccl-tests does otherwise: it times many calls in a row and prints their average, over all ranks
too. Averages hide a hiccup in every figure; back-to-back calls hide the wait for late ranks.)
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from labkit.ranks import devices


@dataclass(frozen=True, slots=True)
class Summary:
    """What a set of samples comes to. Seconds."""

    median: float
    p10: float
    p90: float
    count: int

    def __str__(self) -> str:
        scales = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}
        unit = next((unit for unit, x in scales.items() if self.median * x >= 1), "ns")
        parts = [x * scales[unit] for x in (self.p10, self.median, self.p90)]
        low, middle, high = (f"{float(f'{x:.3g}'):.10g}" for x in parts)  # never 3.87e+03
        return f"{middle} {unit} ({low} to {high}, {self.count} samples)"


def time_calls(fn: Callable[[], Any], *, warmup: int = 5, iters: int = 20) -> list[float]:
    """Call ``fn`` repeatedly on this rank and return the seconds that each of ``iters`` calls took.

    Every rank calls this, with the same numbers. Before each call the ranks meet in a barrier,
    which is not part of the time: without it they drift apart, and a call's time includes the wait
    for the others. The clock stops when the work is done: a Work that ``fn`` returns, or a list of
    them, is waited for, and so is a GPU. The first ``warmup`` calls connect, allocate and load;
    they are not counted.

    Example:
        >>> import torch, torch.distributed as dist
        >>> from labkit import launch
        >>> def program():
        ...     x = torch.ones(1000)
        ...     return time_calls(lambda: dist.all_reduce(x, async_op=True), iters=10)
        >>> [len(samples) for samples in launch(program, world_size=2)]
        [10, 10]
    """
    import torch
    import torch.distributed as dist

    if not callable(fn):
        raise TypeError(f"time_calls needs a function without arguments to call, got {fn!r}.")
    for name, value, least in (("iters", iters, 1), ("warmup", warmup, 0)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    meet = devices.barrier if dist.is_initialized() else _nothing
    for _ in range(warmup):
        meet()
        _wait(fn())
    gpu = torch.cuda.is_available() and torch.cuda.is_initialized()  # perhaps since the first call
    synchronize = torch.cuda.synchronize if gpu else _nothing
    samples = []
    clock = time.perf_counter
    for _ in range(iters):
        synchronize()
        meet()
        start = clock()
        _wait(fn())
        synchronize()
        samples.append(clock() - start)
    meet()  # or whoever is ready goes on while others are still timed
    return samples


def slowest(per_rank: Sequence[Sequence[float]]) -> list[float]:
    """Return the time of each iteration: that of the rank that took longest.

    ``per_rank[r][i]`` is rank r's time of iteration i.

    Example:
        >>> slowest([[1.0, 5.0], [2.0, 4.0]])
        [2.0, 5.0]
    """
    rows: Sequence[object] = per_rank if _is_row(per_rank) else [per_rank]
    if stranger := next((f"{row!r}" for row in rows if not _is_row(row)), ""):
        raise TypeError(f"slowest needs, of each rank, its list of seconds; got {stranger}.")
    lengths = [len(times) for times in per_rank]
    if len(set(lengths)) > 1:
        raise ValueError(f"slowest needs as many samples of each rank; they have {lengths}.")
    return [max(times) for times in zip(*per_rank, strict=True)]


def summarize(samples: Sequence[float]) -> Summary:
    """Return the median, the 10th and 90th percentile and the number of samples.

    Example:
        >>> summarize([1.0, 2.0, 9.0]).median
        2.0
    """
    if not _is_row(samples) or not all(isinstance(x, Real) for x in samples):
        raise TypeError(f"summarize needs seconds, as slowest(...) returns them, got {samples!r}.")
    if not len(samples):
        raise ValueError("summarize needs at least one sample, got none.")
    twice = samples if len(samples) > 1 else [*samples, *samples]
    tenths = statistics.quantiles(twice, n=10, method="inclusive")
    return Summary(statistics.median(samples), tenths[0], tenths[-1], len(samples))


def _is_row(values: object) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str | bytes | dict)


def _wait(result: Any) -> None:
    if result is not None:
        for work in result if isinstance(result, list | tuple) else (result,):
            if hasattr(work, "wait"):
                work.wait()


def _nothing() -> None:
    pass
