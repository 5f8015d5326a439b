"""What to take from an instrument to decide on a suspect: one number of what every rank saw.

A case says with `functools.partial` of which phase.
"""

import statistics

from course.lessons.casebook.observe import Span
from labkit.measure import wire


def of(one: dict, phase: str) -> list[Span]:
    """Return a rank's spans of a phase."""
    return [span for span in one["spans"] if span.phase == phase]


def total(one: dict, phase: str) -> float:
    """Return a rank's seconds in a phase."""
    return sum(span.seconds for span in of(one, phase))


def bytes_sent(seen: list) -> float:
    """Wire meter: what the rank that sent most has sent to the others."""
    return float(wire.matrix([one["report"] for one in seen]).sum(axis=1).max())


def share_through(seen: list, name: str) -> float:
    """Wire meter: which share of all bytes left through an interface, in percent."""
    everything = sum(sum(one["through"].values()) for one in seen)
    return 100 * sum(one["through"].get(name, 0) for one in seen) / everything


def busy(seen: list) -> float:
    """Scheduler: for which share of the time ranks ran or waited for a CPU, in percent."""
    shares = ((u.on_cpu + u.waiting) / u.wall for u in (one["usage"] for one in seen))
    return 100 * statistics.mean(shares)


def most_calls(seen: list, kind: str = "") -> float:
    """Call counts: how many calls the rank with most of them made, of a kind or of all."""
    return float(max(sum(not kind or k == kind for k in one["calls"]) for one in seen))


def late(seen: list, phase: str) -> float:
    """Timers: how much later than the first the last rank begins, in percent of the phase."""
    begins = [of(one, phase)[0].begin for one in seen if of(one, phase)]
    return 100 * (max(begins) - min(begins)) / max(total(one, phase) for one in seen)


def uneven(seen: list, phase: str) -> float:
    """Timers: how many times as long as the fastest rank the slowest one takes for a phase."""
    times = [total(one, phase) for one in seen if of(one, phase)]
    return max(times) / min(times)


def finish(seen: list, phase: str) -> float:
    """Timers: how many times as late as the first rank the last one has ended a phase."""
    start = min(of(one, phase)[0].begin for one in seen)
    ends = [of(one, phase)[-1].end - start for one in seen]
    return max(ends) / min(ends)


def fastest(seen: list, phase: str) -> float:
    """Return the seconds of a phase on the rank that is through first: it waits for nobody."""
    return min(total(one, phase) for one in seen)


def ratio(seen: list, phase: str, other: str) -> float:
    """Timers: the time of one phase over that of another, each on the rank that waits least."""
    return fastest(seen, phase) / fastest(seen, other)


def share(seen: list, phase: str, other: str) -> float:
    """Timers: the time of one phase, on the rank that waits least, over the longest of another."""
    return fastest(seen, phase) / max(total(one, other) for one in seen)


def between(seen: list) -> float:
    """Timers: which share of the time lies between a rank's phases, in percent of the whole."""
    shares = []
    for one in seen:
        spans = one["spans"]
        whole = max(s.end for s in spans) - min(s.begin for s in spans)
        shares.append(1 - sum(span.seconds for span in spans) / whole)
    return 100 * max(shares)


def uneven_work(seen: list) -> float:
    """Scheduler: how many times as long as the least busy rank the busiest one was on a CPU."""
    times = [one["usage"].on_cpu for one in seen]
    return max(times) / min(times)


def scattered(seen: list, inner: str, outer: str) -> float:
    """Timeline: in how many turns of the outer phase some rank has the inner one, per inner one.

    1: all ranks have it in the same turns. As many as ranks: never two in the same.
    """
    turns = []
    for one in seen:
        begins = [span.begin for span in of(one, inner)]
        spans = enumerate(of(one, outer))
        turns.append({i for i, s in spans if any(s.begin <= at < s.end for at in begins)})
    return len(set().union(*turns)) / max(len(own) for own in turns)


def longest_is_last(seen: list, phase: str) -> float:
    """Timeline: in what share of calls the rank that stays longest is the one that comes last."""
    rounds = list(zip(*(of(one, phase) for one in seen), strict=True))
    longest = [max(spans, key=lambda span: span.seconds) for spans in rounds]
    last = [max(spans, key=lambda span: span.begin) for spans in rounds]
    return 100 * statistics.mean(a is b for a, b in zip(longest, last, strict=True))


def ranks_per_cpu(seen: list) -> float:
    """Environment: how many ranks there are for each CPU that they may use, all masks together."""
    return len(seen) / len(set().union(*(one["cpus"] for one in seen)))
