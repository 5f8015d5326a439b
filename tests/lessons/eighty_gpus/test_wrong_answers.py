"""The usual mistakes of lesson 07's exercises: each is refused, and told by its own name."""

import statistics

import pytest
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

from labkit.course.checking import CheckFailed
from labkit.lessons.eighty_gpus import checks
from labkit.lessons.eighty_gpus.programs import all_reduce_along_rings


def right_law(collective, hosts, gpus, cards, card):
    n, used = hosts * gpus, min(gpus, cards)
    return used * card if collective == "all_reduce" else (n - 1) / (n - gpus) * used / gpus * card


LAWS = {
    "one card is counted": lambda c, h, g, k, card: card,
    "fewer GPUs than cards": lambda c, h, g, k, card: (
        k * card if c == "all_reduce" else right_law(c, h, g, k, card)
    ),
    "fewer cards than GPUs": lambda c, h, g, k, card: (
        g * card if c == "all_reduce" else right_law(c, h, g, k, card)
    ),
    "do not pass a card": lambda c, h, g, k, card: (
        right_law(c, h, g, k, card) if c == "all_reduce" else min(g, k) / g * card
    ),
    "sends its own bytes": lambda c, h, g, k, card: min(g, k) * card,
    "factor (n-1)/n": lambda c, h, g, k, card: (
        right_law(c, h, g, k, card) * (1 if c == "all_reduce" else h * g / (h * g - 1))
    ),
    "without `return`": lambda c, h, g, k, card: None,
    "another type": lambda c, h, g, k, card: "48 GB/s",
}


@pytest.mark.parametrize("words", LAWS)
def test_wrong_laws(words):
    with pytest.raises(CheckFailed, match=words.replace("(", r"\(").replace(")", r"\)")):
        checks.check_law(LAWS[words])


def test_right_laws():
    checks.check_law(right_law)
    checks.check_law(lambda c, h, g, k, card: float(right_law(c, h, g, k, card)))


def one_ring(tensor, cards):
    all_reduce_along_rings(tensor, cards=cards, rings=1)


def rings_over_cards(tensor, cards):
    all_reduce_along_rings(tensor, cards=cards, rings=cards)


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
            [(shares[mine], p) for p in neighbours],
            [(shares[p - first], p) for p in neighbours],
        )


def by_name(sends, receives):
    works = [isend(t, p) for t, p in sends] + [irecv(t, p) for t, p in receives]
    for work in works:
        work.wait()


def batched(sends, receives):
    operations = [P2POp(isend, t, p) for t, p in sends] + [P2POp(irecv, t, p) for t, p in receives]
    for work in batch_isend_irecv(operations) if operations else ():
        work.wait()


def one_by_one(sends, receives):
    works = [dist.irecv(tensor, src=peer) for tensor, peer in receives]
    works += [dist.isend(tensor, dst=peer) for tensor, peer in sends]
    while works:
        works.pop().wait()


RAILS = {
    "leaves each server by one card": one_ring,
    "the library's collective": library,
    "need not leave it one by one": everybody_to_everybody,
    "a share is summed": lambda t, c: two_levels(t, c, exchange=by_name, skip_last=True),
    "turn of the ring is missing": lambda t, c: two_levels(t, c, exchange=by_name, forget_own=True),
    "summed on its own ring only": lambda t, c: None,
}


@pytest.mark.parametrize("words", RAILS)
def test_wrong_rails(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_rails(RAILS[words])


@pytest.mark.parametrize("exchange", [by_name, batched, one_by_one])
def test_right_rails_in_three_styles(exchange):
    checks.check_rails(lambda tensor, cards: two_levels(tensor, cards, exchange=exchange))


def test_rings_over_every_card_are_right():
    checks.check_rails(rings_over_cards)


def findings(matrix, *, middle=statistics.median, limit=0.8):
    entries = {(i, j): v for i, r in enumerate(matrix) for j, v in enumerate(r) if i != j}
    usual = middle(entries.values())
    return [ends for ends, value in entries.items() if value < limit * usual]


def sick(matrix, **how):
    slow = findings(matrix, **how)
    if not slow:
        return None
    if len(slow) == 1:
        return ("direction", *slow[0])
    if len(slow) == 2 and set(slow[0]) == set(slow[1]):
        return ("pair", *sorted(slow[0]))
    common = set.intersection(*map(set, slow))
    return ("host", common.pop()) if common else None


def renamed(kind, change):
    """Find the fault, and tell one kind of it wrongly."""

    def answer(matrix):
        found = sick(matrix)
        return change(*found[1:]) if found and found[0] == kind else found

    return answer


SICK = {
    "None for all": lambda m: None,
    "a host for all": lambda m: ("host", 0),
    "too strict": lambda m: sick(m, limit=0.99),
    "lists": lambda m: list(sick(m) or ()) or None,
    "direction reversed": renamed("direction", lambda a, b: ("direction", b, a)),
    "pair for a direction": renamed("direction", lambda a, b: ("pair", *sorted((a, b)))),
    "pair unsorted": renamed("pair", lambda a, b: ("pair", b, a)),
    "too lenient": lambda m: sick(m, limit=0.4),
}


@pytest.mark.parametrize("name", SICK)
def test_wrong_findings(name):
    with pytest.raises(CheckFailed):
        checks.check_sick(SICK[name])


def test_right_findings():
    checks.check_sick(sick)
    checks.check_sick(lambda m: sick(m, limit=0.7))
    checks.check_sick(lambda m: sick(m, middle=lambda v: sorted(v)[len(list(v)) // 2]))


def forecast(known, hosts, gpus):
    n, there = hosts * gpus, 10 * gpus
    return known[gpus] * (there - gpus) / (there - 1) * (n - 1) / (n - gpus)


FORECASTS = {
    "busbw is no constant": lambda known, hosts, gpus: known[gpus],
    "not for alltoall": lambda known, hosts, gpus: gpus * known[1],
    "card's speed in a row first": lambda known, hosts, gpus: known[gpus] / 5,
    "without `return`": lambda known, hosts, gpus: None,
    "another type": lambda known, hosts, gpus: [known[gpus]],
}


@pytest.mark.parametrize("words", FORECASTS)
def test_wrong_forecasts(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_forecast(FORECASTS[words])


def test_right_forecasts():
    checks.check_forecast(forecast)
    checks.check_forecast(lambda known, h, g: known[1] * (h * g - 1) / (h * g - g))
