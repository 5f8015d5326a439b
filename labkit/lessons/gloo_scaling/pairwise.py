"""Ways for two partners to sum their tensors, from the asker's loop to shared memory.

Each way is a function ``way(tensors, pair)`` that replaces every tensor, in place, by the sum of
both partners' tensors. They are meant to be read: the differences between them are the lesson.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

Way = Callable[[list[torch.Tensor], "Pair"], None]


@dataclass(slots=True)
class Pair:
    """Two consecutive ranks, 2k and 2k + 1, seen from one of them."""

    index: int
    partner: int
    """The other one's rank in the default group."""
    group: Any
    """The process group of just these two."""

    @classmethod
    def of(cls, rank: int, world_size: int) -> Pair:
        """Create the groups of all pairs, which is collective over all ranks, and return ours.

        Raises:
            ValueError: If the number of ranks is odd: somebody would have no partner.
        """
        if world_size % 2:
            raise ValueError(f"pairs need an even world_size, got {world_size}.")
        groups = [dist.new_group([first, first + 1]) for first in range(0, world_size, 2)]
        return cls(rank // 2, rank ^ 1, groups[rank // 2])


def blocking(tensors: list[torch.Tensor], pair: Pair) -> None:
    """Sum one tensor after the other and wait for each: what the asker did."""
    for tensor in tensors:
        dist.all_reduce(tensor, group=pair.group)


def asynchronous(tensors: list[torch.Tensor], pair: Pair) -> None:
    """Start all sums, then wait for all: still one call per tensor, but no idling between them."""
    works = [dist.all_reduce(tensor, group=pair.group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def fused(tensors: list[torch.Tensor], pair: Pair) -> None:
    """Copy all tensors into one, sum that in a single call, and copy the results back."""
    flat = _flatten_dense_tensors(tensors)
    dist.all_reduce(flat, group=pair.group)
    # One call each for all tensors: a Python loop over 1024 of them would cost more than the sum.
    torch._foreach_copy_(tensors, _unflatten_dense_tensors(flat, tensors))


def one_group(tensors: list[torch.Tensor], pair: Pair) -> None:
    """Swap each tensor with the partner in the default group and add: no group per pair."""
    received = [torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
    for tensor, theirs in zip(tensors, received, strict=True):
        swap = [
            dist.P2POp(dist.isend, tensor.contiguous(), pair.partner),
            dist.P2POp(dist.irecv, theirs, pair.partner),
        ]
        for work in dist.batch_isend_irecv(swap):
            work.wait()
    for tensor, theirs in zip(tensors, received, strict=True):
        tensor += theirs


def accumulated(tensors: list[torch.Tensor], pair: Pair) -> None:
    """Add the tensors up locally and sum once, as ``no_sync`` does over micro-batches.

    This answers another question: afterwards the first tensor holds the sum of *all* tensors of
    both partners, and the others are used up.
    """
    for tensor in tensors[1:]:
        tensors[0] += tensor
    dist.all_reduce(tensors[0], group=pair.group)


class SharedMemory:
    """Sums between partners on one machine, through memory that both of them see.

    Each partner has a slot in a shared mapping, and a pipe on which the other wakes it. A sum is:
    write your slot, wake the partner, wait to be woken, add the partner's slot. Slots alternate
    between two halves, so that a fast partner never overwrites what the slow one still reads. The
    kernel's pipe also makes the other's writes visible: no spinning, no memory fences of our own.
    """

    def __init__(self, pair: Pair, nbytes: int) -> None:
        """Meet the partner and map the memory.

        Args:
            pair: The two partners; both must call this.
            nbytes: Size of the largest tensor, in bytes.
        """
        self.me = dist.get_rank() % 2
        self.nbytes = max(64, -(-nbytes // 64) * 64)  # slots start where any dtype may
        self.turn = 0
        with _meeting_place(pair, self.me, 4 * self.nbytes) as folder:
            with (folder / "slots").open("r+b") as file:
                self.memory = mmap.mmap(file.fileno(), 4 * self.nbytes)
            self.wake, self.woken = self._pipes(folder)
            dist.barrier(group=pair.group)  # both have opened everything: the names may go

    def __call__(self, tensors: list[torch.Tensor], pair: Pair) -> None:
        """Sum every tensor with the partner's, one after the other.

        Raises:
            ValueError: If a tensor is larger than a slot.
        """
        for tensor in tensors:
            if tensor.nbytes > self.nbytes:
                raise ValueError(
                    f"a tensor of {tensor.nbytes} bytes does not fit into a slot of {self.nbytes}. "
                    "Make SharedMemory with the size of the largest tensor."
                )
            mine, theirs = self._slot(self.me, tensor), self._slot(1 - self.me, tensor)
            mine.copy_(tensor)
            os.write(self.wake, b"!")
            os.read(self.woken, 1)
            tensor += theirs
            self.turn = 1 - self.turn

    def _slot(self, owner: int, like: torch.Tensor) -> torch.Tensor:
        offset = (2 * self.turn + owner) * self.nbytes
        flat = torch.frombuffer(self.memory, dtype=like.dtype, count=like.numel(), offset=offset)
        return flat.view_as(like)

    def _pipes(self, folder: Path) -> tuple[int, int]:
        ends = {}
        for reader in (0, 1):  # the same order on both sides, or each would wait for the other
            flags = os.O_RDONLY if reader == self.me else os.O_WRONLY
            ends[reader] = os.open(folder / f"wake-{reader}", flags)
        return ends[1 - self.me], ends[self.me]


@contextlib.contextmanager
def _meeting_place(pair: Pair, me: int, nbytes: int) -> Iterator[Path]:
    """Yield a folder with a file of ``nbytes`` and two pipes; the first partner makes it."""
    name: list[str | None] = [None]
    with contextlib.ExitStack() as stack:
        if me == 0:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            with (Path(folder) / "slots").open("wb") as file:
                file.truncate(nbytes)
            for reader in (0, 1):
                os.mkfifo(Path(folder) / f"wake-{reader}")
            name[0] = folder
        dist.broadcast_object_list(name, src=2 * pair.index, group=pair.group)
        yield Path(name[0])


WAYS: dict[str, Way] = {
    "blocking": blocking,
    "one group": one_group,
    "async_op": asynchronous,
    "fused": fused,
}
"""The ways that keep the asker's semantics on any backend, from the question to the best answer."""
