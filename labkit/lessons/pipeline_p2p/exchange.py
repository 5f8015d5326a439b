"""Transfers between ranks, beside the computing: in strict lanes, or in whatever order they can.

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

from labkit.lessons.pipeline_p2p.schedules import Transfer

DATA, DONE = 0, 1  # tags


class Lanes:
    """Transfers in order, as on NCCL's communicators: one lane, one order, no overtaking.

    Each lane has a thread that works through its batches: it waits until everything that the batch
    sends was `put`, starts the batch, waits until it is done, and only then looks at the next. So a
    batch whose data come late holds up all that stand behind it: head-of-line blocking. If two
    ranks put the same transfers in different orders, they wait for each other for ever.

    A send keeps its lane until the receiver has the bytes, as an NCCL kernel keeps its stream: the
    receiver says "done". gloo alone would let go once the kernel's socket buffer holds them.

    Args:
        lanes: Per lane, its batches in order; a batch is a sequence of transfers.
        like: A tensor of the shape and type of every transfer.
        groups: Per lane, the process group that carries it; None: the default group. Two lanes
            between the same two ranks need two groups.
    """

    def __init__(
        self,
        lanes: Mapping[Hashable, Sequence[Sequence[Transfer]]],
        *,
        like: torch.Tensor,
        groups: Mapping[Hashable, dist.ProcessGroup] | None = None,
    ) -> None:
        self.times: dict[Transfer, tuple[float, float]] = {}
        """Per transfer, when this rank started and finished it (seconds of the kernel's clock)."""
        self._rank, self._like = dist.get_rank(), like
        self._tensors: dict[Transfer, Future] = defaultdict(Future)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(lanes)))
        self._work = [
            self._pool.submit(self._carry, batches, (groups or {}).get(lane))
            for lane, batches in lanes.items()
        ]

    def put(self, transfer: Transfer, tensor: torch.Tensor) -> None:
        """Hand over what this rank sends; do not touch the tensor before `close`."""
        self._slot(transfer).set_result(tensor)

    def take(self, transfer: Transfer) -> torch.Tensor:
        """Wait for what comes to this rank."""
        return self._slot(transfer).result()

    def close(self) -> None:
        """Wait until every batch is done. Raises what went wrong in a lane, if anything did."""
        for work in self._work:
            work.result()
        self._pool.shutdown()

    def _slot(self, transfer: Transfer) -> Future:
        with self._lock:
            return self._tensors[transfer]

    def _carry(self, batches: Sequence[Sequence[Transfer]], group) -> None:
        try:
            for batch in batches:
                self._carry_one(batch, group)
        except BaseException as error:  # nobody shall wait for what will never come
            for transfer in (transfer for batch in batches for transfer in batch):
                if not self._slot(transfer).done():
                    self._slot(transfer).set_exception(error)
            raise

    def _carry_one(self, batch: Sequence[Transfer], group) -> None:
        sent = {m: self._slot(m).result() for m in batch if self._sends(m)}
        received = {m: torch.empty_like(self._like) for m in batch if not self._sends(m)}
        begin = time.perf_counter()
        # Receives first: gloo tells the sender that a buffer is ready on the connection that also
        # carries our own bytes the other way; behind them, the notice would come too late.
        arriving = [(m, dist.irecv(received[m], m.src, group, tag=DATA)) for m in received]
        done = torch.empty(len(sent), dtype=torch.uint8)
        leaving = [dist.irecv(done[i], m.dst, group, tag=DONE) for i, m in enumerate(sent)]
        leaving += [dist.isend(tensor, m.dst, group, tag=DATA) for m, tensor in sent.items()]
        ends = {}
        for transfer, work in arriving:
            work.wait()
            ends[transfer] = time.perf_counter()
            leaving.append(
                dist.isend(torch.ones(1, dtype=torch.uint8), transfer.src, group, tag=DONE)
            )
        for work in leaving:
            work.wait()
        end = time.perf_counter()
        for transfer in batch:
            self.times[transfer] = (begin, ends.get(transfer, end))
        for transfer, tensor in received.items():
            self._slot(transfer).set_result(tensor)

    def _sends(self, transfer: Transfer) -> bool:
        return transfer.src == self._rank


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
