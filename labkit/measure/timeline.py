"""The traces of all ranks side by side: who came late, what was hidden, what was exposed."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from labkit.measure.tables import Table
from labkit.measure.trace import MAIN, NETWORK, Clock, Kind, RankTrace, Span, covered

BUSY = (Kind.COMPUTE, Kind.INPUT)
TALKING = (Kind.COLLECTIVE, Kind.WAIT, Kind.MOVE)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One collective, seen from all ranks.

    An all_reduce cannot end before its last rank has arrived. So what a timer around the call
    shows is, on each rank, the wait for the last one plus the time to move the bytes.
    """

    call: int
    ranks: tuple[int, ...]  # those that take part
    begins: tuple[float, ...]
    """When each of them entered the collective (seconds on the common clock)."""

    @property
    def last(self) -> int:
        """The rank that arrived last."""
        return self.ranks[max(range(len(self.begins)), key=self.begins.__getitem__)]

    @property
    def complete(self) -> float:
        """When the last rank arrived."""
        return max(self.begins)

    @property
    def straggler_delay(self) -> float:
        """Seconds that the collective would have started earlier without the last rank's delay.

        That is the last arrival minus the one before it: were the last rank on time, the next to
        last would decide.
        """
        return self.complete - sorted((*self.begins, min(self.begins)))[-2]


class Timeline:
    """Spans of all ranks on one clock.

        timeline = Timeline(launch(program, world_size=4))    # each rank returned tracer.trace()
        timeline.straggler_delays()   # {2: 0.0203}: the others waited 20 ms for rank 2 alone
        timeline.exposed(rank=0)      # seconds in which rank 0 did nothing but communicate

    Raises:
        ValueError: two traces of one rank, or ranks that traced different collectives.
    """

    def __init__(self, traces: Sequence[RankTrace]):
        if not isinstance(traces, Sequence) or not all(isinstance(x, RankTrace) for x in traces):
            raise TypeError(
                "Timeline needs the traces of all ranks, which each returns as tracer.trace(), "
                f"got {repr(traces)[:60]}."
            )
        self._traces = tuple(sorted(traces, key=lambda trace: trace.rank))
        self.ranks = [trace.rank for trace in self._traces]
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"one trace per rank is needed; got traces of ranks {self.ranks}")
        spans = (span for trace in self._traces for span in trace.spans)
        self.spans = sorted(spans, key=lambda s: (s.rank, s.begin, s.end))
        self.clock_error = max((trace.clock.error for trace in self._traces), default=0.0)
        self.begin = min((span.begin for span in self.spans), default=0.0)
        """When the first span began."""

    def steps(self, first: int, last: int | None = None) -> "Timeline":
        """Return the timeline of steps ``first`` to ``last`` (None: all that follow)."""
        wanted = range(first, 2**63 if last is None else last + 1)
        return self._map(lambda span: [span] if span.step in wanted else [])

    def arrivals(self) -> list[Arrival]:
        """Return every collective, in the order of the calls, matched over the ranks."""
        return list(self._matched().values())

    def _matched(self) -> dict[tuple[tuple[int, ...], int], Arrival]:
        """Return the arrivals by group and number."""
        spans: dict[tuple[tuple[int, ...], int], dict[int, Span]] = {}
        for span in self.spans:
            if span.kind is Kind.COLLECTIVE and span.call is not None:
                spans.setdefault((span.ranks, span.call), {})[span.rank] = span
        keys = sorted(spans, key=lambda key: key[::-1])
        return {key: _arrival(key[1], spans[key], key[0] or tuple(self.ranks)) for key in keys}

    def straggler_delays(self) -> dict[int, float]:
        """Return, by rank, the seconds in which collectives waited for it alone.

        Where several that were launched wait at once, as DDP's do, the time counts once.
        """
        waits: dict[int, list[tuple[float, float]]] = {rank: [] for rank in self.ranks}
        for x in self.arrivals():
            waits[x.last].append((x.complete - x.straggler_delay, x.complete))
        return {rank: float(covered(times)) for rank, times in waits.items()}

    def split(self) -> "Timeline":
        """Return a timeline in which each collective is a wait for the last rank, then a move.

        The time that a rank waits for a collective which it launched earlier is split as well.
        """
        complete = {key: arrival.complete for key, arrival in self._matched().items()}
        return self._map(lambda span: _split(span, complete))

    def exposed(self, rank: int) -> float:
        """Return the seconds in which the rank's own thread did nothing but communicate.

        Blocking collectives count whole; launched ones only as far as the rank waits for them.
        """
        return self.seconds(rank, *TALKING)

    def hidden(self, rank: int) -> float:
        """Return the seconds in which a launched collective ran while the rank was busy."""
        moving = _times(self.of(rank, kinds=TALKING, channel=NETWORK))
        talking = _times(self.of(rank, kinds=TALKING, channel=MAIN))
        moving_alone = covered(moving + talking) - covered(talking)
        busy = _times(self.of(rank, kinds=BUSY, channel=MAIN))
        return moving_alone + covered(talking + busy) - covered(moving + talking + busy)

    def seconds(self, rank: int, *kinds: Kind) -> float:
        """Return the seconds that the rank's own thread spent in spans of these kinds.

        While it talks within a span of computing it does not compute.
        """
        spans = _times(self.of(rank, kinds=kinds, channel=MAIN))
        other = [kind for kind in TALKING if kind not in kinds]
        talking = _times(self.of(rank, kinds=other, channel=MAIN)) if other else []
        return covered(spans + talking) - covered(talking)

    def of(
        self, rank: int, *, kinds: Iterable[Kind] = tuple(Kind), channel: str | None = None
    ) -> list[Span]:
        """Return one rank's spans of some kinds, on one channel or (None) on all."""
        own = (span for span in self.spans if span.rank == rank and span.kind in kinds)
        return [span for span in own if channel in (None, span.channel)]

    def rows(self) -> list[list[Any]]:
        """Return the spans as rows of plain values, to be kept in a record."""
        start, rest = self.begin, attrgetter("channel", "step", "call", "nbytes", "ranks")
        return [
            [s.rank, s.name, str(s.kind), s.begin - start, s.end - start, *rest(s)]
            for s in self.spans
        ]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]], *, clock_error: float = 0.0) -> "Timeline":
        """Make a timeline again from what `rows` returned."""
        spans: dict[int, list[Span]] = {}
        for rank, name, kind, *rest in rows:
            rest[6:] = [tuple(ranks) for ranks in rest[6:]]
            spans.setdefault(rank, []).append(Span(rank, name, Kind(kind), *rest))
        clock = Clock(0.0, clock_error)
        return cls([RankTrace(rank, clock, tuple(seen)) for rank, seen in spans.items()])

    def time_by_rank(self) -> Table:
        """Return one row per rank: milliseconds by kind, exposed, hidden."""
        split = self.split()
        kinds = [Kind.INPUT, Kind.COMPUTE, Kind.PACK, Kind.WAIT, Kind.MOVE]
        columns = ["rank", *(f"{kind} ms" for kind in kinds), "exposed ms", "hidden ms"]
        rows = []
        for rank in self.ranks:
            seconds = [split.seconds(rank, kind) for kind in kinds]
            seconds += [split.exposed(rank), split.hidden(rank)]
            rows.append([rank, *(round(1e3 * x, 2) for x in seconds)])
        return Table(columns, rows)

    def _map(self, change: Callable[[Span], list[Span]]) -> "Timeline":
        def changed(trace: RankTrace) -> RankTrace:
            return replace(trace, spans=tuple(new for old in trace.spans for new in change(old)))

        return Timeline([changed(trace) for trace in self._traces])


def save_chrome(timeline: Timeline, path: str | Path) -> Path:
    """Save a timeline as Chrome trace JSON, which https://ui.perfetto.dev opens; return the path.

    Format: "Trace Event Format" (Google, 2016): complete events (``ph: X``) with times in
    microseconds, ``pid`` = rank, ``tid`` = channel; time 0 is the first span's begin.
    """
    threads = {MAIN: 1, NETWORK: 2}
    events = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in timeline.ranks
    ]
    events += [
        {
            "ph": "X",
            "name": span.name,
            "cat": str(span.kind),
            "pid": span.rank,
            "tid": threads[span.channel],
            "ts": (span.begin - timeline.begin) * 1e6,
            "dur": span.seconds * 1e6,
            "args": {"step": span.step, "call": span.call, "nbytes": span.nbytes},
        }
        for span in timeline.split().spans
    ]
    path = Path(path)
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))
    return path


def _times(spans: Iterable[Span]) -> list[tuple[float, float]]:
    return [(span.begin, span.end) for span in spans]


def _arrival(call: int, spans: dict[int, Span], ranks: tuple[int, ...]) -> Arrival:
    names = [spans[rank].name if rank in spans else None for rank in ranks]
    if len(set(names)) > 1:
        raise ValueError(
            f"collective number {call} is, by rank, {names}. All ranks must trace the same "
            "collectives in the same order (None: this rank traced fewer). Of a collective that "
            "not all take part in, give the group: tracer.collective(name, group=group)."
        )
    return Arrival(call, ranks, tuple(spans[rank].begin for rank in ranks))


def _split(span: Span, complete: dict[tuple[tuple[int, ...], int], float]) -> list[Span]:
    number = span.ranks, span.call
    if number not in complete or span.kind not in (Kind.COLLECTIVE, Kind.WAIT):
        return [span]
    middle = min(max(complete[number], span.begin), span.end)
    wait = replace(span, kind=Kind.WAIT, end=middle)
    move = replace(span, kind=Kind.MOVE, begin=middle)
    return [part for part in (wait, move) if part.seconds > 0]
