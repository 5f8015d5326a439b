"""Lesson 0: what this machine can do, in the few numbers that later lessons need."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from course import runs
from course.comm import collectives
from course.comm.collectives import my_device
from course.comm.costs import AlphaBeta
from labkit.measure import sched, timing
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks.launcher import launch
from labkit.ranks.machine import Machine

NAME = "passport"
TITLE = "What this machine can do"
SIZES = tuple(4 * 8**power for power in range(9))  # 4 B to 64 MiB


@dataclass(frozen=True, slots=True)
class Passport:
    """This machine's figures. Seconds, bytes."""

    cores: float
    """CPUs' worth of work that can go on at once."""
    alpha: float
    """Seconds for the smallest message from one rank to another."""
    beta: float
    """Seconds for each further byte."""
    copy: float
    """The most bytes per second that one thread copied within memory, out of its cache."""
    cpu_per_call: float
    """Seconds on a CPU that one small all_reduce costs each of two ranks, all threads together."""
    call: float
    """Seconds that this small all_reduce takes."""

    @property
    def link(self) -> AlphaBeta:
        """The model of a message between two ranks of this machine."""
        return AlphaBeta(self.alpha, self.beta)


def messages(sizes: Sequence[int], iters: int) -> dict[int, list[float]]:
    """Send each size in bytes to and fro between ranks 0 and 1: the seconds one way, by size."""
    return {
        nbytes: collectives.ping_pong(nbytes, iters=iters if nbytes < 2**20 else max(3, iters // 4))
        for nbytes in sizes
    }


def copies(nbytes: int = 2**18, iters: int = 50) -> list[float]:
    """Copy a buffer that fits into a core's cache; return the seconds per copy."""
    source = torch.ones(nbytes, dtype=torch.uint8, device=my_device())
    target = torch.empty_like(source)

    def block() -> None:
        for _ in range(50):
            target.copy_(source)

    return [seconds / 50 for seconds in timing.time_calls(block, warmup=3, iters=iters)]


def call_cost(calls: int, blocks: int) -> dict[str, Any]:
    """Call a small all_reduce back to back.

    Returns:
        ``samples``: seconds per call, one per block; ``on_cpu``: seconds on a CPU per call of this
        rank, all its threads; None where the system does not tell.
    """
    small = torch.zeros(100, device=my_device())

    def block() -> None:
        for _ in range(calls):
            dist.all_reduce(small)

    block()
    if not sched.available():
        samples = timing.time_calls(block, warmup=1, iters=blocks)
        return {"samples": [t / calls for t in samples], "on_cpu": None}
    with sched.watch() as usage:
        samples = timing.time_calls(block, warmup=0, iters=blocks)
    return {"samples": [t / calls for t in samples], "on_cpu": usage.on_cpu / (calls * blocks)}


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Measure everything that the passport needs; about three seconds."""

    def measured(case: str, samples: list[list[float]], **fields: Any) -> Record:
        params = {"nbytes": fields["nbytes"]} if "nbytes" in fields else {}
        origin = Provenance.here(collectives.carrier(2))
        return Record(NAME, case, params, samples, Tier.MEASURED, origin, **fields)

    def ping_pong() -> list[Record]:
        one_way = launch(messages, SIZES, 8 if quick else 24, world_size=2)[0]
        fields = {"collective": "send"}
        return [measured("ping-pong", [t], nbytes=n, **fields) for n, t in one_way.items()]

    def copying() -> list[Record]:
        return [measured("copy", launch(copies, world_size=2), nbytes=2**18)]

    def small_call() -> list[Record]:
        results = launch(call_cost, 50 if quick else 200, 3 if quick else 5, world_size=2)
        costs = [result["on_cpu"] for result in results]
        values = {} if None in costs else {"on_cpu": statistics.mean(costs)}
        return [measured("small all_reduce", [r["samples"] for r in results], values=values)]

    records = []
    for what, measure in {
        "ping-pong between two ranks": ping_pong,
        "copies within memory": copying,
        "the CPU's part of a small all_reduce": small_call,
    }.items():
        progress(what)
        records += runs.watched(measure)
    return records


def passport(records: Sequence[Record]) -> Passport:
    """Draw the figures from what `run` measured.

    The line is fitted to the fastest of each size: what disturbs a message only adds to its time.
    """
    *sent, copied, small = records
    link = AlphaBeta.fit(
        [record.nbytes for record in sent], [min(record.seconds) for record in sent]
    )
    call = small.summary.median
    return Passport(
        cores=Machine.here().cores,
        alpha=link.alpha,
        beta=link.beta,
        copy=copied.nbytes / min(map(min, copied.samples)),
        cpu_per_call=small.values.get("on_cpu", call),
        call=call,
    )
