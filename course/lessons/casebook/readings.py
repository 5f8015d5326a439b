"""What to take from an instrument to decide on a suspect: one number of what every rank saw."""

import statistics

from labkit.measure import wire
from labkit.measure.trace import Span


def of(one: dict, phase: str) -> list[Span]:
    """Return a rank's stretches of a phase."""
    return [stretch for stretch in one["spans"] if stretch.name == phase]


def total(one: dict, phase: str) -> float:
    """Return a rank's seconds in a phase."""
    return sum(stretch.seconds for stretch in of(one, phase))


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
    stretches = [stretch for one in seen for stretch in of(one, phase)]
    seconds = max(s.end for s in stretches) - min(s.begin for s in stretches)
    return float(100 * 8 * sent / seconds / wire_rate)


def unused(seen: list, phase: str, wire_rate: float) -> float:
    """Wire meter: the share of the wire that is free meanwhile, in percent."""
    return 100 - rate(seen, phase, wire_rate)


def busy(seen: list) -> float:
    """Scheduler: for which share of the time ranks ran or waited for a CPU, in percent."""
    shares = ((u.on_cpu + u.waiting) / u.wall for u in (one["usage"] for one in seen))
    return 100 * statistics.mean(shares)


def most_calls(seen: list, kind: str = "") -> float:
    """Call counts: how many calls the rank with most of them made, of a kind or of all."""
    return float(max(sum(not kind or k == kind for k in one["calls"]) for one in seen))


def late(seen: list, phase: str) -> float:
    """Timers: how much later than the first the last rank begins a phase; a share, in percent.

    Of all turns together, over the longest time that a rank spends in the phase.
    """
    rounds = list(zip(*(of(one, phase) for one in seen), strict=True))
    waits = sum(max(s.begin for s in turn) - min(s.begin for s in turn) for turn in rounds)
    return 100 * waits / max(total(one, phase) for one in seen)


def uneven(seen: list, phase: str) -> float:
    """Timers: how many times as long as the fastest rank the slowest one takes for a phase."""
    times = [total(one, phase) for one in seen if of(one, phase)]
    return max(times) / min(times)


def finish(seen: list, phase: str) -> float:
    """Timers: how many times as late as the first rank the last one has ended a phase."""
    start = min(of(one, phase)[0].begin for one in seen)
    ends = [of(one, phase)[-1].end - start for one in seen]
    return max(ends) / min(ends)


def uneven_work(seen: list) -> float:
    """Scheduler: how many times as long as the least busy rank the busiest one was on a CPU."""
    times = [one["usage"].on_cpu for one in seen]
    return max(times) / min(times)


def same_rank(seen: list, phase: str) -> float:
    """Timers: of the turns that somebody delays most, the share that one and the same rank does."""
    rounds = list(zip(*(of(one, phase) for one in seen), strict=True))
    gaps = [max(s.begin for s in turn) - min(s.begin for s in turn) for turn in rounds]
    slow = sorted(range(len(rounds)), key=lambda i: -gaps[i])[: max(5, len(rounds) // 5)]
    last = [max(range(len(seen)), key=lambda r: rounds[i][r].begin) for i in slow]
    return 100 * max(last.count(rank) for rank in set(last)) / len(last)


def scattered(seen: list, phase: str) -> float:
    """Timeline: of the turns with the longest delays, the share of the rank that delays fewest.

    50 for two ranks that delay each other in turns; 0 where only one of them does.
    """
    return 100 - same_rank(seen, phase)


def longest_is_last(seen: list, phase: str) -> float:
    """Timeline: in what share of calls the rank that stays longest is the one that comes last."""
    rounds = list(zip(*(of(one, phase) for one in seen), strict=True))
    longest = [max(spans, key=lambda span: span.seconds) for spans in rounds]
    last = [max(spans, key=lambda span: span.begin) for spans in rounds]
    return 100 * statistics.mean(a is b for a, b in zip(longest, last, strict=True))


def apart(seen: list, phase: str) -> float:
    """Timeline: how far the ranks' stretches of a phase lie apart, in percent.

    0 where all begin and end at once, 100 where none begins before another has ended.
    """
    stretches = [stretch for one in seen for stretch in of(one, phase)]
    whole = max(s.end for s in stretches) - min(s.begin for s in stretches)
    lengths = [s.seconds for s in stretches]
    return 100 * (whole - max(lengths)) / (sum(lengths) - max(lengths))


def threads_per_cpu(seen: list) -> float:
    """Environment: threads that compute in all ranks, for each CPU that they may use."""
    return sum(one["threads"] for one in seen) / len(set().union(*(one["cpus"] for one in seen)))
