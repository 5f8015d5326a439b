"""Activities that share links: who runs when, if links are shared fairly.

An activity first takes some seconds (computing), then moves bytes over one or more links at once.
It starts when everything that it comes after has ended. Bytes flow like water: at every moment each
flow gets its max-min fair share (Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that takes time."""

    seconds: float = 0.0  # fixed time, spent first
    nbytes: float = 0.0  # bytes to move after that
    links: tuple[Hashable, ...] = ()  # links that the bytes cross at the same time
    queue: Hashable = None
    """Activities of one queue move their bytes one after the other, first come first served."""


@dataclass(frozen=True, slots=True)
class Period:
    """When an activity ran, in seconds from the start."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Return how long it ran."""
        return self.end - self.begin


def max_min(
    flows: Mapping[Hashable, tuple[Hashable, ...]], rates: Mapping[Hashable, float]
) -> dict[Hashable, float]:
    """Share links fairly: raise all flows together until a link is full, fix its flows, go on.

    Of the links that each flow crosses (at least one) and of each link's bytes per second; returns
    each flow's.
    """
    left, free, share = dict(rates), dict(flows), {}
    while free:
        load = Counter(link for links in free.values() for link in links)
        fair = min(left[link] / count for link, count in load.items())
        full = {link for link, count in load.items() if left[link] / count <= fair * (1 + 1e-12)}
        for flow in [flow for flow, links in free.items() if not full.isdisjoint(links)]:
            share[flow] = fair
            for crossed in free.pop(flow):
                left[crossed] -= fair
    return share


def play(
    activities: Mapping[Hashable, Activity],
    *,
    after: Mapping[Hashable, Collection[Hashable]],
    rates: Mapping[Hashable, float],
) -> dict[Hashable, Period]:
    """Run all activities, by name, and say when each ran.

    `after[a]` must have ended before a starts; `rates` are each link's bytes per second.

    Raises:
        graphlib.CycleError: Some activities wait for each other in a circle; it names them.
    """
    order = TopologicalSorter({name: after.get(name, ()) for name in activities})
    order.prepare()
    fixed: dict[Hashable, float] = {}  # seconds left of those in their first part
    moving: dict[Hashable, float] = {}  # bytes left of those in their second, first come first
    begin: dict[Hashable, float] = {}
    end: dict[Hashable, float] = {}
    now = 0.0
    while order.is_active():
        for name in order.get_ready():
            begin[name], fixed[name] = now, activities[name].seconds
        heads: dict[Hashable, Hashable] = {}  # only the first of a queue moves
        for name in moving:
            queue = activities[name].queue
            heads.setdefault(("alone", name) if queue is None else ("queue", queue), name)
        flows = {name: activities[name].links for name in heads.values()}
        pace = dict.fromkeys(fixed, 1.0) | max_min(flows, rates)
        left = moving | fixed
        step = min(left[name] / pace[name] for name in pace)
        now += step
        for name, speed in pace.items():
            (fixed if name in fixed else moving)[name] = left[name] - step * speed
        for name in [n for n, rest in fixed.items() if rest <= 1e-9 * activities[n].seconds]:
            del fixed[name]
            moving[name] = activities[name].nbytes
        for name in [n for n, rest in moving.items() if rest <= 1e-9 * activities[n].nbytes]:
            del moving[name]
            end[name] = now
            order.done(name)
    return {name: Period(begin[name], end[name]) for name in activities}
