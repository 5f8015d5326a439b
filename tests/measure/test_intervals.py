import random

from labkit.measure import intervals


def test_union_merges_what_touches_and_drops_what_is_empty():
    assert intervals.union([(3, 4), (0, 1), (1, 2), (5, 5), (0.5, 1.5)]) == [(0, 2), (3, 4)]


def test_difference_and_intersection_divide_the_left_set():
    random_numbers = random.Random(7)

    def some():
        return [
            (begin, begin + random_numbers.randint(0, 9))
            for begin in (random_numbers.randint(0, 60) for _ in range(8))
        ]

    for _ in range(200):
        left, right = some(), some()
        common = intervals.intersection(left, right)
        rest = intervals.difference(left, right)
        ticks = [set(), set()]
        for seen, which in zip(ticks, (left, right), strict=True):
            for begin, end in which:
                seen.update(range(begin, end))
        assert intervals.length(common) == len(ticks[0] & ticks[1])
        assert intervals.length(rest) == len(ticks[0] - ticks[1])
        assert intervals.intersection(common, rest) == []
