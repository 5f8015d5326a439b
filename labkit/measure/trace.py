"""Write down what a rank does, and when, on one clock for all ranks.

A `Tracer` lives inside a rank. It records spans: stretches of time with a name and a kind. What the
rank returns, `Tracer.trace()`, is plain data; `labkit.measure.timeline.Timeline` puts the traces of
all ranks side by side and answers the questions.

The clock: ranks under one Linux kernel share it already, since ``time.perf_counter`` reads
CLOCK_MONOTONIC, which is one for all CPUs and for all processes of a time namespace. Ranks under
different kernels estimate the offset from barriers: the moment at which the last rank arrives lies
between begin and end of the call on every rank.

On a GPU Python only queues work. There a span's ends are CUDA events, which the GPU stamps when its
stream gets to them; the stamps are put on the same clock when the trace is asked for. A launched
collective of tensors that lie on the CPU is none of the GPU's work, and is timed by the clock.
"""

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.ranks.devices import barrier, device


class Kind(StrEnum):
    """What a rank was doing during a span."""

    INPUT = "input"  # fetching the next batch
    COMPUTE = "compute"  # forward, backward, optimiser
    PACK = "pack"  # copying tensors into or out of a flat buffer
    COLLECTIVE = "collective"
    """Inside a collective: waiting for the others and moving bytes, not yet told apart."""
    WAIT = "wait"
    """Waiting: for the last rank to arrive, or for a collective that was launched earlier."""
    MOVE = "move"  # moving bytes: every rank has arrived and the collective is running


Moment = float | torch.cuda.Event
"""A time in seconds on the common clock, or on a GPU an event that will tell one."""
MAIN = "main"  # the channel of the rank's own Python thread. One span at a time
NETWORK = "network"  # the channel of collectives that run while the Python thread goes on


@dataclass(frozen=True, slots=True)
class Clock:
    """How to read this rank's ``time.perf_counter()`` on rank 0's clock."""

    offset: float  # seconds to add to this rank's reading
    error: float  # the true offset lies within plus or minus this many seconds

    def now(self) -> float:
        """Return the present time in seconds on rank 0's clock."""
        return time.perf_counter() + self.offset


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of one rank's time."""

    rank: int
    name: str
    kind: Kind
    begin: float  # seconds on the common clock
    end: float
    channel: str = MAIN
    step: int = 0  # the training step, as counted by `Tracer.next_step`
    call: int | None = None
    """For a collective: its number among those of its group that this rank traced."""
    nbytes: int | None = None
    ranks: tuple[int, ...] = ()  # for a collective of some ranks only: which

    @property
    def seconds(self) -> float:
        """The span's length in seconds."""
        return self.end - self.begin


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds that pairs ``(begin, end)`` cover, counting none of them twice.

    Time in A and not in B is ``covered(A + B) - covered(B)``; time in both,
    ``covered(A) + covered(B) - covered(A + B)``.

    Example:
        >>> covered([(3, 4), (0, 2), (1, 3)])
        4.0
    """
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


@dataclass(frozen=True, slots=True)
class RankTrace:
    """All that one rank wrote down."""

    rank: int
    clock: Clock
    spans: tuple[Span, ...]


class Launched:
    """A collective that runs in the background. ``wait`` records the time it costs to wait."""

    def __init__(self, tracer: "Tracer", work: dist.Work, name: str, number: dict[str, Any]):
        self.work, self._tracer, self._name, self.number = work, tracer, name, number

    def wait(self) -> None:
        """Wait until the collective is done; the time spent here is exposed communication."""
        with self._tracer.span(f"wait {self._name}", Kind.WAIT, **self.number):
            self.work.wait()


class Tracer:
    """Record spans inside a rank.

        tracer = Tracer.aligned()
        with tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        with tracer.collective("gradients", nbytes=flat.nbytes):
            dist.all_reduce(flat)
        return tracer.trace()

    A span within another interrupts it. `DistributedDataParallel` calls from C++, where no span can
    be put around: give it `ddp_hook`.
    """

    def __init__(self, clock: Clock, rank: int):
        self.clock, self.rank, self.step = clock, rank, 0
        self._device = device() if dist.is_initialized() else torch.device("cpu")
        self._zero: tuple[torch.cuda.Event, float] | None = None
        """On a GPU: an event, and its time on the clock that all ranks share."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self._zero = _mark(self._device), clock.now()
            torch.cuda.synchronize(self._device)
        self._buckets: list[torch.futures.Future[Any]] = []
        self._spans: list[tuple[Moment, Moment, dict[str, Any]]] = []
        """Begin, end and the other fields of each span."""
        self._calls: Counter[tuple[int, ...]] = Counter()
        self._running = 0
        self._idle = threading.Condition()

    @classmethod
    def aligned(cls) -> "Tracer":
        """Agree on a clock with the other ranks (a collective) and start with all of them."""
        clock = _agree()
        barrier()
        return cls(clock, dist.get_rank())

    def next_step(self) -> None:
        """Count what follows to the next training step."""
        self.step += 1

    @contextmanager
    def span(self, name: str, kind: Kind, **fields: Any) -> Iterator[None]:
        """Record the block as one span on the main channel; the other fields as in `Span`."""
        begin = self._now()
        try:
            yield
        finally:
            self.record(name, kind, begin, self._now(), **fields)

    def record(self, name: str, kind: Kind, begin: Moment, end: Moment, **fields: Any) -> None:
        """Record a span from times that were read from ``clock.now()``; fields as in `Span`."""
        fields = {"step": self.step} | fields
        self._spans.append((begin, end, {"rank": self.rank, "name": name, "kind": kind, **fields}))

    def collective(
        self, name: str, *, nbytes: int | None = None, group: dist.ProcessGroup | None = None
    ) -> AbstractContextManager[None]:
        """Record a blocking collective.

        Every rank of the group (None: of the job) traces its collectives, in one order.
        """
        return self.span(name, Kind.COLLECTIVE, nbytes=nbytes, **self._next_call(group))

    def launch(
        self,
        name: str,
        start: Callable[[], dist.Work],
        *,
        nbytes: int | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> Launched:
        """Start a collective in the background and record it on the network channel.

        ``start`` returns the Work, as ``lambda: dist.all_reduce(t, async_op=True)`` does. The span
        ends when the backend says that it is done, whether or not anybody waits for what is
        returned. `group` as for `collective`.
        """
        number, begin = self._next_call(group), self._begin()
        work = start()
        fields = {"channel": NETWORK, "step": self.step, "nbytes": nbytes, **number}
        self._record_at_end(work.get_future(), name, Kind.COLLECTIVE, begin, **fields)
        return Launched(self, work, name, number)

    def _begin(self) -> tuple[Moment, float]:
        """Return the present moment of what lies on this rank's device, and by the clock."""
        return self._now(), self.clock.now()

    def _record_at_end(
        self,
        future: torch.futures.Future[Any],
        name: str,
        kind: Kind,
        begin: tuple[Moment, float],
        **fields: Any,
    ) -> None:
        with self._idle:
            self._running += 1

        def done(ended: torch.futures.Future[Any]) -> None:
            # First of all, as what follows may wait for the interpreter's lock. For NCCL torch runs
            # this at once, on a stream that waits for the work: an event there marks its end. For
            # gloo it runs on a thread of gloo's, whose current GPU is not this rank's.
            end = self.clock.now()
            span: tuple[Moment, Moment] = (begin[1], end)
            if self._zero and not _is_on_cpu(ended):
                span = (begin[0], self._now())
            with self._idle:
                self.record(name, kind, *span, **fields)
                self._running -= 1
                self._idle.notify_all()

        future.add_done_callback(done)

    def ddp_hook(
        self, group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket of gradients over DDP's group, as DDP does by itself, and record it.

            model = DistributedDataParallel(...)
            model.register_comm_hook(None, tracer.ddp_hook)

        DDP waits for its buckets at the end of ``backward()``: from the last bucket's start to the
        last one's end is recorded as waiting.
        """
        buffer = bucket.buffer().div_(dist.get_world_size(group))
        start = functools.partial(dist.all_reduce, buffer, group=group, async_op=True)
        name = f"bucket {bucket.index()}"
        launched = self.launch(name, start, nbytes=buffer.nbytes, group=group)
        future = launched.work.get_future()
        self._buckets.append(future)
        if bucket.is_last():
            everything, self._buckets = torch.futures.collect_all(self._buckets), []
            fields = {"step": self.step, **launched.number}
            begin = self._begin()
            self._record_at_end(everything, "wait for buckets", Kind.WAIT, begin, **fields)
        return future.then(lambda future: future.value()[0])

    def trace(self, *, timeout: float = 10.0) -> RankTrace:
        """Return what was recorded, once the launched collectives have ended."""
        with self._idle:
            if not self._idle.wait_for(lambda: self._running == 0, timeout):
                raise RuntimeError(
                    f"rank {self.rank}: {self._running} launched collectives have not ended after "
                    f"{timeout} s. Wait for each of them before you ask for the trace."
                )
        spans = [
            Span(begin=self._read(begin), end=self._read(end), **fields)
            for begin, end, fields in self._spans
        ]
        spans.sort(key=lambda span: (span.begin, span.end))
        return RankTrace(self.rank, self.clock, tuple(spans))

    def _next_call(self, group: dist.ProcessGroup | None) -> dict[str, Any]:
        """Number a collective among those of its group."""
        ranks = () if group is None else tuple(dist.get_process_group_ranks(group))
        self._calls[ranks] += 1
        return {"call": self._calls[ranks] - 1, "ranks": ranks}

    def _now(self) -> Moment:
        return _mark(self._device) if self._zero else self.clock.now()

    def _read(self, moment: Moment) -> float:
        """Return a moment in seconds on the common clock, once the GPU has come to it."""
        if isinstance(moment, torch.cuda.Event) and self._zero:
            moment.synchronize()
            event, seconds = self._zero
            return seconds + event.elapsed_time(moment) / 1e3
        assert isinstance(moment, float), "without a GPU all moments are seconds"
        return moment


def _mark(gpu: torch.device) -> torch.cuda.Event:
    """Put an event into that GPU's current stream, whichever GPU is this thread's current one.

    Times of events of two GPUs cannot be compared, and a new thread's current GPU is the first one.
    """
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(gpu))
    return event


def _is_on_cpu(ended: torch.futures.Future[Any]) -> bool:
    """Say whether a collective that has ended, or all of several, had tensors on the CPU alone."""
    try:
        parts = ended.value()
    except RuntimeError:  # it failed: who waits for it is told
        return True
    if not isinstance(parts, list) or not parts:
        return False
    return all(
        part.device.type == "cpu" if isinstance(part, torch.Tensor) else _is_on_cpu(part)
        for part in parts
    )


def _agree() -> Clock:
    """Agree on rank 0's clock: a collective. Each of 20 barriers narrows the error down.

    Under one kernel it is the timer's resolution; over a network, about the fastest barrier's time.
    """
    identities: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(identities, _kernel_identity())
    if identities[0] is not None and len(set(identities)) == 1:
        return Clock(0.0, time.get_clock_info("perf_counter").resolution)
    mine = []
    for _ in range(21):  # the first opens connections
        begin = time.perf_counter()
        barrier()
        mine.append((begin, time.perf_counter()))
    theirs = [mine]
    dist.broadcast_object_list(theirs, 0)
    pairs = list(zip(theirs[0], mine, strict=True))
    # The last arrival is between begin and end on both clocks, which bounds their difference.
    least = max(begin - end for (begin, _), (_, end) in pairs)
    most = min(end - begin for (_, end), (begin, _) in pairs)
    return Clock((least + most) / 2, (most - least) / 2)


def _kernel_identity() -> str | None:
    """Name the clock that this process reads; None where it cannot be named (not Linux)."""
    boot, offsets = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/timens_offsets")
    try:
        return boot.read_text() + (offsets.read_text() if offsets.exists() else "")
    except OSError:
        return None
