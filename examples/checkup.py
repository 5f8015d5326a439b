"""Examine a training step: who waits for whom, for a CPU or for the wire?

    python examples/checkup.py                                   # four ranks on this machine
    torchrun --nproc-per-node=8 examples/checkup.py              # the ranks of your job

`step` is a stand-in: a rank whose input is slow, and one call per parameter. Put yours in its
place, and keep the spans. On GPUs give the tracer `synchronize=torch.cuda.synchronize`.
"""

import os
import time

import torch
import torch.distributed as dist

from labkit import launch
from labkit.measure import sched, wire
from labkit.measure.timeline import Timeline
from labkit.measure.trace import Kind, Tracer

STEPS = 10


def prepare():
    """Make what your step needs; here twenty parameters."""
    return [torch.ones(50_000) for _ in range(20)]


def step(parameters, tracer):
    """One step of the job, its parts named."""
    with tracer.span("input", Kind.INPUT):
        time.sleep(0.02 if dist.get_rank() == 1 else 0.002)
    with tracer.span("forward and backward", Kind.COMPUTE):
        gradients = [parameter * 0.5 for parameter in parameters]
    for gradient in gradients:
        with tracer.collective("gradients", nbytes=gradient.nbytes):
            dist.all_reduce(gradient)


def examine():
    """Run the steps under the instruments; on every rank."""
    state = prepare()
    step(state, Tracer.aligned())  # warm up: connections, memory, caches
    tracer = Tracer.aligned()
    with sched.watch() as usage, wire.meter() as meter:
        for _ in range(STEPS):
            tracer.next_step()
            step(state, tracer)
    return tracer.trace(), usage, meter.report


def tell(results):
    """Print the findings."""
    traces, usages, reports = zip(*results, strict=True)
    timeline = Timeline(traces)
    table = timeline.time_by_rank()
    delays = timeline.straggler_delays()
    columns = [*table.columns, "delayed all by", "on CPU", "queued for CPU"]
    print("  ".join(columns), f"    (ms per step, {STEPS} steps)")
    for row, usage in zip(table.rows, usages, strict=True):
        rank, *times = row
        times += [1e3 * x for x in (delays[rank], usage.on_cpu, usage.waiting)]
        cells = [str(rank), *(f"{ms / STEPS:.2f}" for ms in times)]
        print("  ".join(cell.rjust(len(name)) for cell, name in zip(cells, columns, strict=True)))
    print(f"collective calls per step: {len(reports[0].calls) / STEPS:g}")
    try:
        sent = wire.matrix(reports).sum(axis=1) / STEPS / 1e6
        print("MB sent per step, by rank:", *(f"{x:.2f}" for x in sent))
    except (wire.WireUnavailable, wire.WireMismatch) as reason:
        print(f"bytes on the wire: {reason}")


if __name__ == "__main__":
    found = launch(examine)
    if os.environ.get("RANK", "0") == "0":
        tell(found)
