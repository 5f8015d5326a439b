import contextlib
import gc
import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course.lessons.gradient_all_reduce import faults
from course.lessons.gradient_all_reduce.faults import CAUSES, Fault
from course.lessons.gradient_all_reduce.programs import Storage, Workload
from labkit import launch


def watch(fault, forwards=3):
    """What happens to a rank: its delay, CPU seconds by forward, collections, affinity."""
    storage, model = (
        Storage(Workload(picture=8, batch=1), dist.get_rank(), count=1),
        nn.Linear(2, 2),
    )
    before = os.sched_getaffinity(0)
    fault.strike(storage, model)
    collections, cpu = [], []
    gc.callbacks.append(lambda phase, info: collections.append(len(cpu)))
    for _ in range(forwards):
        begin = time.thread_time()
        model(torch.ones(2))
        cpu.append(time.thread_time() - begin)
    bound = len(os.sched_getaffinity(0)) < len(before)
    return storage.delay, cpu, set(collections), bound


@pytest.mark.parametrize("cause", CAUSES)
def test_one_rank_is_struck_and_only_by_its_own_cause(cause):
    fault = Fault(2, rank=1, cause=cause)
    (calm_delay, calm_cpu, _, calm_bound), (delay, cpu, collections, bound) = launch(
        watch, fault, world_size=2
    )
    assert calm_delay == 0.0 and not calm_bound and max(calm_cpu) < faults.SECONDS
    assert (delay > 0) == (cause == "slow input")
    assert (min(cpu) >= faults.SECONDS) == (cause == "slow compute")
    assert (2 in collections and cpu[2] > faults.SECONDS) == (cause == "garbage collection")
    if len(os.sched_getaffinity(0)) > 1:
        assert bound == (cause == "a neighbour on its CPU")


def test_neighbours_leave_with_the_rank():
    def neighbours():
        found = 0
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has just ended
                found += b"os.getppid() == parent" in process.read_bytes()
        return found

    before = neighbours()
    fault = Fault(1, rank=0, cause="a neighbour on its CPU")
    launch(watch, fault, world_size=1)
    deadline = time.monotonic() + 20
    while neighbours() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert neighbours() <= before


def test_a_fault_is_drawn_and_kept_secret():
    drawn = {(fault._rank, fault._cause) for fault in (Fault(4) for _ in range(300))}
    assert {rank for rank, _ in drawn} == {0, 1, 2, 3}
    assert {cause for _, cause in drawn} == set(CAUSES)
    fault = Fault(4, rank=3, cause="slow input")
    assert "3" not in repr(fault) and "slow" not in repr(fault)
    assert fault.is_on(3) and not fault.is_on(0)
    assert "rank 3, slow input" in fault.reveal()
    assert "the rank wrong, the cause right" in fault.reveal(1, "slow input")
