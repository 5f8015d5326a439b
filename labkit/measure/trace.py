"""Write down what a rank does, and when, on one clock for all ranks.

A `Tracer` lives inside a rank. It records spans: stretches of time with a name and a kind. What
the rank returns, `Tracer.trace()`, is plain data; `labkit.measure.timeline.Timeline` puts the
traces of all ranks side by side and answers the questions.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import torch.distributed as dist

from labkit.measure.clock import Clock, agree


class Kind(StrEnum):
    """What a rank was doing during a span."""

    INPUT = "input"
    """Fetching the next batch."""
    COMPUTE = "compute"
    """Forward, backward, optimiser."""
    PACK = "pack"
    """Copying tensors into or out of a flat buffer."""
    COLLECTIVE = "collective"
    """Inside a collective: waiting for the others and moving bytes, not yet told apart."""
    WAIT = "wait"
    """Waiting: for the last rank to arrive, or for a collective that was launched earlier."""
    MOVE = "move"
    """Moving bytes: every rank has arrived and the collective is running."""


MAIN = "main"
"""The channel of the rank's own Python thread. One span at a time."""
NETWORK = "network"
"""The channel of collectives that run while the Python thread goes on."""


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of one rank's time."""

    rank: int
    name: str
    kind: Kind
    begin: float
    """Seconds on the common clock."""
    end: float
    channel: str = MAIN
    step: int = 0
    """The training step, as counted by `Tracer.next_step`."""
    call: int | None = None
    """For a collective: its number among the collectives that this rank traced."""
    nbytes: int | None = None

    @property
    def seconds(self) -> float:
        """The span's length in seconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class RankTrace:
    """All that one rank wrote down."""

    rank: int
    clock: Clock
    spans: tuple[Span, ...]


class Launched:
    """A collective that runs in the background. ``wait`` records the time it costs to wait."""

    def __init__(self, tracer: "Tracer", work, name: str, call: int):
        self.work, self._tracer, self._name, self._call = work, tracer, name, call

    def wait(self) -> None:
        """Wait until the collective is done; the time spent here is exposed communication."""
        with self._tracer.span(f"wait {self._name}", Kind.WAIT, call=self._call):
            self.work.wait()


class Tracer:
    """Record spans inside a rank.

        tracer = Tracer.aligned()
        with tracer.span("backward", Kind.COMPUTE):
            loss.backward()
        with tracer.collective("gradients", nbytes=flat.nbytes):
            dist.all_reduce(flat)
        return tracer.trace()

    Args:
        clock: turns this rank's time into the common time (`labkit.measure.clock.agree`).
        rank: this rank.
        synchronize: called at both ends of every span on the main channel. On a GPU pass
            ``torch.cuda.synchronize``: without it a span holds the time to *launch* kernels. It
            also takes away overlap, so use it to find out what costs time, not how much.
    """

    def __init__(self, clock: Clock, rank: int, *, synchronize: Callable[[], None] | None = None):
        self.clock, self.rank, self.step = clock, rank, 0
        self._synchronize = synchronize
        self._spans: list[Span] = []
        self._calls = 0
        self._running = 0
        self._idle = threading.Condition()

    @classmethod
    def aligned(cls, *, group=None, synchronize: Callable[[], None] | None = None) -> "Tracer":
        """Agree on a clock with the other ranks (a collective) and start with all of them."""
        clock, rank = agree(group=group), dist.get_rank(group)
        dist.barrier(group)
        return cls(clock, rank, synchronize=synchronize)

    def next_step(self) -> None:
        """Count what follows to the next training step."""
        self.step += 1

    @contextmanager
    def span(self, name: str, kind: Kind, *, call: int | None = None, nbytes: int | None = None):
        """Record the block as one span on the main channel."""
        begin = self._now()
        try:
            yield
        finally:
            self.record(name, kind, begin, self._now(), call=call, nbytes=nbytes)

    def record(self, name: str, kind: Kind, begin: float, end: float, *, call=None, nbytes=None):
        """Record a span on the main channel from times that were read from ``clock.now()``."""
        self._add(name, kind, begin, end, MAIN, self.step, call, nbytes)

    def collective(self, name: str, *, nbytes: int | None = None):
        """Record a blocking collective. Every rank traces the same collectives in one order."""
        return self.span(name, Kind.COLLECTIVE, call=self._next_call(), nbytes=nbytes)

    def launch(self, name: str, start: Callable[[], dist.Work], *, nbytes: int | None = None):
        """Start a collective in the background and record it on the network channel.

        Args:
            name: what to call it.
            start: starts it and returns the Work, as ``lambda: dist.all_reduce(t, async_op=True)``.
            nbytes: the bytes of its buffer.

        Returns:
            A `Launched`, to ``wait`` for. The span ends when the backend says that the work is
            done (its future), whether or not anybody waits.
        """
        call, step, begin = self._next_call(), self.step, self.clock.now()
        work = start()
        with self._idle:
            self._running += 1

        def done(_future) -> None:
            end = self.clock.now()  # first: what follows may wait for the interpreter's lock
            with self._idle:
                self._add(name, Kind.COLLECTIVE, begin, end, NETWORK, step, call, nbytes)
                self._running -= 1
                self._idle.notify_all()

        work.get_future().add_done_callback(done)
        return Launched(self, work, name, call)

    def trace(self, *, timeout: float = 10.0) -> RankTrace:
        """Return what was recorded, once the launched collectives have ended.

        Raises:
            RuntimeError: some are still running after ``timeout`` seconds.
        """
        with self._idle:
            if not self._idle.wait_for(lambda: self._running == 0, timeout):
                raise RuntimeError(
                    f"rank {self.rank}: {self._running} launched collectives have not ended after "
                    f"{timeout} s. Wait for each of them before you ask for the trace."
                )
        spans = sorted(self._spans, key=lambda span: (span.begin, span.end))
        return RankTrace(self.rank, self.clock, tuple(spans))

    def _next_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    def _now(self) -> float:
        if self._synchronize is not None:
            self._synchronize()
        return self.clock.now()

    def _add(self, name, kind, begin, end, channel, step, call, nbytes) -> None:
        self._spans.append(
            Span(self.rank, name, kind, begin, end, channel, step=step, call=call, nbytes=nbytes)
        )


def local_tracer() -> Tracer:
    """Return a tracer for one process without a group: it reads its own clock."""
    return Tracer(Clock(0.0, time.get_clock_info("perf_counter").resolution, "one process"), 0)


def each_span(traces: list[RankTrace]) -> Iterator[Span]:
    """Yield every span of every rank."""
    for trace in traces:
        yield from trace.spans
