"""What to take from an instrument to decide on a suspect: one number of what every rank saw."""

import itertools
import pickle
import statistics
import time
import timeit

import numpy as np

from labkit.measure import wire
from labkit.measure.trace import Span


def stretches(rank: dict, phase: str) -> list[Span]:
    """Return a rank's stretches of a phase."""
    return [span for span in rank["spans"] if span.name == phase]


def total(rank: dict, phase: str) -> float:
    """Return a rank's seconds in a phase."""
    return sum(span.seconds for span in stretches(rank, phase))


def slowest(seen: list, phase: str) -> float:
    """Timers: the milliseconds that the slowest rank spends in a phase."""
    return 1e3 * max(total(rank, phase) for rank in seen)


def bytes_sent(seen: list) -> float:
    """Wire meter: what the rank that sent most has sent to the others."""
    return float(wire.matrix([rank["report"] for rank in seen]).sum(axis=1).max())


def share_through(seen: list, name: str) -> float:
    """Wire meter: which share of all bytes left through an interface, in percent."""
    everything = sum(sum(rank["through"].values()) for rank in seen)
    return 100 * sum(rank["through"].get(name, 0) for rank in seen) / everything


def peers(seen: list) -> float:
    """Wire meter: to how many others the rank with most of them has sent."""
    return float((wire.matrix([rank["report"] for rank in seen]) > 0).sum(axis=1).max())


def unsent(seen: list, counted: float) -> float:
    """Wire meter: the share of `counted` bytes that no rank has sent, in percent."""
    return float(100 * (1 - wire.matrix([rank["report"] for rank in seen]).sum() / counted))


def at_home(seen: list, ranks_per_host: int) -> float:
    """Wire meter: the share of all bytes that went to a rank of the same host, in percent."""
    home, away = _by_host(seen, ranks_per_host)
    return 100 * home / (home + away)


def rate(seen: list, wire_rate: float, phase: str = "", ranks_per_host: int = 1) -> float:
    """Wire meter: bits a second that left all hosts, in one phase or all, in % of `wire_rate`.

    From the first begin of its stretches to their last end.
    """
    spans = [span for rank in seen for span in rank["spans"] if phase in ("", span.name)]
    seconds = max(span.end for span in spans) - min(span.begin for span in spans)
    return 100 * 8 * _by_host(seen, ranks_per_host)[1] / seconds / wire_rate


def _by_host(seen: list, ranks_per_host: int) -> tuple[float, float]:
    """Return the bytes that stayed on a host, and those that left one."""
    sent = wire.matrix([rank["report"] for rank in seen])
    host = np.arange(len(seen)) // ranks_per_host
    home = host[:, None] == host
    return float(sent[home].sum()), float(sent[~home].sum())


def unused(seen: list, phase: str, wire_rate: float) -> float:
    """Wire meter: the share of the wire free from each turn's last begin to its end, in percent."""
    turns = _turns(seen, phase)
    seconds = sum(max(span.end for span in turn) - _last(turn).begin for turn in turns)
    return max(0.0, 100 - 100 * 8 * _by_host(seen, 1)[1] / seconds / wire_rate)


def busy(seen: list) -> float:
    """Scheduler: for which share of the time ranks ran or waited for a CPU, in percent."""
    shares = ((u.on_cpu + u.waiting) / u.wall for u in (rank["usage"] for rank in seen))
    return 100 * statistics.mean(shares)


def unpickled(seen: list, figures: int) -> float:
    """Scheduler: how often a rank could have unpickled so many named figures in its time on a CPU.

    On average over the ranks. What it takes to unpickle them once is measured here, so that a fast
    machine counts as a slow one does: the shortest of a hundred single times, since of ten in a
    row one is always interrupted where others use the CPUs.
    """
    data = pickle.dumps({f"layer_{i // 30}/expert_{i % 30}/load": float(i) for i in range(figures)})
    once = min(timeit.repeat(lambda: pickle.loads(data), time.thread_time, number=1, repeat=100))
    return statistics.mean(rank["usage"].on_cpu for rank in seen) / once


def most_calls(seen: list, kind: str = "") -> float:
    """Call counts: how many calls the rank with most of them made, of a kind or of all."""
    return float(max(sum(not kind or k == kind for k in rank["calls"]) for rank in seen))


def late(seen: list, phase: str) -> float:
    """Timers: how long somebody is in a phase before the last rank comes, in all turns together.

    In percent of the longest time that a rank spends in the phase.
    """
    waited = 0.0
    for turn in _turns(seen, phase):
        last = _last(turn).begin
        waited += max(min(last, span.end) - span.begin for span in turn)
    return 100 * waited / max(total(rank, phase) for rank in seen)


def uneven(seen: list, phase: str) -> float:
    """Timers: how many times as long as the fastest rank the slowest one takes for a phase."""
    times = [total(rank, phase) for rank in seen if stretches(rank, phase)]
    return max(times) / min(times)


def finish(seen: list, phase: str) -> float:
    """Timers: how many times as late as the first rank the last one has ended a phase."""
    start = min(stretches(rank, phase)[0].begin for rank in seen)
    ends = [stretches(rank, phase)[-1].end - start for rank in seen]
    return max(ends) / min(ends)


def uneven_work(seen: list) -> float:
    """Scheduler: how many times as long as the least busy rank the busiest one was on a CPU."""
    times = [rank["usage"].on_cpu for rank in seen]
    return max(times) / min(times)


def always(seen: list, phase: str) -> float:
    """Timers: how much later than the first the usual last rank begins a phase, in percent.

    The median over all turns, of the rank with the largest, over the median time from a turn's
    begin to the next one's: small where a rank is late in some turns only.
    """
    turns = _turns(seen, phase)
    delays = [[span.begin - min(s.begin for s in turn) for span in turn] for turn in turns]
    return 100 * max(map(statistics.median, zip(*delays, strict=True))) / _usual(turns)


def pauses(seen: list, phase: str) -> float:
    """Timeline: how long the rank that delays the others least delays them, in usual turns.

    Its second longest delay counts, over the median time from a turn's begin to the next one's:
    what happens once is nobody's habit. Large only if every rank pauses while the others wait.
    """
    turns = _turns(seen, phase)
    by_rank: dict[int, list[float]] = {rank["rank"]: [0.0, 0.0] for rank in seen}
    for turn in turns:
        last = _last(turn)
        by_rank[last.rank].append(last.begin - min(span.begin for span in turn))
    return min(sorted(delays)[-2] for delays in by_rank.values()) / _usual(turns)


def longest_is_last(seen: list, phase: str) -> float:
    """Timeline: in what share of calls the rank that stays longest is the one that comes last."""
    turns = _turns(seen, phase)
    late = [_last(turn).seconds == max(span.seconds for span in turn) for turn in turns]
    return 100 * statistics.mean(late)


def apart(seen: list, phase: str) -> float:
    """Timeline: how far the ranks' stretches of a phase lie apart, in percent.

    0 where all begin and end at once, 100 where none begins before another has ended.
    """
    spans = [span for rank in seen for span in stretches(rank, phase)]
    whole = max(span.end for span in spans) - min(span.begin for span in spans)
    lengths = [span.seconds for span in spans]
    return 100 * (whole - max(lengths)) / (sum(lengths) - max(lengths))


def threads_per_cpu(seen: list) -> float:
    """Environment: threads that compute in all ranks, for each CPU that they may use.

    A rank computes with one thread at least. So where there are fewer CPUs than ranks, as many CPUs
    as ranks are counted: one thread a rank is never too many.
    """
    cpus = len(set().union(*(rank["cpus"] for rank in seen)))
    return sum(rank["threads"] for rank in seen) / max(cpus, len(seen))


def _turns(seen: list, phase: str) -> list[tuple[Span, ...]]:
    """Return the stretches of all ranks, turn by turn."""
    return list(zip(*(stretches(rank, phase) for rank in seen), strict=True))


def _last(turn: tuple[Span, ...]) -> Span:
    return max(turn, key=lambda span: span.begin)


def _usual(turns: list[tuple[Span, ...]]) -> float:
    """Return the median seconds from a turn's last begin to that of the next one."""
    begins = [_last(turn).begin for turn in turns]
    return statistics.median(b - a for a, b in itertools.pairwise(begins))
