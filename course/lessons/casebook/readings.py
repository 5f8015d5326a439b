"""What to take from an instrument to decide on a suspect: one number of what every rank saw."""

import itertools
import statistics

from labkit.measure import wire
from labkit.measure.trace import Span


def stretches(one: dict, phase: str) -> list[Span]:
    """Return a rank's stretches of a phase."""
    return [span for span in one["spans"] if span.name == phase]


def total(one: dict, phase: str) -> float:
    """Return a rank's seconds in a phase."""
    return sum(span.seconds for span in stretches(one, phase))


def slowest(seen: list, phase: str) -> float:
    """Timers: the milliseconds that the slowest rank spends in a phase."""
    return 1e3 * max(total(one, phase) for one in seen)


def bytes_sent(seen: list) -> float:
    """Wire meter: what the rank that sent most has sent to the others."""
    return float(wire.matrix([one["report"] for one in seen]).sum(axis=1).max())


def share_through(seen: list, name: str) -> float:
    """Wire meter: which share of all bytes left through an interface, in percent."""
    everything = sum(sum(one["through"].values()) for one in seen)
    return 100 * sum(one["through"].get(name, 0) for one in seen) / everything


def rate(seen: list, phase: str, wire_rate: float) -> float:
    """Wire meter: bits that left all ranks from the first begin to the last end, over the wire's.

    In percent of `wire_rate`, bits per second.
    """
    sent = wire.matrix([one["report"] for one in seen]).sum()
    spans = [span for one in seen for span in stretches(one, phase)]
    seconds = max(span.end for span in spans) - min(span.begin for span in spans)
    return float(100 * 8 * sent / seconds / wire_rate)


def unused(seen: list, phase: str, wire_rate: float) -> float:
    """Wire meter: the share of the wire that is free meanwhile, in percent."""
    return 100 - rate(seen, phase, wire_rate)


def busy(seen: list) -> float:
    """Scheduler: for which share of the time ranks ran or waited for a CPU, in percent."""
    shares = ((u.on_cpu + u.waiting) / u.wall for u in (one["usage"] for one in seen))
    return 100 * statistics.mean(shares)


def cpu_time(seen: list) -> float:
    """Scheduler: milliseconds that a rank ran on a CPU, on average."""
    return 1e3 * statistics.mean(one["usage"].on_cpu for one in seen)


def most_calls(seen: list, kind: str = "") -> float:
    """Call counts: how many calls the rank with most of them made, of a kind or of all."""
    return float(max(sum(not kind or k == kind for k in one["calls"]) for one in seen))


def late(seen: list, phase: str) -> float:
    """Timers: how much later than the first the last rank begins a phase; a share, in percent.

    Of all turns together, over the longest time that a rank spends in the phase.
    """
    return 100 * sum(map(_delay, _turns(seen, phase))) / max(total(one, phase) for one in seen)


def uneven(seen: list, phase: str) -> float:
    """Timers: how many times as long as the fastest rank the slowest one takes for a phase."""
    times = [total(one, phase) for one in seen if stretches(one, phase)]
    return max(times) / min(times)


def finish(seen: list, phase: str) -> float:
    """Timers: how many times as late as the first rank the last one has ended a phase."""
    start = min(stretches(one, phase)[0].begin for one in seen)
    ends = [stretches(one, phase)[-1].end - start for one in seen]
    return max(ends) / min(ends)


def uneven_work(seen: list) -> float:
    """Scheduler: how many times as long as the least busy rank the busiest one was on a CPU."""
    times = [one["usage"].on_cpu for one in seen]
    return max(times) / min(times)


def same_rank(seen: list, phase: str) -> float:
    """Timers: of the turns that somebody delays most, the share that one and the same rank does."""
    turns = sorted(_turns(seen, phase), key=_delay, reverse=True)
    last = [_last(turn).rank for turn in turns[: max(5, len(turns) // 5)]]
    return 100 * last.count(statistics.mode(last)) / len(last)


def pauses(seen: list, phase: str) -> float:
    """Timeline: how long the rank that delays the others least delays them, in usual turns.

    Its second longest delay counts, over the median time from a turn's begin to the next one's:
    what happens once is nobody's habit. Large only if every rank pauses while the others wait.
    """
    turns = _turns(seen, phase)
    by_rank: dict[int, list[float]] = {one["rank"]: [0.0, 0.0] for one in seen}
    for turn in turns:
        by_rank[_last(turn).rank].append(_delay(turn))
    begins = [_last(turn).begin for turn in turns]
    usual = statistics.median(b - a for a, b in itertools.pairwise(begins))
    return min(sorted(delays)[-2] for delays in by_rank.values()) / usual


def longest_is_last(seen: list, phase: str) -> float:
    """Timeline: in what share of calls the rank that stays longest is the one that comes last."""
    turns = _turns(seen, phase)
    late = [_last(turn).seconds == max(span.seconds for span in turn) for turn in turns]
    return 100 * statistics.mean(late)


def apart(seen: list, phase: str) -> float:
    """Timeline: how far the ranks' stretches of a phase lie apart, in percent.

    0 where all begin and end at once, 100 where none begins before another has ended.
    """
    spans = [span for one in seen for span in stretches(one, phase)]
    whole = max(span.end for span in spans) - min(span.begin for span in spans)
    lengths = [span.seconds for span in spans]
    return 100 * (whole - max(lengths)) / (sum(lengths) - max(lengths))


def threads_per_cpu(seen: list) -> float:
    """Environment: threads that compute in all ranks, for each CPU that they may use."""
    return sum(one["threads"] for one in seen) / len(set().union(*(one["cpus"] for one in seen)))


def _turns(seen: list, phase: str) -> list[tuple[Span, ...]]:
    """Return the stretches of all ranks, turn by turn."""
    return list(zip(*(stretches(one, phase) for one in seen), strict=True))


def _last(turn: tuple[Span, ...]) -> Span:
    return max(turn, key=lambda span: span.begin)


def _delay(turn: tuple[Span, ...]) -> float:
    """Return the seconds by which the last rank begins later than the first."""
    return _last(turn).begin - min(span.begin for span in turn)
