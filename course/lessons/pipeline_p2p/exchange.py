"""Transfers between ranks, beside the computing, in queues: one for all, or one for each."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p.schedules import Transfer

Batches = Sequence[Sequence[Transfer]]


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
    """

    def __init__(self, queues: Mapping[int, Batches], *, like: torch.Tensor) -> None:
        self.times: dict[Transfer, tuple[float, float]] = {}
        """Per transfer, when this rank started and finished it (seconds of the kernel's clock)."""
        self._rank, self._like = dist.get_rank(), like
        self._tensors: dict[Transfer, Future] = defaultdict(Future)
        self._receipts: list[tuple[dist.Work, torch.Tensor]] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(queues)))
        self._running = [self._pool.submit(self._run, q, number) for number, q in queues.items()]

    def put(self, transfer: Transfer, tensor: torch.Tensor) -> None:
        """Hand over what this rank sends; do not touch the tensor before `close`."""
        self._slot(transfer).set_result(tensor)

    def take(self, transfer: Transfer) -> torch.Tensor:
        """Wait for what comes to this rank."""
        return self._slot(transfer).result()

    def close(self) -> None:
        """Wait until every batch is done. Raises what went wrong in a queue, if anything did."""
        for running in self._running:
            running.result()
        for work, _ in self._receipts:
            work.wait()
        self._pool.shutdown()

    def _slot(self, transfer: Transfer) -> Future:
        with self._lock:
            return self._tensors[transfer]

    def _run(self, batches: Batches, number: int) -> None:
        try:
            for batch in batches:
                self._move(batch, 2 * number)
        except BaseException as error:  # nobody shall wait for what will never come
            for transfer in (transfer for batch in batches for transfer in batch):
                if not self._slot(transfer).done():
                    self._slot(transfer).set_exception(error)
            raise

    def _move(self, batch: Sequence[Transfer], tag: int) -> None:
        """Start all of a batch when what it sends is there; return when all of it is done."""
        leaving = {t: self._slot(t).result() for t in batch if t.src == self._rank}
        arriving = {t: torch.empty_like(self._like) for t in batch if t.dst == self._rank}
        begin = time.perf_counter()
        works = {t: dist.irecv(tensor, t.src, tag=tag) for t, tensor in arriving.items()}
        works |= {t: dist.isend(tensor, t.dst, tag=tag) for t, tensor in leaving.items()}
        for transfer, work in works.items():  # receives first: their senders wait for receipts
            work.wait()
            receipt = torch.ones(1, dtype=torch.uint8)
            if transfer in leaving:
                dist.recv(receipt, transfer.dst, tag=tag + 1)
            else:  # waited for in `close`: its sender may still wait for the rest of its batch
                sent = dist.isend(receipt, transfer.src, tag=tag + 1)
                self._receipts.append((sent, receipt))
            self.times[transfer] = (begin, time.perf_counter())
        for transfer, tensor in arriving.items():  # as NCCL's: a batch is done as a whole
            self._slot(transfer).set_result(tensor)
