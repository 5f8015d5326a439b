"""Transfers between ranks, beside the computing: in strict queues, or in whatever order they can.

Both classes take the same three calls: `put` hands over what others wait for and returns at once,
`take` waits for what one needs, `close` waits for the rest. They differ in one thing: what a
transfer has to wait for.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p.schedules import Transfer

RECEIPT = 1  # a tag; the transfers themselves have 0
Batches = Sequence[Sequence[Transfer]]


def in_order(batches: Batches, made: Callable, room: Callable, done: Callable, group=None) -> None:
    """Work through batches of transfers, one after the other: the queue that blocks.

    A batch starts when all that it sends is there, and the next is looked at when it is done. So a
    batch whose data come late holds up all that stand behind it: head-of-line blocking. If two
    ranks put the same transfers in different orders, they wait for each other for ever.

    Args:
        batches: The transfers, in order.
        made: made(transfer) waits until this rank has computed what it sends, and returns it.
        room: room(transfer) returns a tensor to receive into.
        done: done(transfer), called when its work has ended, tells the sender that it came, or
            waits until the receiver tells so. After a batch's last one its tensors can be used.
        group: The process group; None: the default group.
    """
    rank = dist.get_rank()
    for batch in batches:
        leaving = {t: made(t) for t in batch if t.src == rank}
        arriving = {t: room(t) for t in batch if t.dst == rank}
        works = {t: dist.irecv(tensor, t.src, group) for t, tensor in arriving.items()}
        works |= {t: dist.isend(tensor, t.dst, group) for t, tensor in leaving.items()}
        for transfer, work in works.items():
            work.wait()
            done(transfer)


class Queues:
    """Transfers in order, as in NCCL's streams: one queue, one order, no overtaking.

    Each queue has a thread. A send keeps its queue until the receiver has the bytes, as an NCCL
    kernel keeps its stream: the receiver sends a receipt. gloo alone would let go once the kernel's
    socket buffer holds them.

    Args:
        queues: Each queue's batches in order, by name.
        like: A tensor of the shape and type of every transfer.
        groups: What carries a queue; the default group, if not given. Two queues between the same
            two ranks need two groups.
        work: What works through a queue; see `in_order`.
    """

    def __init__(
        self,
        queues: Mapping[Hashable, Batches],
        *,
        like: torch.Tensor,
        groups: Mapping[Hashable, dist.ProcessGroup] | None = None,
        work: Callable = in_order,
    ) -> None:
        self.times: dict[Transfer, tuple[float, float]] = {}
        """Per transfer, when this rank started and finished it (seconds of the kernel's clock)."""
        self._rank, self._like = dist.get_rank(), like
        self._tensors: dict[Transfer, Future] = defaultdict(Future)
        self._rooms: dict[Transfer, torch.Tensor] = {}
        self._finished: set[Transfer] = set()
        self._receipts: list[tuple[dist.Work, torch.Tensor]] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(queues)))
        self._running = [
            self._pool.submit(self._run, work, batches, (groups or {}).get(name))
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

    def _run(self, work: Callable, batches: Batches, group) -> None:
        done = partial(self._done, group, {t: batch for batch in batches for t in batch})
        more = {} if group is None else {"group": group}
        try:
            work(batches, self._made, self._room, done, **more)
        except BaseException as error:  # nobody shall wait for what will never come
            for transfer in (transfer for batch in batches for transfer in batch):
                if not self._slot(transfer).done():
                    self._slot(transfer).set_exception(error)
            raise

    def _made(self, transfer: Transfer) -> torch.Tensor:
        tensor = self._slot(transfer).result()
        self._begins(transfer)
        return tensor

    def _room(self, transfer: Transfer) -> torch.Tensor:
        self._begins(transfer)
        return self._rooms.setdefault(transfer, torch.empty_like(self._like))

    def _begins(self, transfer: Transfer) -> None:
        self.times[transfer] = (time.perf_counter(),) * 2

    def _done(self, group, batch_of: Mapping[Transfer, Sequence], transfer: Transfer) -> None:
        receipt = torch.ones(1, dtype=torch.uint8)
        if transfer.src == self._rank:
            dist.recv(receipt, transfer.dst, group, tag=RECEIPT)
        else:  # waited for in `close`: its sender may still wait for the rest of its batch
            receipting = dist.isend(receipt, transfer.src, group, tag=RECEIPT)
            self._receipts.append((receipting, receipt))
            self.times[transfer] = (self.times[transfer][0], time.perf_counter())
        self._finished.add(transfer)
        batch = batch_of[transfer]
        if self._finished.issuperset(batch):  # as NCCL's: a batch is done as a whole
            for arrived in (t for t in batch if t.dst == self._rank):
                self._slot(arrived).set_result(self._rooms.pop(arrived))


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
