"""Two more rungs of lesson 1's ladder: sums as a model's gradients, and sums behind compute.

Each function launches one small rank program per case and returns records of the experiment
``gloo-scaling``, told apart by ``params["part"]``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from labkit.launch.launcher import launch
from labkit.lessons.gloo_scaling import pairwise
from labkit.lessons.gloo_scaling.gloo_pairs import NAME, SHAPE
from labkit.lessons.gloo_scaling.pairwise_ddp import ThroughDDP
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.timing import time_calls

MATRIX = (512, 512)
HOOKS = {"DDP": None, "DDP, fp16 hook": fp16_compress_hook}


def through_ddp(pairs: int = 1, *, count: int = 128, iters: int = 5) -> list[Record]:
    """Sum tensors with the partner as the gradients of a model in DDP.

    Args:
        pairs: Number of pairs; two ranks each. DDP imports a compiler when it is first used: most
            of a second of CPU per rank, before anything is timed.
        count: Tensors that each rank sums with its partner's.
        iters: Samples per case.

    Returns:
        Two records, ``DDP`` and ``DDP, fp16 hook``, in seconds per tensor as `gloo_ladder.ladder`
        has them, whose ``params`` they share.
    """
    records = []
    for case in HOOKS:
        samples = launch(ddp_program, case, count, iters, world_size=2 * pairs)
        params = {"part": "ladder", "pairs": pairs, "way": case, "placement": "free"}
        params["tensors"] = count
        records.append(
            Record(NAME, case, params, samples, Tier.MEASURED, Provenance.here(), nbytes=400)
        )
    return records


def ddp_program(case: str, count: int, iters: int) -> list[float]:
    """Check the sums once, then time them; runs on every rank.

    Returns:
        Seconds per tensor, one value per iteration.
    """
    rank = dist.get_rank()
    pair = pairwise.Pair.of(rank, dist.get_world_size())
    tensors = [torch.full(SHAPE, float(rank + index)) for index in range(count)]
    way = ThroughDDP(tensors, pair, HOOKS[case])
    way(tensors, pair)
    for index, tensor in enumerate(tensors):
        expected = torch.full(SHAPE, float(rank + pair.partner + 2 * index))
        torch.testing.assert_close(tensor, expected, rtol=0, atol=0)
        tensor.zero_()
    samples = time_calls(lambda: way(tensors, pair), warmup=2, iters=iters)
    return [sample / count for sample in samples]


def overlap(
    pairs: int = 1,
    *,
    count: int = 64,
    shape: tuple[int, ...] = SHAPE,
    iters: int = 7,
    fabric: Any = None,
) -> list[Record]:
    """Hide pairwise sums behind matrix products, and measure what stays exposed.

    The compute takes about as long as the sums by themselves: all of them could be hidden, if the
    sums needed no CPU.

    Args:
        pairs: Number of pairs; two ranks each.
        count: Tensors that each rank sums with its partner's.
        shape: Of each tensor, float32.
        iters: Samples per case.
        fabric: Hosts to run on; none: this machine's loopback, where a sum is mostly CPU work.

    Returns:
        Four records, in seconds for the whole step: ``compute alone``, ``sums alone``, ``one after
        the other``, ``overlapped``. The last two have in ``values``: ``exposed``, the median
        seconds above the compute alone, and ``hidden``, the share of the sums' own time that is
        not exposed.
    """
    world_size = 2 * pairs
    results = launch(overlap_program, count, shape, iters, world_size=world_size, fabric=fabric)
    tier = Tier.MEASURED if fabric is None else Tier.EMULATED
    params = {"part": "overlap", "pairs": pairs, "count": count, "shape": list(shape)}
    provenance = Provenance.here()
    records = {
        case: Record(NAME, case, params, [r[case] for r in results], tier, provenance)
        for case in results[0]
    }
    compute, sums = (records[case].summary.median for case in ("compute alone", "sums alone"))
    for case in ("one after the other", "overlapped"):
        record = records[case]
        exposed = max(0.0, record.summary.median - compute)
        record.values.update(exposed=exposed, hidden=max(0.0, 1 - exposed / sums))
    return list(records.values())


def overlap_program(count: int, shape: tuple[int, ...], iters: int) -> dict[str, list[float]]:
    """Time a step with and without overlap; runs on every rank.

    Returns:
        Seconds per step, ``iters`` of them, for each case of `overlap`.
    """
    pair = pairwise.Pair.of(dist.get_rank(), dist.get_world_size())
    tensors = [torch.zeros(shape) for _ in range(count)]
    matrix = torch.randn(MATRIX)

    def sums() -> None:
        pairwise.asynchronous(tensors, pair)

    repeats = _repeats(sums, lambda: matrix @ matrix)

    def compute() -> None:
        for _ in range(repeats):
            matrix @ matrix

    def in_turn() -> None:
        compute()
        sums()

    def overlapped() -> None:
        works = [dist.all_reduce(tensor, group=pair.group, async_op=True) for tensor in tensors]
        compute()
        for work in works:
            work.wait()

    cases = {
        "compute alone": compute,
        "sums alone": sums,
        "one after the other": in_turn,
        "overlapped": overlapped,
    }
    return {case: time_calls(step, warmup=2, iters=iters) for case, step in cases.items()}


def _repeats(long: Callable[[], Any], short: Callable[[], Any]) -> int:
    """Return how often ``short`` fits into ``long``, on the rank where it fits most often."""
    slow, quick = (statistics.median(time_calls(fn, warmup=1, iters=5)) for fn in (long, short))
    fits = torch.tensor([slow / quick])
    dist.all_reduce(fits, op=dist.ReduceOp.MAX)
    return max(1, round(fits.item()))
