"""Transfers between ranks, beside the computing, in queues: one for all, or one for each."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

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


class Queues:
    """Transfers in order, as in NCCL's streams: no overtaking within a queue.

    `put` hands over what others wait for and returns at once, `take` waits for what one needs,
    `close` for the rest. Each queue has a thread that works through batches: a batch starts when
    all that it sends is there, and the next is looked at when it is done. So one whose data come
    late holds up all that stand behind it. A send keeps its queue until the receiver has the
    bytes, as an NCCL kernel keeps its stream: the receiver sends a receipt. gloo alone would let
    go once the kernel's socket buffer holds them.

    Args:
        queues: Each queue's batches in order. A queue's number, the same on all ranks, is its tag:
            messages of one queue cannot be taken for those of another one.
        like: A tensor of the shape and type of every transfer.
        in_line: What each queue's thread runs.
    """

    def __init__(
        self,
        queues: Mapping[int, Batches],
        *,
        like: torch.Tensor,
        in_line: Callable[..., None] = work_in_line,
    ) -> None:
        self.times: dict[Transfer, tuple[float, float]] = {}
        """Per transfer, when this rank started and finished it (seconds of the kernel's clock)."""
        self._like, self._in_line = like, in_line
        every = (t for batches in queues.values() for batch in batches for t in batch)
        self._slots: dict[Transfer, Future] = {transfer: Future() for transfer in every}
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(queues)))
        self._running = [
            self._pool.submit(self._run, number, batches) for number, batches in queues.items()
        ]

    def put(self, transfer: Transfer, tensor: torch.Tensor) -> None:
        """Hand over what this rank sends; do not touch the tensor before `close`."""
        self._slots[transfer].set_result(tensor)

    def take(self, transfer: Transfer) -> torch.Tensor:
        """Wait for what comes to this rank."""
        return self._slots[transfer].result()

    def close(self) -> None:
        """Wait until every batch is done. Raises what went wrong in a queue, if anything did."""
        for running in self._running:
            running.result()
        self._pool.shutdown()

    def _run(self, number: int, batches: Batches) -> None:
        slot = self._slots.__getitem__
        try:
            self._in_line(batches, slot, like=self._like, tag=2 * number, times=self.times)
        except BaseException as error:  # nobody shall wait for what will never come
            for slot in self._slots.values():
                if not slot.done():
                    slot.set_exception(error)
            raise
