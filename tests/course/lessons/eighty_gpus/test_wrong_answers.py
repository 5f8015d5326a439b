"""The usual mistakes of lesson 07's exercises: each is refused, and told by its own name."""

import functools
import itertools
import math
import random
import re
import statistics
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

from course.checks.checking import CheckFailed
from course.lessons.eighty_gpus import checks, logs
from course.lessons.eighty_gpus.programs import all_reduce_along_rings

pytestmark = pytest.mark.slow


def rings(tensor, cards, *, count):
    """lesson 07's rings, typed by a learner."""
    rank, n = dist.get_rank(), dist.get_world_size()
    shares = [share.tensor_split(n) for share in tensor.tensor_split(count)]
    for ring, chunks in enumerate(shares):
        first = (ring + 1) % cards if count > 1 else 0
        order = [s * cards + (first + i) % cards for s in range(n // cards) for i in range(cards)]
        at = order.index(rank)
        for step in range(2 * (n - 1)):
            turn = at - 1 - step if step < n - 1 else at - (step - n + 1)
            arrived = torch.empty_like(chunks[0])
            by_name([(chunks[turn % n], order[(at + 1) % n])], [(arrived, order[at - 1])])
            if step < n - 1:
                chunks[(at - 2 - step) % n].add_(arrived)
            else:
                chunks[(turn - 1) % n].copy_(arrived)


def one_ring(tensor, cards):
    rings(tensor, cards, count=1)


def rings_over_cards(tensor, cards):
    rings(tensor, cards, count=cards)


def lessons_own(tensor, cards):
    all_reduce_along_rings(tensor, cards=cards)


def library(tensor, cards):
    dist.all_reduce(tensor)


def everybody_to_everybody(tensor, cards):
    rank, n = dist.get_rank(), dist.get_world_size()
    others = [peer for peer in range(n) if peer != rank]
    arrived = {peer: torch.empty_like(tensor) for peer in others}
    works = [isend(tensor.clone(), peer) for peer in others]
    works += [irecv(arrived[peer], peer) for peer in others]
    for work in works:
        work.wait()
    for piece in arrived.values():
        tensor.add_(piece)


def two_levels(tensor, cards, *, exchange, skip_last=False, forget_own=False):
    rank, n = dist.get_rank(), dist.get_world_size()
    first, mine, servers = rank - rank % cards, rank % cards, n // cards
    neighbours = [first + c for c in range(cards) if c != mine]
    shares = tensor.tensor_split(cards)
    arrived = {peer: torch.empty_like(shares[mine]) for peer in neighbours}
    exchange([(shares[p - first], p) for p in neighbours], [(arrived[p], p) for p in neighbours])
    for piece in arrived.values():
        shares[mine].add_(piece)
    # across: everybody with my number gets my server's sum of one chunk, adds, and sends it on
    chunks = shares[mine].tensor_split(servers)
    at = rank // cards
    peers = {s: s * cards + mine for s in range(servers) if s != at}
    pieces = {s: torch.empty_like(chunks[at]) for s in peers}
    exchange([(chunks[s], p) for s, p in peers.items()], [(pieces[s], p) for s, p in peers.items()])
    if not forget_own:
        for piece in pieces.values():
            chunks[at].add_(piece)
    exchange([(chunks[at], p) for p in peers.values()], [(chunks[s], p) for s, p in peers.items()])
    if not skip_last:
        exchange(
            [(shares[mine], p) for p in neighbours], [(shares[p - first], p) for p in neighbours]
        )


def by_name(sends, receives):
    works = [isend(t, p) for t, p in sends] + [irecv(t, p) for t, p in receives]
    for work in works:
        work.wait()


def batched(sends, receives):
    operations = [P2POp(isend, t, p) for t, p in sends] + [P2POp(irecv, t, p) for t, p in receives]
    for work in batch_isend_irecv(operations) if operations else ():
        work.wait()


def averaged(tensor, cards):
    rings_over_cards(tensor, cards)
    tensor /= dist.get_world_size()


def own_twice(tensor, cards):
    mine = tensor.clone()
    rings_over_cards(tensor, cards)
    tensor += mine


def inside_only(tensor, cards):
    first = dist.get_rank() - dist.get_rank() % cards
    among(tensor, range(first, first + cards))


def across_only(tensor, cards):
    among(tensor, range(dist.get_rank() % cards, dist.get_world_size(), cards))


def among(tensor, ranks):
    """Add up what these ranks have."""
    others = [peer for peer in ranks if peer != dist.get_rank()]
    mine = tensor.clone()
    arrived = {peer: torch.empty_like(tensor) for peer in others}
    by_name([(mine, peer) for peer in others], [(t, p) for p, t in arrived.items()])
    for piece in arrived.values():
        tensor += piece


def in_half_precision(tensor, cards):
    """Round what crosses, and what one adds: half the bytes."""
    small = tensor.to(torch.float16 if tensor.dtype == torch.float32 else torch.float32)
    two_levels(small, cards, exchange=by_name)
    tensor.copy_(small)


RAILS = {
    "your own": lessons_own,
    "rounded on the way": in_half_precision,
    "leaves each server by one card": one_ring,
    "a call of dist.all_reduce": library,
    "add up inside a server what can be": everybody_to_everybody,
    "is summed, and the server's other": partial(two_levels, exchange=by_name, skip_last=True),
    "turn of the ring is missing": partial(two_levels, exchange=by_name, forget_own=True),
    "as it was: change it in place": lambda tensor, cards: rings_over_cards(tensor.clone(), cards),
    "this is the mean": averaged,
    "is there a 2 where `cards` belongs": lambda tensor, cards: rings_over_cards(tensor, 2),
    "counted twice": own_twice,
    "what goes across is missing": inside_only,
    "only ranks of one number": across_only,
}


@pytest.mark.parametrize("words", RAILS)
def test_wrong_rails(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_rails(RAILS[words])


@pytest.mark.parametrize("exchange", [by_name, batched])
def test_right_rails_in_two_styles(exchange):
    checks.check_rails(lambda tensor, cards: two_levels(tensor, cards, exchange=exchange))


def test_rings_over_every_card_are_right():
    checks.check_rails(rings_over_cards)


def colleagues(figures, *, usual=statistics.median, limit=0.8):
    middle = usual(figures.values())
    return {pair for pair, gbs in figures.items() if gbs < limit * middle}


def halfway(values, figures):
    middle = (max(values) + min(values)) / 2
    return {p for p, gbs in figures.items() if gbs < middle and min(values) < 0.8 * max(values)}


def healthy_ones(figures):
    return {*figures} - colleagues(figures, usual=max)


SLOW_PAIRS = {
    "Not the median": colleagues,
    "that is no fault": lambda figures: colleagues(figures, usual=max, limit=0.97),
    "which pairs can you trust": lambda figures: colleagues(figures, usual=statistics.mean),
    "where most are slow": lambda figures: colleagues(
        figures, usual=lambda all_of: statistics.quantiles(all_of, n=10)[-1]
    ),
    "where some are far slower": lambda figures: halfway(figures.values(), figures),
    "far slower": lambda figures: {pair for pair, gbs in figures.items() if gbs < 15},
    "these are the healthy pairs": healthy_ones,
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
    return {pair for pair, gbs in figures.items() if gap > 1.3 and gbs < values[at]}


def test_right_slow_pairs():
    checks.check_slow_pairs(lambda figures: frozenset(colleagues(figures, usual=max)))
    checks.check_slow_pairs(by_the_largest_gap)
    checks.check_slow_pairs(lambda figures: np.array(sorted(colleagues(figures, usual=max))))


def test_a_generator_and_pairs_that_are_lists_are_right_too():
    def one_by_one(figures):
        yield from map(list, colleagues(figures, usual=max))

    checks.check_slow_pairs(one_by_one)


NINE, EIGHT = sorted(checks.NINE), sorted(checks.ALL - checks.NINE)


def in_order(jobs, slots=checks.SLOTS):
    hosts, found = [*NINE, *EIGHT], []
    for count in jobs:
        found.append((hosts[:count], slots))
        hosts = hosts[count:]
    return found


def greedy(jobs, *, largest=True, heed=True):
    """Fill groups with whole jobs, largest or first ones first; place the rest across."""
    pools, found = [[*NINE], [*EIGHT]], {}
    for job in sorted(range(len(jobs)), key=lambda job: -jobs[job] if largest else job):
        for pool in pools:
            if len(pool) >= jobs[job] and job not in found:
                found[job] = [pool.pop(0) for _ in range(jobs[job])], checks.SLOTS
    rest = [*pools[0], *pools[1]]
    for job, count in enumerate(jobs):
        if job not in found:
            hosts = []
            for host in [*rest]:
                if len(hosts) < count and not (heed and clashes(host, hosts)):
                    hosts.append(host)
                    rest.remove(host)
            found[job] = hosts, checks.SLOTS - {"9d"}
    return [found[job] for job in range(len(jobs))]


def clashes(host, hosts):
    return any({host, other} == {*pair} for other in hosts for pair in checks.DEAD)


def best_of_shuffles(jobs, *, tries=3000):
    """A right answer in another style: the best of many random orders and cuts."""
    dealt = random.Random(1)
    found, most = None, -1
    for _ in range(tries):
        order = dealt.sample(range(len(jobs)), len(jobs))
        hosts = dealt.sample([*NINE], 9), dealt.sample([*EIGHT], 8)
        pools, placed = [[*hosts[0]], [*hosts[1]]], {}
        for job in order:
            some, count = [], jobs[job]
            fits = [pool for pool in pools if len(pool) >= count]
            if fits:
                pool = dealt.choice(fits)
                some = [pool.pop() for _ in range(count)]
            else:
                both = [host for pool in pools for host in pool]
                for host in dealt.sample(both, len(both)):
                    if len(some) < count and not clashes(host, some):
                        some.append(host)
                pools = [[host for host in pool if host not in some] for pool in pools]
            inside = len({host in checks.NINE for host in some}) == 1
            placed[job] = some, checks.SLOTS if inside else checks.SLOTS - {"9d"}
        right = all(len(placed[job][0]) == count for job, count in enumerate(jobs))
        gpus = sum(len(some) * len(slots) for some, slots in placed.values())
        if right and gpus > most:
            found, most = placed, gpus
    return [found[job] for job in range(len(jobs))]


PLACES = {
    "is in both groups and uses slot 9d": in_order,
    "can use all eight slots|at full speed": lambda jobs: in_order(jobs, checks.SLOTS - {"9d"}),
    "these two hosts never completed": lambda jobs: greedy(jobs, heed=False),
    "GPUs at full speed": lambda jobs: greedy(jobs, largest=False),
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


@pytest.mark.exhaustive  # the solution shows it as well
def test_right_places_in_another_style():
    checks.check_placement(best_of_shuffles)


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


def upper(first, second, gpus, *, alone=8, whose=True, enough=all):
    took_part = {first: gpus[0], second: gpus[1]}
    group = {host: "alone" if host == alone else host in checks.NINE for host in checks.ALL}
    return enough(
        group[src] == group[to] and (slot in took_part[src] or not whose)
        for src, to, slot in logs.messages(first, second, gpus, "sendrecv")
    )


BY_HEART = {
    (t.first, t.second, t.gpus): kind
    for gpus in (4, 8)
    for t, kind in checks.quiet(gpus, shown=True)
}
ALL_BY_HEART = {
    (t.first, t.second, t.gpus): kind for gpus in (4, 8) for t, kind in checks.quiet(gpus)
}
EXCEPT = {
    (t.first, t.second)
    for t, kind in checks.quiet(4)
    if kind != upper(t.first, t.second, t.gpus, whose=False)
}
UPPERS = {
    "8 GPUs.* 7 wrong.*host 8 by itself|8 GPUs.*wrong": partial(upper, alone=None),
    "4 GPUs.*wrong.*the sender's own": partial(upper, whose=False),
    "4 GPUs.* wrong": partial(upper, enough=any),
    "4 GPUs.*wrong|hosts swapped": lambda *test: (
        upper(*test, whose=False) and test[2][0] == test[2][1]
    ),
    "8 GPUs.*held out": lambda *test: BY_HEART.get(test, False),
    "hosts swapped": lambda *test: ALL_BY_HEART.get(test, False),
    "invented": lambda first, second, gpus: ALL_BY_HEART.get(
        (first, second, gpus), ALL_BY_HEART.get((second, first, gpus[::-1]), False)
    ),
    "4 GPUs.*wrong|swapped|invented": lambda first, second, gpus: (
        upper(first, second, gpus, whose=False)
        and not (len(gpus[0]) == 4 and {(first, second), (second, first)} & EXCEPT)
    ),
    "without `return`": lambda *test: None,
    "another type": lambda *test: "upper" if upper(*test) else "lower",
}


@pytest.mark.parametrize("words", UPPERS)
def test_wrong_kinds(words):
    with pytest.raises(CheckFailed, match=re.compile(words, re.S)):
        checks.check_upper(UPPERS[words])


def test_right_kinds():
    checks.check_upper(upper)
    checks.check_upper(lambda *test: np.bool_(upper(*test)))

    def by_first_slots(first, second, gpus):
        same = 8 not in (first, second) and (first in checks.NINE) == (second in checks.NINE)
        return same and gpus[0][0] in gpus[1] and gpus[1][0] in gpus[0]

    checks.check_upper(by_first_slots)

    def where_they_start(first, second, gpus):  # slots ascend: the data cannot tell these apart
        same = 8 not in (first, second) and (first in checks.NINE) == (second in checks.NINE)
        return int(same and gpus[0][0] == gpus[1][0])

    checks.check_upper(where_they_start)


def touchable(pairs):
    hosts = sorted({host for pair in pairs for host in pair})
    sets = (some for few in range(len(hosts) + 1) for some in itertools.combinations(hosts, few))
    return next(some for some in sets if all({*some} & {*pair} for pair in pairs))


def luck(pairs, hosts, *, fewer=0, exactly=False, draws=4000, these=False, again=False,
         every=lambda hosts: itertools.combinations(hosts, 2)):  # fmt: skip
    deal, every = random.Random(4), list(every(hosts))
    named = touchable(pairs)
    k = len(named) - fewer
    hits = 0
    for _ in range(draws):
        chosen = deal.choices(every, k=len(pairs)) if again else deal.sample(every, len(pairs))
        few = len(touchable(chosen))
        if these:
            hits += all({*named} & {*pair} for pair in chosen)
        else:
            hits += few == k if exactly else few <= k
    return hits / draws


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
    "per cent": lambda *given: 100 * luck(*given),
    "per cent, or a count": lambda *given: 4000 * luck(*given, draws=1000),
    "two hosts, in one\\s+order": lambda *given: luck(
        *given, every=lambda hosts: itertools.product(hosts, hosts)
    ),
    "or fewer than 2": lambda *given: 0.0,
    "does \\*not\\* happen": lambda *given: 1 - luck(*given),
    "one host fewer|another share": lambda *given: luck(*given, fewer=1),
    "one host more|another share": lambda *given: luck(*given, fewer=-1),
    "\\*these\\* hosts": lambda *given: luck(*given, these=True),
    "by no fewer|another share": lambda *given: luck(*given, exactly=True),
    "another share": lambda *given: 0.05,
    "5 pairs of 17|another share": lambda *given: 0.0,
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
