"""What runs on lesson 0's ranks: all five clocks in one launch, to draw where each stands."""

import time

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
    clock = time.perf_counter

    start = clock()
    dist.all_reduce(x)
    done["first call"] = start, clock()

    start = clock()
    for _ in range(5):
        dist.all_reduce(x)
    done["warm-up"] = start, clock()

    dist.barrier()
    start = clock()
    work = dist.all_reduce(x, async_op=True)
    done["only started"] = start, clock()
    work.wait()
    done["the call behind it"] = start, clock()

    dist.barrier()
    if dist.get_rank() == 1:
        start = clock()
        time.sleep(LATE)
        done["late"] = start, clock()
    start = clock()
    dist.all_reduce(x)
    done["with a late rank"] = start, clock()

    dist.barrier()
    start = clock()
    dist.all_reduce(x)
    done["aligned"] = start, clock()
    return done
