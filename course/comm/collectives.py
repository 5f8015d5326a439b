"""The collectives of torch.distributed, one record each: how to prepare, run and check them.

S is the largest buffer on a rank, as in nccl-tests: the whole tensor for all_reduce, the input of
reduce_scatter, the *output* of all_gather. The data are whole numbers that differ by rank and by
place, so that a float sum is exact and a wrong chunk, a rank counted twice or a result in the
wrong place cannot go unnoticed. The expected values are computed without communication.

Beside the table: where a rank's tensors live, and the ping-pong that times one message.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from labkit.measure import timing
from labkit.ranks.launcher import default_backend

Group = dist.ProcessGroup | None

# torch 2.13 renamed these two and warns of the old names; labkit and the lessons call these.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class WrongAnswer(AssertionError):
    """A collective left wrong values on a rank; the message says which and where."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """One rank's tensors. For a collective that works in place both are the same tensor."""

    source: torch.Tensor
    target: torch.Tensor


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation."""

    name: str
    """As in torch.distributed and in `labkit.measure.records.bus_factor`."""
    run: Callable[[Buffers, Group], None]
    """Call the library's implementation."""
    part_in: bool = False
    """Whether a rank's source is S / world_size long (all_gather)."""
    part_out: bool = False
    """Whether a rank's target is S / world_size long (reduce_scatter)."""
    in_place: bool = False
    expected: Callable[[int, int, int], torch.Tensor | None] = lambda rank, n, numel: None
    """(rank, world_size, numel) -> what must be in the target; None where anything may be."""

    def prepare(self, numel: int, *, rank: int, world_size: int) -> Buffers:
        """Return fresh buffers of a collective with S = `numel` elements.

        Raises:
            ValueError: `numel` cannot be shared out evenly, and this collective needs that.
        """
        uneven = numel % world_size and (self.part_in or self.part_out or self.name == "all_to_all")
        if uneven:
            raise ValueError(
                f"{self.name} of {numel} elements: {numel} % world_size {world_size} != 0; "
                f"use a multiple of {world_size}."
            )
        source = pattern(rank, numel // world_size if self.part_in else numel)
        if self.in_place:
            return Buffers(source, source)
        length = numel // world_size if self.part_out else numel
        return Buffers(source, torch.full((length,), -1.0))

    def check(self, buffers: Buffers, *, numel: int, rank: int, world_size: int) -> None:
        """Compare the target with the expected values.

        Raises:
            WrongAnswer: they differ; with the rank, the first wrong place and how many there are.
        """
        expected = self.expected(rank, world_size, numel)
        if expected is None:
            return
        wrong = (buffers.target != expected).nonzero().flatten()
        if len(wrong):
            place = int(wrong[0])
            raise WrongAnswer(
                f"{self.name} of {numel} elements on {world_size} ranks: rank {rank} has "
                f"{buffers.target[place].item():g} at place {place}, expected "
                f"{expected[place].item():g}; {len(wrong)} of {len(expected)} places are wrong."
            )


def pattern(rank: int, numel: int) -> torch.Tensor:
    """Return rank-dependent whole numbers from -499 to 499, whose sums float32 holds exactly."""
    place = torch.arange(numel, dtype=torch.int64)
    return ((place * 7919 + (rank + 1) * (place % 97 + 13) * 31) % 999 - 499).float()


def total(n: int, numel: int) -> torch.Tensor:
    """Return the sum of all ranks' patterns, added up here and now."""
    return torch.stack([pattern(rank, numel) for rank in range(n)]).sum(0)


def _share(tensor: torch.Tensor, rank: int, n: int) -> torch.Tensor:
    return tensor.view(n, -1)[rank]


def _send_to_next(buffers: Buffers, group: Group) -> None:
    """Even ranks send to the next one, odd ranks receive: pairs, all at once."""
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank % 2:
        dist.recv(buffers.target, group_src=rank - 1, group=group)
    elif rank + 1 < n:
        dist.send(buffers.source, group_dst=rank + 1, group=group)


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            "all_reduce",
            run=lambda b, group: dist.all_reduce(b.target, group=group),
            in_place=True,
            expected=lambda rank, n, numel: total(n, numel),
        ),
        Collective(
            "reduce",
            run=lambda b, group: dist.reduce(b.target, group_dst=0, group=group),
            in_place=True,
            expected=lambda rank, n, numel: total(n, numel) if rank == 0 else None,
        ),
        Collective(
            "broadcast",
            run=lambda b, group: dist.broadcast(b.target, group_src=0, group=group),
            in_place=True,
            expected=lambda rank, n, numel: pattern(0, numel),
        ),
        Collective(
            "reduce_scatter",
            run=lambda b, group: reduce_scatter_single(b.target, b.source, group=group),
            part_out=True,
            expected=lambda rank, n, numel: _share(total(n, numel), rank, n),
        ),
        Collective(
            "all_gather",
            run=lambda b, group: all_gather_single(b.target, b.source, group=group),
            part_in=True,
            expected=lambda rank, n, numel: torch.cat([pattern(r, numel // n) for r in range(n)]),
        ),
        Collective(
            "all_to_all",
            run=lambda b, group: dist.all_to_all_single(b.target, b.source, group=group),
            expected=lambda rank, n, numel: torch.cat(
                [_share(pattern(src, numel), rank, n) for src in range(n)]
            ),
        ),
        Collective(
            "send",
            run=_send_to_next,
            expected=lambda rank, n, numel: pattern(rank - 1, numel) if rank % 2 else None,
        ),
    )
}
"""Every collective by its name."""


def my_device() -> torch.device:
    """Return this rank's GPU if the default group has NCCL, else the CPU.

    As a context it makes new tensors there: ``with my_device(): x = torch.ones(4)``.
    """
    if "nccl" in dist.get_backend_config():
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cpu")


def carrier(world_size: int) -> str:
    """Return ``"nccl"`` or ``"gloo"``: what carries the tensors of `my_device` in a launch."""
    return "nccl" if "nccl" in default_backend(world_size) else "gloo"


def ping_pong(nbytes: int, *, iters: int = 24) -> list[float]:
    """Send a tensor to and fro between ranks 0 and 1; runs on every rank, further ones look on.

    Returns:
        Seconds *one way*, half of each round trip. Rank 0's are the ones to use: the others cannot
        know when it sent.
    """
    rank, ball = dist.get_rank(), torch.zeros(nbytes, dtype=torch.uint8, device=my_device())

    def round_trip() -> None:
        if rank == 0:
            dist.send(ball, dst=1)
            dist.recv(ball, src=1)
        elif rank == 1:
            dist.recv(ball, src=0)
            dist.send(ball, dst=0)

    return [t / 2 for t in timing.time_calls(round_trip, warmup=3, iters=iters)]
