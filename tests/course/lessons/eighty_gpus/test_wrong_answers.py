"""The usual mistakes of lesson 07's exercises: each is refused, and told by its own name."""

import functools
import itertools
import math
import random
import re
import statistics

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

from course.checks.checking import CheckFailed
from course.lessons.eighty_gpus import checks, logs
from course.lessons.eighty_gpus.programs import all_reduce_along_rings
from tests.course.lessons.refusals import changed, solution

pytestmark = pytest.mark.slow


def answer(exercise, *changes):
    """The lesson's own, with something changed in it: old, new, old, new, ..."""
    source = solution("07_eighty_gpus", f"ex-{exercise}-answer")
    return changed(source, *changes, **NAMES)


def group(host):
    return "nine" if host in checks.NINE else "alone" if host == 8 else "rest"


NAMES = {"checks": checks, "dist": dist, "torch": torch, "logs": logs, "group": group}
NAMES |= {"functools": functools, "itertools": itertools, "random": random}


def rings(tensor, cards):
    """The lesson's rings, one for each card, typed by a learner."""
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


RIGHT = answer("7-2")


def then(change):
    """The right sum, and something after it."""

    def all_reduce(tensor, cards):
        before = tensor.clone()
        RIGHT(tensor, cards)
        change(tensor, before)

    return all_reduce


def rounded(tensor, cards):
    """Round what crosses, and what one adds: half the bytes."""
    small = tensor.to(torch.float16 if tensor.dtype == torch.float32 else torch.float32)
    RIGHT(small, cards)
    tensor.copy_(small)


LAST = "    works = [dist.isend(shares[mine]"
ALL_SHARES = "tensor.tensor_split(cards)"
INSIDE = "[first + c for c in range(cards) if c != mine]"
RAILS = {
    "your own": lambda tensor, cards: all_reduce_along_rings(tensor, cards=cards),
    "rounded on the way": rounded,
    "leaves each server by one card": lambda tensor, cards: RIGHT(tensor, 1),
    "a call of dist.all_reduce": lambda tensor, cards: dist.all_reduce(tensor),
    "add up inside a server what can be": lambda tensor, cards: RIGHT(
        tensor, dist.get_world_size()
    ),
    "is summed, and the server's other": answer("7-2", LAST, f"    return\n{LAST}"),
    "turn of the ring is missing": answer("7-2", "(servers - 1))", "(servers - 1) - 1)"),
    "as it was: change it in place": lambda tensor, cards: RIGHT(tensor.clone(), cards),
    "this is the mean": then(lambda tensor, before: tensor.div_(dist.get_world_size())),
    "is there a 2 where `cards` belongs": lambda tensor, cards: RIGHT(tensor, cards % 3 or 1),
    "counted twice": then(lambda tensor, before: tensor.add_(before)),
    "what goes across is missing": answer("7-2", "range(2 * (servers - 1))", "()"),
    "only ranks of one number": answer("7-2", INSIDE, "[]", ALL_SHARES, "[tensor] * cards"),
}


@pytest.mark.parametrize("words", RAILS)
def test_wrong_rails(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_rails(RAILS[words])


def colleagues(figures, *, usual=statistics.median, limit=0.8):
    middle = usual(figures.values())
    return {pair for pair, gbs in figures.items() if gbs < limit * middle}


def halfway(values, figures):
    middle = (max(values) + min(values)) / 2
    return {p for p, gbs in figures.items() if gbs < middle and min(values) < 0.8 * max(values)}


SLOW_PAIRS = {
    "Not the median": colleagues,
    "that is no fault": lambda figures: colleagues(figures, usual=max, limit=0.97),
    "which pairs can you trust": lambda figures: colleagues(figures, usual=statistics.mean),
    "where most are slow": lambda figures: colleagues(
        figures, usual=lambda all_of: statistics.quantiles(all_of, n=10)[-1]
    ),
    "where some are far slower": lambda figures: halfway(figures.values(), figures),
    "far slower": lambda figures: {pair for pair, gbs in figures.items() if gbs < 15},
    "these are the healthy pairs": lambda figures: {*figures} - colleagues(figures, usual=max),
    "these are hosts": lambda figures: {host for pair in colleagues(figures) for host in pair},
    "is the limit a constant": lambda figures: {p for p, gbs in figures.items() if gbs < 39.2},
    "as a share of the best": lambda figures: {
        p for p, gbs in figures.items() if gbs < max(figures.values()) - 5
    },
    "these are bandwidths": lambda figures: [gbs for gbs in figures.values() if gbs < 15],
    "a pair is asked": lambda figures: [str(pair) for pair in colleagues(figures, usual=max)],
    "without `return`": lambda figures: None,
}


@pytest.mark.parametrize("words", SLOW_PAIRS)
def test_wrong_slow_pairs(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_slow_pairs(SLOW_PAIRS[words])


def by_the_largest_gap(figures):
    values = sorted(figures.values())
    gap, at = max((b / a, i + 1) for i, (a, b) in enumerate(itertools.pairwise(values)))
    yield from ([*pair] for pair, gbs in figures.items() if gap > 1.3 and gbs < values[at])


def test_right_slow_pairs():
    checks.check_slow_pairs(by_the_largest_gap)
    checks.check_slow_pairs(lambda figures: frozenset(colleagues(figures, usual=max)))
    checks.check_slow_pairs(lambda figures: np.array(sorted(colleagues(figures, usual=max))))


NINE, EIGHT = sorted(checks.NINE), sorted(checks.ALL - checks.NINE)


def in_order(jobs, slots=checks.SLOTS):
    hosts, found = [*NINE, *EIGHT], []
    for count in jobs:
        found.append((hosts[:count], slots))
        hosts = hosts[count:]
    return found


HEED = "any(pair <= used for pair in dead)"
BEST = "max(found, (gpus + slots * left[0], (taken, *rest)))"
FIRST = f"found if found[0] > 0 else {BEST}"
PLACES = {
    "is in both groups and uses slot 9d": in_order,
    "can use all eight slots|at full speed": lambda jobs: in_order(jobs, checks.SLOTS - {"9d"}),
    "these two hosts never completed": answer("7-3", HEED, "False"),
    "GPUs at full speed": answer("7-3", BEST, FIRST),
    "a job is left out": lambda jobs: in_order(jobs)[1:],
    "in another order than the jobs": lambda jobs: in_order(sorted(jobs)),
    "as many hosts as it asks for": lambda jobs: [(h[:-1] or h, s) for h, s in in_order(jobs)],
    "no host serves two jobs": lambda jobs: [([*NINE, *EIGHT][:n], ("1b",)) for n in jobs],
    "numbered from 1 to 17": lambda jobs: [([h - 1 for h in a], s) for a, s in in_order(jobs)],
    "its hosts, and its slots": lambda jobs: [hosts for hosts, _ in in_order(jobs)],
    "a list of addresses": lambda jobs: [(h, len(s)) for h, s in in_order(jobs)],
    "named by its address": lambda jobs: in_order(jobs, range(8)),
    "asks for|by its address|hosts are a list": lambda jobs: [(h[0], s) for h, s in in_order(jobs)],
    "without `return`": lambda jobs: None,
}


@pytest.mark.parametrize("words", PLACES)
def test_wrong_places(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_placement(PLACES[words])


@pytest.mark.parametrize("jobs", [d for d in checks.DAYS if len(d) <= 5], ids=str)
def test_the_best_placement_is_the_best_of_all(jobs):
    """Try hosts one by one, without the classes that `most_gpus` knows; jobs in turn."""
    dead = [{*pair} for pair in checks.DEAD]

    @functools.cache
    def best(job, nine, eight):
        if job == len(jobs):
            return 0
        most = -1000
        for own in range(jobs[job] + 1):
            for some in itertools.combinations(nine, own):
                if len(nine) - own > 5 and own not in (0, jobs[job]) and some[0] != nine[0]:
                    continue
                for more in itertools.combinations(eight, jobs[job] - own):
                    hosts = {*some, *more}
                    if any(pair <= hosts for pair in dead):
                        continue
                    gpus = (7 if some and more else 8) * jobs[job]
                    left = tuple(h for h in nine if h not in some)
                    most = max(most, gpus + best(job + 1, left, tuple({*eight} - hosts)))
        return most

    if math.prod(math.comb(17, count) for count in jobs) < 2e5:
        assert best(0, tuple(NINE), tuple(EIGHT)) == checks.most_gpus(jobs)
    assert checks.most_gpus(jobs) <= 8 * sum(jobs)


def test_sixteen_hosts_hold_a_dead_pair_whichever_they_are():
    assert checks.most_gpus([16]) < 0 and checks.most_gpus([17]) < 0
    assert checks.most_gpus([15]) == 105


ANY_SENDER = " or slot not in took_part[sender]"
GROUPS = "group(sender) != group(receiver)"
upper, any_sender = answer("7-4"), answer("7-4", ANY_SENDER, "")
ALL = {(t.first, t.second, t.gpus): kind for n in (4, 8) for t, kind in checks.quiet(n)}
SHOWN = {(t.first, t.second, t.gpus) for n in (4, 8) for t, _ in checks.quiet(n, shown=True)}
EXCEPT = {test for test, kind in ALL.items() if kind != any_sender(*test)}
UPPERS = {
    "8 GPUs.*wrong.*host 8 by itself": answer(
        "7-4", GROUPS, "(sender in checks.NINE) != (receiver in checks.NINE)"
    ),
    "4 GPUs.*wrong.*the sender's own": any_sender,
    "8 GPUs.*held out": lambda *test: test in SHOWN and ALL[test],
    "hosts swapped": lambda *test: ALL.get(test, False),
    "invented": lambda first, second, gpus: ALL.get(
        (first, second, gpus), ALL.get((second, first, gpus[::-1]), False)
    ),
    "swapped|invented": lambda *test: any_sender(*test) and test not in EXCEPT,
    "without `return`": lambda *test: None,
    "another type": lambda *test: "upper" if upper(*test) else "lower",
}


@pytest.mark.parametrize("words", UPPERS)
def test_wrong_kinds(words):
    with pytest.raises(CheckFailed, match=re.compile(words, re.S)):
        checks.check_upper(UPPERS[words])


def test_right_kinds():
    def where_they_start(first, second, gpus):  # slots ascend: the data cannot tell these apart
        return int(group(first) == group(second) and gpus[0][0] == gpus[1][0])

    def by_first_slots(first, second, gpus):
        return np.bool_(
            group(first) == group(second) and gpus[0][0] in gpus[1] and gpus[1][0] in gpus[0]
        )

    checks.check_upper(where_they_start)
    checks.check_upper(by_first_slots)


by_luck = answer("7-5")
DRAW = "touched(random.sample(every, len(pairs)), k)"
NOT_FEWER = "(lambda c: touched(c, k) > touched(c, k - 1))(random.sample(every, len(pairs)))"
NAMED = """    named = next(
        {*some} for some in itertools.combinations(hosts, k) if all({*some} & {*p} for p in pairs)
    )
    return"""
NAMED_DRAW = "all(named & {*p} for p in random.sample(every, len(pairs)))"


def counted(pairs, hosts):
    """Try every way where there are few, by covers that grow from the first pair."""
    every, deal = list(itertools.combinations(hosts, 2)), random.Random(9)

    def touched(chosen, few):
        if not chosen:
            return True
        without = [[p for p in chosen if host not in p] for host in chosen[0]]
        return few > 0 and any(touched(rest, few - 1) for rest in without)

    k = next(few for few in itertools.count() if touched([*pairs], few))
    ways = itertools.combinations(every, len(pairs))
    if math.comb(len(every), len(pairs)) > 1e4:
        ways = [deal.sample(every, len(pairs)) for _ in range(5000)]
    found = [touched([*chosen], k) for chosen in ways]
    return np.mean(found)


LUCK = {
    "per cent": lambda *given: 100 * by_luck(*given),
    "per cent, or a count": answer("7-5", " / draws", ""),
    "two hosts, in one\\s+order": answer("7-5", "combinations(hosts, 2)", "product(hosts, hosts)"),
    "or fewer than 2": lambda *given: 0.0,
    "does \\*not\\* happen": lambda *given: 1 - by_luck(*given),
    "one host fewer|another share": answer("7-5", DRAW, DRAW.replace("k)", "k - 1)")),
    "one host more|another share": answer("7-5", DRAW, DRAW.replace("k)", "k + 1)")),
    "\\*these\\* hosts": answer("7-5", DRAW, NAMED_DRAW, "    return sum", f"{NAMED} sum"),
    "by no fewer|another share": answer("7-5", DRAW, NOT_FEWER),
    "choose as many different pairs": lambda *given: 0.3,
    "without `return`": lambda *given: None,
    "a number": lambda *given: [0.05],
}


@pytest.mark.parametrize("words", LUCK)
def test_wrong_luck(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_by_luck(LUCK[words])


def test_right_luck_drawn_and_counted():
    checks.check_by_luck(counted)
