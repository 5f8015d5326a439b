"""The usual mistakes of lesson 07's exercises: each is refused, and told by its own name."""

import statistics

import pytest
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

from course.checking import CheckFailed
from course.lessons.eighty_gpus import checks
from course.lessons.eighty_gpus.programs import all_reduce_along_rings


def right_law(collective, hosts, gpus, cards, card):
    n, used = hosts * gpus, min(gpus, cards)
    return used * card if collective == "all_reduce" else (n - 1) / (n - gpus) * used / gpus * card


def law_from_a_time(collective, hosts, gpus, cards, card):
    """Take S = 1: the bytes that leave a host, by the cards in use, and the factor."""
    n, used = hosts * gpus, min(gpus, cards)
    if collective == "all_reduce":
        seconds, factor = 2 * (n - 1) / n / (used * card), 2 * (n - 1) / n
    else:
        seconds, factor = gpus * (n - gpus) / n / (used * card), (n - 1) / n
    return factor / seconds


def law_by_table(collective, hosts, gpus, cards, card):
    return {
        "all_reduce": lambda: card * (cards if cards < gpus else gpus),
        "alltoall": lambda: card * min(1.0, cards / gpus) * (hosts * gpus - 1) / (hosts - 1) / gpus,
    }[collective]()


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
    checks.check_law(law_from_a_time)
    checks.check_law(law_by_table)


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


def one_by_one(sends, receives):
    works = [dist.irecv(tensor, src=peer) for tensor, peer in receives]
    works += [dist.isend(tensor, dst=peer) for tensor, peer in sends]
    while works:
        works.pop().wait()


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


RAILS = {
    "leaves each server by one card": one_ring,
    "the library's collective": library,
    "need not leave it one by one": everybody_to_everybody,
    "a share is summed": lambda t, c: two_levels(t, c, exchange=by_name, skip_last=True),
    "turn of the ring is missing": lambda t, c: two_levels(t, c, exchange=by_name, forget_own=True),
    "as it was: change it in place": lambda t, c: t + 1,
    "this is the mean": averaged,
    "counted twice": own_twice,
    "what goes across is missing": inside_only,
    "only ranks of one number": across_only,
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
    "you found nothing": lambda m: None,
    "that is no fault": lambda m: sick(m) or ("host", 0),
    "below what is slow": lambda m: sick(m, limit=0.99),
    "tuple": lambda m: list(sick(m) or ()) or None,
    "row sends": renamed("direction", lambda a, b: ("direction", b, a)),
    "one way only": renamed("direction", lambda a, b: ("pair", *sorted((a, b)))),
    "smaller number first": renamed("pair", lambda a, b: ("pair", b, a)),
    "and below what": lambda m: sick(m, limit=0.2),
    "both directions": renamed("pair", lambda a, b: ("direction", a, b)),
    "one cause explains": renamed("host", lambda a: ("pair", a, a + 1)),
    "this is a neighbour": renamed("host", lambda a: ("host", a + 1)),
}


@pytest.mark.parametrize("words", SICK)
def test_wrong_findings(words):
    with pytest.raises(CheckFailed, match=words):
        checks.check_sick(SICK[words])


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
    "card's speed in a row first": lambda known, hosts, gpus: known[gpus] / 7,
    "this is a card's speed": lambda known, h, g: known[g] * (10 * g - g) / (10 * g - 1),
    "upside down": lambda known, h, g: (
        known[g] * (10 * g - g) / (10 * g - 1) * (h * g - g) / (h * g - 1)
    ),
    "do not make a bus bandwidth grow": lambda known, h, g: known[g] * h / 10,
    "do not multiply a bus bandwidth": lambda known, h, g: known[g] * 10 / h,
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

    def by_the_median_row(known, hosts, gpus):
        cards = [busbw * 9 * g / (10 * g - 1) for g, busbw in known.items()]
        return statistics.median(cards) / (1 - (gpus - 1) / (hosts * gpus - 1))

    checks.check_forecast(by_the_median_row)
