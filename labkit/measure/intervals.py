"""Sets of time intervals: union, intersection, difference and length.

The questions of a timeline ("how much of the communication was hidden behind computing?") are
questions about sets of intervals. An interval is a pair ``(begin, end)`` in seconds; a set of them
may come in any order and may overlap. Every function returns disjoint intervals in rising order.
"""

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals that touch or overlap.

    >>> union([(3, 4), (0, 1), (0.5, 2)])
    [(0, 2), (3, 4)]
    """
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def intersection(left: Iterable[Interval], right: Iterable[Interval]) -> list[Interval]:
    """Keep the time that lies in both sets.

    >>> intersection([(0, 2), (3, 5)], [(1, 4)])
    [(1, 2), (3, 4)]
    """
    a, b = union(left), union(right)
    common: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        begin, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if begin < end:
            common.append((begin, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(left: Iterable[Interval], right: Iterable[Interval]) -> list[Interval]:
    """Keep the time that lies in ``left`` and not in ``right``.

    >>> difference([(0, 5)], [(1, 2), (4, 9)])
    [(0, 1), (2, 4)]
    """
    holes = union(right)
    rest: list[Interval] = []
    for begin, end in union(left):
        for hole_begin, hole_end in holes:
            if hole_end <= begin or end <= hole_begin:
                continue
            if begin < hole_begin:
                rest.append((begin, hole_begin))
            begin = max(begin, hole_end)
        if begin < end:
            rest.append((begin, end))
    return rest


def length(intervals: Iterable[Interval]) -> float:
    """Return the seconds covered, counting none of them twice.

    >>> length([(0, 2), (1, 3)])
    3
    """
    return sum(end - begin for begin, end in union(intervals))
