"""Transfers between ranks, beside the computing: in strict queues, or in whatever order they can.

Both classes take the same three calls: `put` hands over what others wait for and returns at once,
`take` waits for what one needs, `close` waits for the rest. They differ in one thing: what a
transfer has to wait for.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p.schedules import Transfer

RECEIPT = 1  # a tag; the transfers themselves have 0
Batches = Sequence[Sequence[Transfer]]


class Queues:
    """Transfers in order, as in NCCL's streams: one queue, one order, no overtaking.

    Each queue has a thread that works through batches: a batch starts when all that it sends is
    there, and the next is looked at when it is done. So one whose data come late holds up all that
    stand behind it. A send keeps its queue until the receiver has the bytes, as an NCCL
    kernel keeps its stream: the receiver sends a receipt. gloo alone would let go once the kernel's
    socket buffer holds them.

    Args:
        queues: Each queue's batches in order, by name.
        like: A tensor of the shape and type of every transfer.
        groups: What carries a queue; the default group, if not given. Two queues between the same
            two ranks need two groups.
    """

    def __init__(
        self,
        queues: Mapping[Hashable, Batches],
        *,
        like: torch.Tensor,
        groups: Mapping[Hashable, dist.ProcessGroup] | None = None,
    ) -> None:
        self.times: dict[Transfer, tuple[float, float]] = {}
        """Per transfer, when this rank started and finished it (seconds of the kernel's clock)."""
        self._rank, self._like = dist.get_rank(), like
        self._tensors: dict[Transfer, Future] = defaultdict(Future)
        self._receipts: list[tuple[dist.Work, torch.Tensor]] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(queues)))
        self._running = [
            self._pool.submit(self._run, batches, (groups or {}).get(name))
            for name, batches in queues.items()
        ]

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

    def _run(self, batches: Batches, group: dist.ProcessGroup | None) -> None:
        try:
            for batch in batches:
                self._move(batch, group)
        except BaseException as error:  # nobody shall wait for what will never come
            for transfer in (transfer for batch in batches for transfer in batch):
                if not self._slot(transfer).done():
                    self._slot(transfer).set_exception(error)
            raise

    def _move(self, batch: Sequence[Transfer], group: dist.ProcessGroup | None) -> None:
        """Start all of a batch when what it sends is there; return when all of it is done."""
        leaving = {t: self._slot(t).result() for t in batch if t.src == self._rank}
        arriving = {t: torch.empty_like(self._like) for t in batch if t.dst == self._rank}
        begin = time.perf_counter()
        works = {t: dist.irecv(tensor, t.src, group) for t, tensor in arriving.items()}
        works |= {t: dist.isend(tensor, t.dst, group) for t, tensor in leaving.items()}
        for transfer, work in works.items():  # receives first: their senders wait for receipts
            work.wait()
            receipt = torch.ones(1, dtype=torch.uint8)
            if transfer in leaving:
                dist.recv(receipt, transfer.dst, group, tag=RECEIPT)
            else:  # waited for in `close`: its sender may still wait for the rest of its batch
                sent = dist.isend(receipt, transfer.src, group, tag=RECEIPT)
                self._receipts.append((sent, receipt))
            self.times[transfer] = (begin, time.perf_counter())
        for transfer, tensor in arriving.items():  # as NCCL's: a batch is done as a whole
            self._slot(transfer).set_result(tensor)


class Mailbox:
    """Transfers in whatever order they can: receives posted early, matched by key, with credits.

    The receiver posts a buffer for each of the next `credits` transfers of every sender, in the
    order in which it is going to use them. When it takes one, it posts the next. gloo moves no byte
    before the buffer is posted, so a posted buffer *is* the sender's credit: a fast sender cannot
    flood a slow receiver, and memory is bounded by credits x senders x bytes.

    Why it cannot deadlock by itself: the transfer that the receiver will use next always has a
    buffer, and no transfer waits for another one.

    Args:
        incoming: The transfers to this rank, in the order in which it will take them.
        tags: A number for every transfer, the same on both ends.
        like: A tensor of the shape and type of every transfer.
        credits: Buffers per sender, at least 1.
    """

    def __init__(
        self,
        incoming: Sequence[Transfer],
        *,
        tags: Mapping[Transfer, int],
        like: torch.Tensor,
        credits: int = 2,
    ) -> None:
        if credits < 1:
            raise ValueError(f"credits={credits}: a sender needs at least 1 buffer to send into.")
        self.times: dict[Transfer, tuple[float, float]] = {}
        """Per transfer, when this rank sent it or posted its buffer, and when it was done."""
        self._tags, self._like = tags, like
        self._unposted: dict[int, deque[Transfer]] = defaultdict(deque)
        for transfer in incoming:
            self._unposted[transfer.src].append(transfer)
        self._arriving: dict[Transfer, Future] = {}
        self._sent: list[tuple[dist.Work, torch.Tensor]] = []
        self._pool = ThreadPoolExecutor(max_workers=max(1, credits * len(self._unposted)))
        for src in self._unposted:
            for _ in range(credits):
                self._post_next(src)

    def put(self, transfer: Transfer, tensor: torch.Tensor) -> None:
        """Send; do not touch the tensor before `close`."""
        begin = time.perf_counter()
        self._sent.append((dist.isend(tensor, transfer.dst, tag=self._tags[transfer]), tensor))
        self.times[transfer] = (begin, begin)

    def take(self, transfer: Transfer) -> torch.Tensor:
        """Wait for what comes to this rank, then give its buffer's credit to the sender's next."""
        tensor = self._arriving.pop(transfer).result()
        self._post_next(transfer.src)
        return tensor

    def close(self) -> None:
        """Wait until everything that was put has been received."""
        for work, _ in self._sent:
            work.wait()
        self._pool.shutdown()

    def _post_next(self, src: int) -> None:
        if not self._unposted[src]:
            return
        transfer = self._unposted[src].popleft()
        buffer = torch.empty_like(self._like)
        begin = time.perf_counter()
        work = dist.irecv(buffer, src, tag=self._tags[transfer])
        self._arriving[transfer] = self._pool.submit(self._arrive, transfer, work, buffer, begin)

    def _arrive(self, transfer: Transfer, work, buffer: torch.Tensor, begin: float) -> torch.Tensor:
        work.wait()
        self.times[transfer] = (begin, time.perf_counter())
        return buffer
