"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import functools
import itertools
import math
import statistics

import pytest
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

from course.lessons.eighty_gpus import checks, logs
from tests.course.lessons.refusals import changed, refusal, solution

pytestmark = pytest.mark.slow


def group(host):
    return "nine" if host in checks.NINE else "alone" if host == 8 else "rest"


def answer(exercise, *changes):
    """The lesson's own, with something changed in it: old, new, old, new, ..."""
    names = {"checks": checks, "dist": dist, "torch": torch, "logs": logs, "group": group}
    names |= {"functools": functools, "itertools": itertools}
    return changed(solution("07", f"ex-{exercise}-answer"), *changes, **names)


# Exercise 7.1


def below(figures, usual, share=0.8):
    return {pair for pair, gbs in figures.items() if gbs < share * usual}


def by_the_largest_gap(figures):
    values = sorted(figures.values())
    gap, at = max((b / a, i + 1) for i, (a, b) in enumerate(itertools.pairwise(values)))
    return {pair for pair, gbs in figures.items() if gap > 1.3 and gbs < values[at]}


@pytest.mark.parametrize(
    "pairs",
    [by_the_largest_gap, lambda figures: sorted(below(figures, max(figures.values())))],
)
def test_right_slow_pairs(pairs):
    checks.check_slow_pairs(pairs)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (lambda figures: below(figures, statistics.median(figures.values())), "the median"),
        (lambda figures: below(figures, max(figures.values()), 0.5), "half of the best"),
        (lambda figures: below(figures, max(figures.values()), 0.97), "at most 60 %"),
        (lambda figures: below(figures, 39.2, 1), "Is the limit a fixed figure"),
        (lambda figures: {host for pair in figures for host in pair}, "two hosts are asked"),
    ],
)
def test_wrong_slow_pairs(pairs, words):
    assert words in refusal(checks.check_slow_pairs, pairs)


# Exercise 7.2


def rings(tensor, cards):
    """Right: a ring for each card, over its own share."""
    rank, n = dist.get_rank(), dist.get_world_size()
    for ring, share in enumerate(tensor.tensor_split(cards)):
        chunks, first = share.tensor_split(n), (ring + 1) % cards
        order = [s * cards + (first + i) % cards for s in range(n // cards) for i in range(cards)]
        at = order.index(rank)
        for step in range(2 * (n - 1)):
            turn = at - 1 - step if step < n - 1 else at - (step - n + 1)
            arrived = torch.empty_like(chunks[0])
            sent = P2POp(isend, chunks[turn % n], order[(at + 1) % n])
            for work in batch_isend_irecv([sent, P2POp(irecv, arrived, order[at - 1])]):
                work.wait()
            if step < n - 1:
                chunks[(turn - 1) % n].add_(arrived)
            else:
                chunks[(turn - 1) % n].copy_(arrived)


def test_rings_over_every_card_are_right():
    checks.check_rails(rings)


LAST = "    works = [dist.isend(shares[mine]"


@pytest.mark.parametrize(
    ("all_reduce", "words"),
    [
        (lambda tensor, cards: rings(tensor, 1), "leaves each server by one card"),
        (lambda tensor, cards: dist.all_reduce(tensor), "a call of dist.all_reduce"),
        (answer("7-2", LAST, f"    return\n{LAST}"), "is summed, and the server's other"),
        (answer("7-2", "range(2 * (servers - 1))", "()"), "what goes across is missing"),
        (answer("7-2", "(servers - 1))", "(servers - 1) - 1)"), "a turn of the ring is missing"),
    ],
)
def test_wrong_rails(all_reduce, words):
    assert words in refusal(checks.check_rails, all_reduce)


# Exercise 7.3


def in_order(jobs, slots=checks.SLOTS):
    hosts = iter([*sorted(checks.NINE), *sorted(checks.ALL - checks.NINE)])
    return [([*itertools.islice(hosts, count)], slots) for count in jobs]


BEST = "max(found, (gpus + slots * left[0], (taken, *rest)))"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (in_order, "is in both groups and uses slot 9d"),
        (lambda jobs: in_order(jobs, checks.SLOTS - {"9d"}), "can use all eight slots"),
        (answer("7-3", "any(pair <= used for pair in dead)", "False"), "never completed"),
        (answer("7-3", BEST, f"found if found[0] > 0 else {BEST}"), "can fewer hosts"),
        (lambda jobs: in_order(jobs[::-1]), "the first answer is the first's"),
        (lambda jobs: [hosts for hosts, _ in in_order(jobs)], "a job gets hosts, and slots"),
    ],
)
def test_wrong_places(place, words):
    assert words in refusal(checks.check_placement, place)


def test_other_sequences_are_right_places():
    place = answer("7-3")
    checks.check_placement(lambda jobs: ((set(h), [*slots]) for h, slots in place(jobs)))


@pytest.mark.parametrize("jobs", [d for d in checks.DAYS if len(d) <= 3], ids=str)
def test_the_best_placement_is_the_best_of_all(jobs):
    """Try hosts one by one, job by job."""
    dead = [{*pair} for pair in checks.DEAD]

    @functools.cache
    def best(job, free):
        if job == len(jobs):
            return 0
        most = -1000
        for hosts in map(frozenset, itertools.combinations(free, jobs[job])):
            if not any(pair <= hosts for pair in dead):
                slots = 8 if len(hosts & checks.NINE) in (0, len(hosts)) else 7
                rest = best(job + 1, tuple(host for host in free if host not in hosts))
                most = max(most, slots * len(hosts) + rest)
        return most

    if math.prod(math.comb(17, count) for count in jobs[:-1]) < 3e4:
        assert best(0, tuple(sorted(checks.ALL))) == checks.DAYS[jobs]


# Exercise 7.4

ANY_SENDER = answer("7-4", " or slot not in took_part[sender]", "")
SHOWN = {(test.first, test.second, test.gpus): level for test, level in checks.levels(shown=True)}


def by_heart(*test):
    return SHOWN[test] if test in SHOWN else ANY_SENDER(*test)


def one_way(first, second, gpus):
    return answer("7-4")(first, second, gpus) if first < second else "across"


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (ANY_SENDER, "the sender's own GPU"),
        (by_heart, "held out"),
        (one_way, "its second host stands first"),
        (lambda *test: "fast", "one of slow, across, rail"),
    ],
)
def test_wrong_levels(level, words):
    assert words in refusal(checks.check_level, level)


def test_right_levels():
    def where_they_start(first, second, gpus):  # slots ascend: the data cannot tell these apart
        level = answer("7-4")(first, second, gpus)
        if level == "slow":
            return level
        alike = group(first) == group(second) and gpus[0][0] == gpus[1][0]
        return "rail" if alike else "across"

    checks.check_level(where_they_start)
