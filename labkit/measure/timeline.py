"""The traces of all ranks side by side: who came late, what was hidden, what was exposed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from labkit.measure import intervals
from labkit.measure.clock import Clock
from labkit.measure.tables import Table
from labkit.measure.trace import MAIN, NETWORK, Kind, RankTrace, Span, each_span

BUSY = (Kind.COMPUTE, Kind.INPUT)
TALKING = (Kind.COLLECTIVE, Kind.WAIT, Kind.MOVE)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One collective, seen from all ranks.

    An all_reduce cannot end before its last rank has arrived. So what a timer around the call
    shows is, on each rank, the wait for the last one plus the time to move the bytes.
    """

    name: str
    call: int
    step: int
    begins: tuple[float, ...]
    """By rank: when it entered the collective (seconds on the common clock)."""
    ends: tuple[float, ...]
    """By rank: when it left."""

    @property
    def last(self) -> int:
        """The rank that arrived last."""
        return max(range(len(self.begins)), key=self.begins.__getitem__)

    @property
    def complete(self) -> float:
        """When the last rank arrived."""
        return max(self.begins)

    @property
    def skew(self) -> float:
        """Seconds between the first rank's arrival and the last one's."""
        return self.complete - min(self.begins)

    @property
    def waits(self) -> tuple[float, ...]:
        """By rank: seconds it waited for the last one."""
        return tuple(min(self.complete, e) - b for b, e in zip(self.begins, self.ends, strict=True))

    @property
    def transfer(self) -> float:
        """Seconds from the last arrival to the last rank's end."""
        return max(self.ends) - self.complete

    @property
    def elapsed(self) -> float:
        """Seconds that the slowest rank's own timer shows around the call."""
        return max(e - b for b, e in zip(self.begins, self.ends, strict=True))

    @property
    def blame(self) -> float:
        """Seconds that the collective would have started earlier without the last rank's delay.

        That is the last arrival minus the one before it: were the last rank on time, the next to
        last would decide.
        """
        if len(self.begins) < 2:
            return 0.0
        return self.complete - sorted(self.begins)[-2]


class Timeline:
    """Spans of all ranks on one clock.

        timeline = Timeline(launch(program, world_size=4))    # each rank returned tracer.trace()
        timeline.blame()           # {2: 0.0203}: the others waited 20 ms for rank 2
        timeline.exposed(rank=0)   # seconds in which rank 0 did nothing but communicate

    Args:
        traces: one `RankTrace` per rank, any order.

    Raises:
        ValueError: two traces of one rank, or ranks that traced different collectives.
    """

    def __init__(self, traces: Sequence[RankTrace]):
        self._traces = tuple(sorted(traces, key=lambda trace: trace.rank))
        ranks = [trace.rank for trace in self._traces]
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"one trace per rank is needed; got traces of ranks {ranks}")
        self.spans = sorted(each_span(self._traces), key=lambda s: (s.rank, s.begin, s.end))
        self.clock_error = max((trace.clock.error for trace in self._traces), default=0.0)

    @property
    def ranks(self) -> list[int]:
        """The ranks that have a trace, in rising order."""
        return [trace.rank for trace in self._traces]

    @property
    def begin(self) -> float:
        """When the first span began."""
        return min((span.begin for span in self.spans), default=0.0)

    def steps(self, first: int, last: int | None = None) -> "Timeline":
        """Return the timeline of steps ``first`` to ``last`` (None: all that follow)."""
        return self._keep(lambda s: first <= s.step and (last is None or s.step <= last))

    def arrivals(self) -> list[Arrival]:
        """Return every collective, in the order of the calls, matched over the ranks.

        Raises:
            ValueError: the ranks traced different collectives.
        """
        by_rank = [
            {s.call: s for s in self.of(rank, kinds=(Kind.COLLECTIVE,))} for rank in self.ranks
        ]
        calls = sorted(set().union(*by_rank)) if by_rank else []
        return [_arrival(call, [spans.get(call) for spans in by_rank]) for call in calls]

    def blame(self) -> dict[int, float]:
        """Return, by rank, the seconds by which it alone delayed the collectives."""
        total = dict.fromkeys(self.ranks, 0.0)
        for arrival in self.arrivals():
            total[self.ranks[arrival.last]] += arrival.blame
        return total

    def split(self) -> "Timeline":
        """Return a timeline in which each collective is a wait for the last rank, then a move.

        The time that a rank waits for a collective which it launched earlier is split as well.
        """
        complete = {arrival.call: arrival.complete for arrival in self.arrivals()}
        return self._map(lambda span: _split(span, complete))

    def exposed(self, rank: int) -> float:
        """Return the seconds in which the rank's own thread did nothing but communicate.

        Blocking collectives count whole; launched ones only as far as the rank waits for them.
        """
        return intervals.length(_times(self.of(rank, kinds=TALKING, channel=MAIN)))

    def hidden(self, rank: int) -> float:
        """Return the seconds in which a launched collective ran while the rank was busy."""
        network = _times(self.of(rank, kinds=TALKING, channel=NETWORK))
        return intervals.length(
            intervals.intersection(network, _times(self.of(rank, kinds=BUSY, channel=MAIN)))
        )

    def seconds(self, rank: int, *kinds: Kind) -> float:
        """Return the seconds that the rank's own thread spent in spans of these kinds."""
        return intervals.length(_times(self.of(rank, kinds=kinds, channel=MAIN)))

    def of(self, rank: int, *, kinds: Iterable[Kind] = tuple(Kind), channel=None) -> list[Span]:
        """Return one rank's spans of some kinds, on one channel or (None) on all."""
        kinds = tuple(kinds)
        return [
            s
            for s in self.spans
            if s.rank == rank and s.kind in kinds and channel in (None, s.channel)
        ]

    def rows(self) -> list[list]:
        """Return the spans as rows of plain values, to be kept in a record."""
        start = self.begin
        return [
            [s.rank, s.name, str(s.kind), s.begin - start, s.end - start, *_rest(s)]
            for s in self.spans
        ]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence], *, clock_error: float = 0.0) -> "Timeline":
        """Make a timeline again from what `rows` returned."""
        spans: dict[int, list[Span]] = {}
        for rank, name, kind, *rest in rows:
            spans.setdefault(rank, []).append(Span(rank, name, Kind(kind), *rest))
        clock = Clock(0.0, clock_error, "kept rows")
        return cls([RankTrace(rank, clock, tuple(own)) for rank, own in spans.items()])

    def table(self) -> Table:
        """Return one row per rank: milliseconds by kind, exposed, hidden."""
        timeline = self.split()
        kinds = [Kind.INPUT, Kind.COMPUTE, Kind.PACK, Kind.WAIT, Kind.MOVE]
        columns = ["rank", *(f"{kind} ms" for kind in kinds), "exposed ms", "hidden ms"]
        rows = [
            [rank]
            + [round(1e3 * timeline.seconds(rank, kind), 2) for kind in kinds]
            + [round(1e3 * timeline.exposed(rank), 2), round(1e3 * timeline.hidden(rank), 2)]
            for rank in self.ranks
        ]
        return Table(columns, rows)

    def _keep(self, wanted) -> "Timeline":
        return self._map(lambda span: [span] if wanted(span) else [])

    def _map(self, change) -> "Timeline":
        return Timeline(
            [
                replace(trace, spans=tuple(new for span in trace.spans for new in change(span)))
                for trace in self._traces
            ]
        )


def _rest(span: Span) -> tuple:
    return span.channel, span.step, span.call, span.nbytes


def _times(spans: Iterable[Span]) -> list[intervals.Interval]:
    return [(span.begin, span.end) for span in spans]


def _arrival(call: int, spans: list[Span | None]) -> Arrival:
    names = [None if span is None else span.name for span in spans]
    if len(set(names)) > 1:
        raise ValueError(
            f"collective number {call} is, by rank, {names}. All ranks must trace the same "
            "collectives in the same order (None: this rank traced fewer)."
        )
    return Arrival(
        names[0],
        call,
        spans[0].step,
        tuple(span.begin for span in spans),
        tuple(span.end for span in spans),
    )


def _split(span: Span, complete: dict[int, float]) -> list[Span]:
    if span.call not in complete or span.kind not in (Kind.COLLECTIVE, Kind.WAIT):
        return [span]
    middle = min(max(complete[span.call], span.begin), span.end)
    wait = replace(span, kind=Kind.WAIT, end=middle)
    move = replace(span, kind=Kind.MOVE, begin=middle)
    return [part for part in (wait, move) if part.seconds > 0]
