"""Examine a training step: who waits for whom, for a CPU or for the wire?

    python examples/checkup.py                                   # four ranks on this machine
    torchrun --nproc-per-node=8 examples/checkup.py              # the ranks of your job

`prepare` and `step` are a stand-in: DDP, and a rank whose input is slow. Put yours in their place,
and keep the spans. DDP calls from C++: `tracer.ddp_hook` is what makes its calls visible. On
GPUs the spans are CUDA events.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit import Kind, Timeline, Tracer, launch, sched, wire
from labkit.measure.tables import Table

STEPS = 10


def prepare(tracer):
    """Make what your step needs; here a model of twenty layers."""
    layers = [torch.nn.Linear(224, 224) for _ in range(20)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    model.register_comm_hook(None, tracer.ddp_hook)
    return model


def step(model, tracer):
    """One step of the job, its parts named."""
    with tracer.span("input", Kind.INPUT):
        time.sleep(0.02 if dist.get_rank() == 1 else 0.002)
        batch = torch.ones(8, 224)
    with tracer.span("forward and backward", Kind.COMPUTE):
        model(batch).sum().backward()
    # A call of your own: with tracer.collective("name", nbytes=x.nbytes): dist.all_reduce(x)


def examine():
    """Time the steps, then meter one more; on every rank."""
    tracer = Tracer.aligned()
    state = prepare(tracer)
    for _ in range(2):
        step(state, tracer)  # warm up: connections, memory, DDP's buckets
    with sched.watch() as usage:
        for _ in range(STEPS):
            tracer.next_step()
            step(state, tracer)
    tracer.next_step()
    with wire.meter() as meter:
        step(state, tracer)
    return tracer.trace(), usage, meter.report, latency()


def latency(calls=20):
    """Return the seconds of one call that moves next to nothing, after a warm-up."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    x = torch.ones(1, device=device)
    for _ in range(3):
        dist.all_reduce(x)
    x.item()  # on a GPU it waits
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    x.item()
    return (time.perf_counter() - start) / calls


def show(results):
    """Print the findings."""
    traces, usages, reports, latencies = zip(*results, strict=True)
    timeline = Timeline(traces).steps(1, STEPS)
    table = timeline.time_by_rank()
    delays = timeline.straggler_delays()
    columns = [*table.columns, "delayed all by", "on CPU", "queued for CPU"]
    rows = []
    for (rank, *times), usage in zip(table.rows, usages, strict=True):
        queued = max(thread.waiting for thread in usage.threads)  # a sum would exceed the step
        times += [1e3 * x for x in (delays[rank], usage.on_cpu, queued)]
        rows.append([rank, *(ms / STEPS for ms in times)])
    print(Table(columns, rows, title=f"ms per step, {STEPS} steps"))
    print(f"calls per step: {len(reports[0].calls)}")
    print(f"one small call, one after the other: {1e6 * max(latencies):.0f} µs")
    metered = Timeline(traces).steps(STEPS + 1).spans
    for report in reports:
        spans = [s for s in metered if s.rank == report.rank and s.kind is Kind.COLLECTIVE]
        untold = sum(c.nbytes for c in report.calls) - sum(s.nbytes or 0 for s in spans)
        if untold > 0:
            print(
                f"rank {report.rank}: no span covers {untold / 1e6:.2f} MB of calls: whoever is "
                "waited for there is not in the table"
            )
    try:
        sent = wire.matrix(reports).sum(axis=1) / 1e6
        print("MB sent per step, by rank:", *(f"{x:.2f}" for x in sent))
    except (wire.WireUnavailable, wire.WireMismatch) as reason:
        print(f"bytes on the wire: {reason}")


if __name__ == "__main__":
    plain = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=plain).parse_args()
    results = launch(examine)
    if os.environ.get("RANK", "0") == "0":
        show(results)
