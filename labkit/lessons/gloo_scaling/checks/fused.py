"""Exercise 1.2: many small sums in one call, whatever their shapes, types and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.measure import memory, wire

Fused = Callable[[list[torch.Tensor], Any], None]

HUGE = 2**60
"""So large that neither float32 nor float64 can tell it from its neighbours; five fit an int64."""
COUNT, LENGTH = 64, 4096
"""The tensors of the cost case: 64 of 16 KiB."""
_ERRORS = {
    "view size is not compatible": "`view` cannot flatten a tensor with gaps or in another order, "
    "such as a transposed one; `reshape(-1)` copies it where it must",
    "equal size": "`stack` needs equal shapes; flatten each tensor, then `cat`",
    "zero-dimensional": "a 0-dimensional tensor has no axis to join along: flatten it first",
}


def tensors_of(rank: int) -> list[torch.Tensor]:
    """Make a rank's tensors: every shape, stride and type that the exercise promises."""
    shapes = [(10, 10), (3,), (), (0,), (2, 5, 7)]
    made = [
        checking.rank_data(_numel(shape), rank=rank, seed=seed).reshape(shape)
        for seed, shape in enumerate(shapes)
    ]
    flipped = checking.rank_data(70, rank=rank, seed=11).reshape(10, 7).t()
    gaps = checking.rank_data(60, rank=rank, seed=12).reshape(6, 10)[:, ::2]
    counts = checking.rank_data(7, rank=rank, seed=13, dtype=torch.int64) + HUGE
    steps = checking.rank_data(1, rank=rank, seed=14, dtype=torch.int64).reshape(())
    return [*made[:2], counts, flipped, *made[2:], gaps, steps]


def check_fused_all_reduce(fused_all_reduce: Fused) -> None:
    """Judge a fused all_reduce.

    Args:
        fused_all_reduce: ``(tensors, group)``; replaces each tensor, in place, by the sum over the
            group's ranks.

    Raises:
        CheckFailed: Says which tensor on which rank is wrong, or which cost is above par.
    """
    par = "1 call per dtype, 1 S, 1 S"
    with checking.exercise("1.2", par=par) as verdict:
        for world_size in (4, 3):
            results = checking.on_ranks(_sums, fused_all_reduce, world_size=world_size)
            for rank, result in enumerate(results):
                _judge_values(result, rank, world_size)
        calls, sent, peak = _judge_cost(checking.on_ranks(_cost, fused_all_reduce, world_size=3))
        verdict.reached = f"{calls} calls for {COUNT} tensors, {sent}, {peak:.2f} S of memory"


def members_of(rank: int, world_size: int) -> list[int]:
    """Return the ranks that sum together: pairs where there are four ranks, else all."""
    first = rank - rank % 2
    return [first, first + 1] if world_size == 4 else list(range(world_size))


def _sums(fused_all_reduce: Fused) -> dict[str, Any]:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    group = None
    if world_size == 4:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        group = groups[rank // 2]
    given = tensors_of(rank)
    tensors = list(given)
    places = [tensor.data_ptr() for tensor in given]
    try:
        fused_all_reduce(tensors, group)
    except RuntimeError as error:
        known = next((why for text, why in _ERRORS.items() if text in str(error)), None)
        if known is None:
            raise
        return {"error": str(error), "meaning": known}
    return {
        "got": [tensor.clone() for tensor in given],
        "moved": [tensor.data_ptr() for tensor in given] != places,
    }


def _judge_values(result: dict[str, Any], rank: int, world_size: int) -> None:
    if "error" in result:
        raise checking.CheckFailed(
            "sums of tensors of any shape", result["error"], result["meaning"]
        )
    members = members_of(rank, world_size)
    before = tensors_of(rank)
    expected = [sum(parts) for parts in zip(*map(tensors_of, members), strict=True)]
    everybody = [sum(parts) for parts in zip(*map(tensors_of, range(world_size)), strict=True)]
    got = result["got"]
    wrong = [i for i in range(len(got)) if not torch.equal(got[i], expected[i])]
    if wrong:
        first = wrong[0]
        what = f"tensor {first} ({_described(before[first])}) on rank {rank} of {world_size}"
        meaning = _why(got, before, expected, everybody, wrong)
        if got[first].dtype == torch.int64:
            off = (got[first] - expected[first]).flatten().tolist()
            raise checking.CheckFailed(
                f"{what}: exact sums", f"sums that are off by {off}", meaning
            )
        checking.same_values(got[first], expected[first], what=what, meaning=meaning)
    if result["moved"]:
        raise checking.CheckFailed(
            "the tensors' own memory holds the sums",
            "tensors that were pointed at other memory",
            "assigning `.data` swaps the memory under the tensor; whoever holds a view of the old "
            "memory (an optimizer, a bucket) never sees the sum. Use copy_",
        )


def _why(
    got: list[torch.Tensor],
    before: list[torch.Tensor],
    expected: list[torch.Tensor],
    everybody: list[torch.Tensor],
    wrong: list[int],
) -> str:
    """Name the mistake that leads to these values."""
    if all(torch.equal(a, b) for a, b in zip(got, before, strict=True)):
        return (
            "the sums are somewhere else: in the flat tensor, or in new ones that are returned. "
            "Copy each part back into its tensor"
        )
    if all(torch.equal(a, b) for a, b in zip(got, everybody, strict=True)):
        return "these are the sums over *all* ranks: pass group=group"
    if all(not before[i].is_contiguous() for i in wrong):
        return (
            "only tensors with gaps or another order are wrong: reshape(-1) or flatten() of such a "
            "tensor is a copy, and writing to it changes nothing. Shape the part like the tensor, "
            "not the tensor like the part: tensor.copy_(part.view_as(tensor))"
        )
    if all(before[i].dtype == torch.int64 for i in wrong):
        return (
            "only the integers are wrong: `cat` of int64 and float32 gives float32, which has 24 "
            "bits for a number (float64 has 53). One flat tensor per dtype"
        )
    return "parts are cut in another order or with other lengths than they were packed"


def _cost(fused_all_reduce: Fused) -> dict[str, Any]:
    """Sum 64 tensors of two dtypes; return wire reports, of two plain calls too, and memory."""
    tensors = [
        torch.ones(LENGTH) if i % 2 else torch.ones(LENGTH // 2, dtype=torch.int64)
        for i in range(COUNT)
    ]
    whole = [torch.ones(COUNT // 2 * LENGTH), torch.ones(COUNT // 4 * LENGTH, dtype=torch.int64)]
    for flat in whole:
        dist.all_reduce(flat)  # opens connections
    with wire.meter() as reference:
        for flat in whole:
            dist.all_reduce(flat)
    dist.barrier()
    with wire.meter() as theirs:
        fused_all_reduce(tensors, None)
    dist.barrier()
    with memory.watch() as usage:
        fused_all_reduce(tensors, None)
    total = sum(tensor.nbytes for tensor in tensors)
    reports = {"reference": reference.report, "theirs": theirs.report}
    return {**reports, "peak": usage.peak / total}


def _judge_cost(results: list[dict[str, Any]]) -> tuple[int, str, float]:
    calls = max(len(result["theirs"].calls) for result in results)
    checking.at_most(
        calls,
        2,
        what=f"{COUNT} tensors of 2 dtypes",
        unit="calls",
        meaning="a call per tensor: each pays the latency and the CPU time of a call once more"
        if calls >= COUNT
        else "more than one call per dtype: pack all tensors of a dtype into one",
    )
    try:
        ours, theirs = (
            wire.matrix([result[key] for result in results]).sum()
            for key in ("reference", "theirs")
        )
    except wire.WireUnavailable:
        sent = "bytes not countable here"
    else:
        checking.at_most(
            theirs / ours,
            1.05,
            what="bytes on the wire, against one all_reduce of the same elements",
            unit="S",
            meaning="more travels than the elements: padding to equal shapes, a wider dtype, or "
            "everybody's tensors gathered instead of summed on the way",
        )
        sent = f"{theirs / ours:.2f} S on the wire"
    peak = max(result["peak"] for result in results)
    checking.at_most(
        peak,
        1.1,
        what="memory at its peak",
        unit="S",
        meaning="a copy too many is alive: `cat` already copies, so no clone() before it, and no "
        "list of results after it",
    )
    return calls, sent, peak


def _described(tensor: torch.Tensor) -> str:
    order = "" if tensor.is_contiguous() else ", not contiguous"
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}{order}"


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
