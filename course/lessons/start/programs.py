"""What runs on lesson 0's ranks: all five clocks in one launch, to draw where each stands."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

LATE = 0.05  # seconds that rank 1 comes late to Cleo's call


def five_clocks() -> dict[str, tuple[float, float]]:
    """Make the calls that Ada, Ben, Cleo and Eve time, one after the other; runs on two ranks.

    Returns:
        What this rank did -> its begin and end, seconds of ``time.perf_counter()``, which on Linux
        is one clock for all processes of a machine.
    """
    x = torch.ones(2**20)
    done: dict[str, tuple[float, float]] = {}

    def note(what: str, act: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        result = act(*args)
        done[what] = start, time.perf_counter()
        return result

    note("first call", dist.all_reduce, x)
    note("warm-up", lambda: [dist.all_reduce(x) for _ in range(5)])

    dist.barrier()
    work = note("only started", partial(dist.all_reduce, async_op=True), x)
    work.wait()
    done["the call behind it"] = done["only started"][0], time.perf_counter()

    dist.barrier()
    if dist.get_rank() == 1:
        note("late", time.sleep, LATE)
    note("with a late rank", dist.all_reduce, x)

    dist.barrier()
    note("aligned", dist.all_reduce, x)
    return done
