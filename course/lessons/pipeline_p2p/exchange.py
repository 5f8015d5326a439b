"""Transfers between ranks, beside the computing, in queues: one for all, or one for each.

As in NCCL's streams nothing overtakes within a queue: a batch starts when all that it sends is
there, and the next is looked at when it is done. So one whose data come late holds up all behind
it. A send keeps its queue until the receiver has the bytes, as an NCCL kernel keeps its stream: the
receiver sends a receipt. gloo alone would let go once the kernel's socket buffer holds them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p.schedules import Transfer

Batches = Sequence[Sequence[Transfer]]


def work_in_line(
    entries: Batches,
    slot: Callable[[Transfer], Future],
    *,
    like: torch.Tensor,
    tag: int,
    times: dict[Transfer, tuple[float, float]],
) -> None:
    """Work through one queue of this rank: an entry begins when the one before it has ended.

    A slot holds what a transfer sends once it is computed, or what has come by it. The messages
    bear `tag`, their receipts the next one. Lesson 05 shows this function, for the learner to
    change.
    """
    rank = dist.get_rank()
    receipts = []
    for entry in entries:  # one transfer, or a batch of them
        leaving = {t: slot(t).result() for t in entry if t.src == rank}  # waits for its task
        arriving = {t: torch.empty_like(like) for t in entry if t.dst == rank}
        begin = time.perf_counter()
        works = {t: dist.irecv(tensor, t.src, tag=tag) for t, tensor in arriving.items()}
        works |= {t: dist.isend(tensor, t.dst, tag=tag) for t, tensor in leaving.items()}
        for t, work in works.items():  # receives first: their senders wait for receipts
            work.wait()
            receipt = torch.ones(1, dtype=torch.uint8)
            if t in leaving:  # a send ends when its receiver says so
                dist.recv(receipt, t.dst, tag=tag + 1)
            else:  # waited for at the end: its sender may still wait for the rest of its batch
                receipts.append((dist.isend(receipt, t.src, tag=tag + 1), receipt))
            times[t] = (begin, time.perf_counter())
        for t, tensor in arriving.items():  # as NCCL's: a batch is done as a whole
            slot(t).set_result(tensor)
    for work, _ in receipts:
        work.wait()


def work_through(
    entries: Batches, slots: Mapping[Transfer, Future], in_line: Callable[..., None], **given: Any
) -> None:
    """Work through one queue, on a thread of its own; hand an error to whoever waits for a slot."""
    try:
        in_line(entries, slots.__getitem__, **given)
    except BaseException as error:
        for slot in slots.values():
            if not slot.done():
                slot.set_exception(error)
        raise
