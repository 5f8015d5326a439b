"""The fixes of lesson 1 side by side: every way for partners to sum, at one number of pairs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from labkit.launch import affinity
from labkit.launch.launcher import launch
from labkit.lessons.gloo_scaling import pairwise
from labkit.lessons.gloo_scaling.gloo_pairs import NAME, SHAPE, place
from labkit.measure import timing
from labkit.measure.records import Provenance, Record, Tier


def ladder(
    pairs: int,
    *,
    count: int = 1024,
    iters: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Measure every way of summing ``count`` tensors with a partner, at one number of pairs.

    A way whose time per tensor does not depend on how many there are is measured on a quarter.
    """
    rungs = [("blocking", "free"), ("one group", "free"), ("async_op", "free")]
    if affinity.available():
        rungs += [("blocking", "together"), ("async_op", "together")]
    rungs += [("shared memory", "free"), ("accumulated", "free"), ("fused", "free")]
    if affinity.available():
        rungs.insert(-2, ("shared memory", "together"))
    records = []
    for way, placement in rungs:
        if progress:
            progress(f"{way}, {placement}")
        light = way in {"fused", "accumulated"}
        tensors, repeats = (count, 4 * iters) if light else (max(1, count // 4), iters)
        samples = launch(program, way, tensors, repeats, placement, world_size=2 * pairs)
        case = way if placement == "free" else f"{way}, pinned {placement}"
        params = {"part": "ladder", "pairs": pairs, "way": way, "placement": placement}
        params["tensors"] = tensors
        records.append(
            Record(NAME, case, params, samples, Tier.MEASURED, Provenance.here(), nbytes=400)
        )
    return records


def program(way_name: str, count: int, iters: int, placement: str) -> list[float]:
    """Sum ``count`` tensors with the partner in the named way; runs on every rank.

    Checks the sums once, then times the way as a whole.

    Returns:
        Seconds per tensor, one value per iteration.
    """
    rank = dist.get_rank()
    if placement != "free":
        affinity.pin(place(placement, rank, affinity.cpus()))
    pair = pairwise.Pair.of(rank, dist.get_world_size())
    way = _way(way_name, pair)
    tensors = [torch.full(SHAPE, float(rank + index)) for index in range(count)]
    way(tensors, pair)
    if way_name != "accumulated":
        for index, tensor in enumerate(tensors):
            expected = float(rank + pair.partner + 2 * index)
            assert (tensor == expected).all(), f"{way_name}: tensor {index} is not {expected}"
    for tensor in tensors:
        tensor.zero_()
    samples = timing.time_calls(lambda: way(tensors, pair), warmup=1, iters=iters)
    return [sample / count for sample in samples]


def _way(name: str, pair: pairwise.Pair) -> pairwise.Way:
    if name == "shared memory":
        return pairwise.SharedMemory(pair, nbytes=400)
    return {**pairwise.WAYS, "accumulated": pairwise.accumulated}[name]
