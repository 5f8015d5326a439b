"""The usual mistakes of lesson 07's exercises: each is refused, and told by its own name."""

import itertools
import re
import statistics
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

from course.checking import CheckFailed
from course.lessons.eighty_gpus import checks, logs
from course.lessons.eighty_gpus.programs import all_reduce_along_rings


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
    "a share is summed": partial(two_levels, exchange=by_name, skip_last=True),
    "turn of the ring is missing": partial(two_levels, exchange=by_name, forget_own=True),
    "as it was: change it in place": lambda tensor, cards: rings_over_cards(tensor.clone(), cards),
    "this is the mean": averaged,
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


SLOW_PAIRS = {
    "Not the median": colleagues,
    "that is no fault": lambda figures: colleagues(figures, usual=max, limit=0.97),
    "which pairs can you trust": lambda figures: colleagues(figures, usual=statistics.mean),
    "where most are slow": lambda figures: colleagues(
        figures, usual=lambda all_of: statistics.quantiles(all_of, n=10)[-1]
    ),
    "where some are far slower": lambda figures: halfway(figures.values(), figures),
    "far slower": lambda figures: {pair for pair, gbs in figures.items() if gbs < 15},
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


NINE, EIGHT = sorted(checks.NINE), sorted(checks.ALL - checks.NINE)


def in_order(jobs, slots=checks.SLOTS):
    hosts, found = [*NINE, *EIGHT], []
    for count in jobs:
        found.append((hosts[:count], slots))
        hosts = hosts[count:]
    return found


PLACES = {
    "is in both groups and uses slot 9d": in_order,
    "leaves slots out": lambda jobs: in_order(jobs, checks.SLOTS - {"9d"}),
    "as many hosts as it asks for": lambda jobs: in_order(jobs)[1:],
    "no host serves two jobs": lambda jobs: [([*NINE, *EIGHT][:n], ("1b",)) for n in jobs],
    "its hosts, and its slots": lambda jobs: [hosts for hosts, _ in in_order(jobs)],
    "named by its address": lambda jobs: in_order(jobs, range(8)),
    "without `return`": lambda jobs: None,
}


@pytest.mark.parametrize("words", PLACES)
def test_wrong_places(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_placement(PLACES[words])


@pytest.mark.parametrize(("jobs", "most"), checks.JOBS, ids=str)
def test_the_best_placement_is_the_best_of_all(jobs, most):
    """A job within a group has 8 slots on each host, one across has 7: try every way."""

    def best(left, nine, eight):
        if not left:
            return 0
        first, *rest = left
        return max(
            (8 if own in (0, first) else 7) * first + best(rest, nine - own, eight - first + own)
            for own in range(first + 1)
            if own <= nine and first - own <= eight
        )

    assert best(jobs, len(NINE), len(EIGHT)) == most


def upper(first, second, gpus, *, alone=8, whose=True, enough=all):
    took_part = {first: gpus[0], second: gpus[1]}
    group = {host: "alone" if host == alone else host in checks.NINE for host in checks.ALL}
    return enough(
        group[src] == group[to] and (slot in took_part[src] or not whose)
        for src, to, slot in logs.messages(first, second, gpus, "sendrecv")
    )


UPPERS = {
    "8 GPUs.* 7 wrong.*host 8 by itself": partial(upper, alone=None),
    "4 GPUs.* 13 wrong.*the sender's own": partial(upper, whose=False),
    "4 GPUs.* wrong": partial(upper, enough=any),
    "4 GPUs.* 6 wrong": lambda *test: upper(*test, whose=False) and test[2][0] == test[2][1],
    "8 GPUs.* 57 wrong": lambda *test: None,
}


@pytest.mark.parametrize("words", UPPERS)
def test_wrong_kinds(words):
    with pytest.raises(CheckFailed, match=re.compile(words, re.S)):
        checks.check_upper(UPPERS[words])


def test_right_kinds():
    checks.check_upper(upper)

    def by_first_slots(first, second, gpus):
        same = 8 not in (first, second) and (first in checks.NINE) == (second in checks.NINE)
        return same and gpus[0][0] in gpus[1] and gpus[1][0] in gpus[0]

    checks.check_upper(by_first_slots)
