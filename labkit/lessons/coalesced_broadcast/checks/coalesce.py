"""Check of exercise 3.1: a broadcast in buckets."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from labkit.comm.buckets import plan
from labkit.course import checking
from labkit.course.checking import CheckFailed

Coalesce = Callable[[Sequence[torch.Tensor], int, int], None]
CAPS = (0, 64, 4000, 1_000_000)


def check_coalesce(coalesce: Coalesce) -> None:
    """Judge exercise 3.1 on real ranks: every tensor's values, and the number of calls.

    Raises:
        CheckFailed: a tensor differs from the source's, or there are too many broadcasts.
    """
    par = "one broadcast per bucket, no more"
    with checking.exercise("3.1", par=par) as verdict:
        for world_size, src in ((2, 0), (3, 2)):
            ranks = checking.on_ranks(_run_all, coalesce, src, world_size=world_size, timeout=40.0)
            for rank, results in enumerate(ranks):
                for cap, result in zip(CAPS, results, strict=True):
                    _judge(result, f"rank {rank} of {world_size}, src {src}, cap {cap}", cap, src)
        verdict.reached = "that, for four caps"


def tensors_of(rank: int) -> list[torch.Tensor]:
    """Make the tensors to send: odd shapes, two dtypes, large integers, one not contiguous."""

    def some(seed: int, *shape: int) -> torch.Tensor:
        length = 1
        for side in shape:
            length *= side
        return checking.rank_data(length, rank=rank, seed=seed).view(shape)

    return [
        some(1, 3, 5),
        torch.tensor(2**40 + 7 * rank + 1),  # float32 cannot hold it
        some(2, 7),
        some(3, 4, 6).t(),
        torch.tensor([rank, -rank, 2**53 + rank]),
        some(4, 1, 2, 3),
        some(5, 900),
        some(6, 1),
    ]


def _run_all(coalesce: Coalesce, src: int) -> list:
    return [_run(coalesce, cap, src) for cap in CAPS]


def _run(coalesce: Coalesce, cap: int, src: int):
    tensors, calls = tensors_of(dist.get_rank()), 0
    handles = [tensor.data_ptr() for tensor in tensors]
    plain = dist.broadcast

    def counted(*args, **kwargs):
        nonlocal calls
        calls += 1
        return plain(*args, **kwargs)

    dist.broadcast = counted
    try:
        coalesce(tensors, cap, src)
    finally:
        dist.broadcast = plain
    moved = any(t.data_ptr() != h for t, h in zip(tensors, handles, strict=True))
    return [tensor.clone() for tensor in tensors], calls, moved


def _judge(result, what: str, cap: int, src: int) -> None:
    tensors, calls, moved = result
    expected = tensors_of(src)
    for place, (got, wanted) in enumerate(zip(tensors, expected, strict=True)):
        if got.shape == wanted.shape and torch.equal(got, wanted):
            continue
        if not wanted.is_floating_point() and torch.equal(got, wanted.float().to(wanted.dtype)):
            meaning = (
                "these are integers that went through float32 and lost their last bits: a "
                "bucket has one dtype"
            )
        elif not wanted.is_contiguous():
            meaning = (
                "this tensor is transposed: its memory is in another order than its elements. "
                "reshape(-1) copies it in the right order, and copy_ brings it back"
            )
        elif src != 0 and torch.equal(got, tensors_of(0)[place]):
            meaning = f"it has rank 0's values: the source is rank {src}"
        elif any(torch.equal(got, t) for t in (tensors_of(r)[place] for r in range(4))):
            meaning = "the tensor still has its old values: copy the buffer back into it"
        else:
            meaning = "the pieces of the buffer are not where the tensors expect them"
        raise CheckFailed(
            f"{what}, tensor {place} of shape {tuple(wanted.shape)}: {_few(wanted)}",
            _few(got),
            meaning,
        )
    if moved:
        raise CheckFailed(
            f"{what}: the tensors stay where they are",
            "a tensor has new memory",
            "others may hold views of a tensor: copy_ into it, do not replace its data",
        )
    most = len(plan(expected, cap=cap))
    checking.at_most(
        calls, most, what=f"{what}: calls of broadcast", unit="calls",
        meaning="a bucket is sent with one call: put in tensors until the next would not fit",
    )  # fmt: skip
    if calls == 0:
        raise CheckFailed(
            f"{what}: {most} calls of dist.broadcast",
            "none",
            "call it as dist.broadcast(...), so that it can be counted",
        )


def _few(tensor: torch.Tensor) -> str:
    return f"{tensor.flatten()[:4].tolist()}"
