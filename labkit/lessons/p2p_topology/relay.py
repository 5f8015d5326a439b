"""Carry a tensor from one rank to another over other ranks, in chunks, along several ways at once.

The idea is that of a bucket brigade: nobody waits for the whole tensor. While a relay hands on one
chunk, the next one is on its way to it, so all links of a way are busy at the same time.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def carry(
    tensor: torch.Tensor,
    ways: Sequence[Sequence[int]],
    *,
    chunk: int,
    shares: Sequence[float] | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Copy a tensor from the first rank of the ways to their last.

    Every rank of the group calls this with a tensor of the same shape: the source's is sent, the
    destination's is overwritten, a relay's is its buffer, and the rest are left alone.

    Args:
        tensor: One-dimensional and contiguous.
        ways: The ranks of each way in order, such as `[[0, 5, 2], [0, 7, 2]]`. A rank may be on
            several ways.
        chunk: Elements that travel together.
        shares: How much of the tensor takes each way, in any unit; equal shares if not given.
        group: The group whose connections are used; the default group if not given.
    """
    legs = [
        _Leg(part, way, tag=number, chunk=chunk, group=group)
        for number, (part, way) in enumerate(zip(split(tensor, shares, ways), ways, strict=True))
        if dist.get_rank() in way
    ]
    for turn in range(max((len(leg.chunks) for leg in legs), default=0)):
        for leg in legs:
            leg.hand_on(turn)
    for leg in legs:
        leg.finish()


def split(
    tensor: torch.Tensor, shares: Sequence[float] | None, ways: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Cut a tensor into one part for each way, in proportion to the shares; nothing is lost."""
    shares = [1.0] * len(ways) if shares is None else shares
    ends = [
        round(len(tensor) * sum(shares[: number + 1]) / sum(shares)) for number in range(len(ways))
    ]
    return [tensor[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


class _Leg:
    """This rank's part of one way: from whom, to whom, and what is under way."""

    def __init__(self, part, way, *, tag, chunk, group) -> None:
        here = list(way).index(dist.get_rank())
        self.chunks = part.split(chunk)
        self.after = way[here + 1] if here + 1 < len(way) else None
        self.tag, self.group = tag, group
        # All receives are posted before anything is sent: no sender ever waits for readiness.
        self.arriving = (
            [dist.irecv(piece, way[here - 1], group=group, tag=tag) for piece in self.chunks]
            if here > 0
            else None
        )
        self.leaving: list[dist.Work] = []

    def hand_on(self, turn: int) -> None:
        if turn >= len(self.chunks):
            return
        if self.arriving is not None:
            self.arriving[turn].wait()
        if self.after is not None:
            self.leaving.append(
                dist.isend(self.chunks[turn], self.after, group=self.group, tag=self.tag)
            )

    def finish(self) -> None:
        for work in self.leaving:
            work.wait()
