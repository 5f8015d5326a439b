"""Checks of lesson 07: the card's law, rails by hand, sick hosts, a forecast from other rows."""

import random
import statistics
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.lessons.eighty_gpus import published
from course.lessons.eighty_gpus.experiment import carried
from labkit.measure import wire

SHAPES = ((10, 1, 8), (10, 8, 8), (2, 8, 8), (4, 8, 4), (16, 4, 1), (3, 2, 4))
"""Hosts, GPUs per host, cards per host."""


def check_law(law: Callable[..., float]) -> None:
    """Judge exercise 7.1: `law(collective, hosts, gpus, cards, card)`, a bus bandwidth in GB/s."""
    with checking.exercise("7.1", par="six clusters, two collectives") as verdict:
        for hosts, gpus, cards in SHAPES:
            for collective in ("all_reduce", "alltoall"):
                _judge_law(law, collective, hosts, gpus, cards)
        verdict.reached = f"{2 * len(SHAPES)} bus bandwidths"


def _judge_law(law: Callable, collective: str, hosts: int, gpus: int, cards: int) -> None:
    card, used = 48.9, min(gpus, cards)
    n = hosts * gpus
    reduce, spread = used * card, (n - 1) / (n - gpus) * used / gpus * card
    expected = reduce if collective == "all_reduce" else spread
    where = f"{collective}, {hosts} hosts x {gpus} GPUs with {cards} cards of {card} GB/s"
    got = checking.answer(law(collective, hosts, gpus, cards, card), float, what=where)
    if collective == "all_reduce":
        mistakes = {
            "one card is counted, though every host has several": card,
            "a host with fewer GPUs than cards cannot use them all": cards * card,
            "a host with fewer cards than GPUs: its GPUs share them": gpus * card,
        }
    else:
        mistakes = {
            "alltoall: bytes to ranks of the same host do not pass a card": used / gpus * card,
            "alltoall: each rank sends its own bytes; more cards bring no more for each": reduce,
            "alltoall: bus bandwidth has the factor (n-1)/n": n / (n - gpus) * used / gpus * card,
        }
    meaning = checking.diagnose(
        got, mistakes, otherwise="count what one card must carry, and divide", within=1e-6
    )
    checking.close_to(got, expected, within=1e-6, what=where, unit="GB/s", meaning=meaning)


def check_rails(all_reduce: Callable[..., None]) -> None:
    """Judge exercise 7.2: `all_reduce(tensor, cards)` over several cards, by hand."""
    with checking.exercise("7.2", par="2(n-1)/n S/g on every card") as verdict:
        for servers, cards in ((2, 2), (3, 2), (2, 3)):
            most = _judge_rails(all_reduce, servers, cards)
        verdict.reached = f"{most:.2f} S on the busiest of {2 * 3} cards"


def _judge_rails(all_reduce: Callable, servers: int, cards: int) -> float:
    n, length = servers * cards, 7560
    results = checking.on_ranks(_summed, all_reduce, cards, length, world_size=n, timeout=30.0)
    expected = checking.sum_over_ranks(length, world_size=n)
    for rank, (got, calls, _) in enumerate(results):
        if calls:
            raise CheckFailed(
                "only send, recv, isend, irecv and batch_isend_irecv",
                f"rank {rank} called {', '.join(sorted(calls))}",
                "the library's collective does the work here; the exercise is to write it",
            )
        if not torch.equal(got, expected):
            meaning = _wrong_sum(got, expected, rank, n, cards)
            what = f"rank {rank} of {n}, {cards} per server"
            checking.same_values(got, expected, what=what, meaning=meaning)
    sent = checking.sent([report for _, _, report in results])
    most = max(carried(sent, cards)) / (4 * length)
    par = 2 * (n - 1) / n / cards
    mistake = "one ring through all ranks leaves each server by one card: the others idle"
    checking.at_most(
        most, 1.02 * par,
        what=f"bytes that leave a server by one card, {servers} servers x {cards}", unit="S",
        meaning=checking.diagnose(
            round(most, 3), {mistake: round(par * cards, 3)},
            otherwise="what can be added up inside a server need not leave it one by one",
        ),
    )  # fmt: skip
    return most


def _wrong_sum(got: torch.Tensor, expected: torch.Tensor, rank: int, n: int, cards: int) -> str:
    """Say what was added up instead of everybody's tensors."""
    own = {r: checking.rank_data(len(got), rank=r) for r in range(n)}
    first = rank - rank % cards
    wrong = {
        "the tensor is as it was: change it in place, do not make a new one": own[rank],
        "this is the mean: all_reduce sums": expected / n,
        "each server has its own sum: what goes across is missing": sum(
            own[r] for r in range(first, first + cards)
        ),
        "only ranks of one number were added: first sum inside each server": sum(
            own[r] for r in range(rank % cards, n, cards)
        ),
        "your own tensor is counted twice": expected + own[rank],
        "your own tensor is not in the sum": expected - own[rank],
    }
    otherwise = "a share is summed on its own ring only, or a turn of the ring is missing"
    return checking.diagnose(got, wrong, otherwise=otherwise)


def _summed(all_reduce: Callable, cards: int, length: int) -> tuple:
    tensor = checking.rank_data(length, rank=dist.get_rank())
    dist.barrier()
    with wire.meter() as meter:
        all_reduce(tensor, cards)
    collectives = {call.kind for call in meter.report.calls} - {"send", "recv"}
    return tensor, collectives, meter.report


def check_sick(find_sick: Callable[..., object]) -> None:
    """Judge exercise 7.3: `find_sick(matrix)` names a host, a pair, a direction, or nothing."""
    with checking.exercise("7.3", par="40 clusters, four kinds of finding") as verdict:
        for seed in range(40):
            _judge_sick(find_sick, random.Random(seed))
        verdict.reached = "all 40"


def _judge_sick(find_sick: Callable, chance: random.Random) -> None:
    hosts = chance.randint(5, 17)
    fault = chance.choice(("host", "pair", "direction", "none"))
    a, b = chance.sample(range(hosts), 2)
    truth = {
        "host": ("host", a),
        "pair": ("pair", *sorted((a, b))),
        "direction": ("direction", a, b),
        "none": None,
    }[fault]
    usual = chance.uniform(10, 400)
    matrix = [
        [None if i == j else usual * chance.uniform(0.95, 1.05) for j in range(hosts)]
        for i in range(hosts)
    ]
    slow = chance.uniform(0.3, 0.6)
    for i in range(hosts):
        for j in range(hosts):
            hit = {
                "host": a in (i, j),
                "pair": {i, j} == {a, b},
                "direction": (i, j) == (a, b),
                "none": False,
            }[fault]
            if i != j and hit:
                matrix[i][j] *= slow
    got = find_sick(matrix)
    if got is not None:
        got = checking.answer(got, tuple, what='("host", a), ("pair", a, b), ("direction", a, b)')
    if got != truth:
        raise CheckFailed(
            f"{hosts} hosts, slow is {slow:.2f} of the usual {usual:.0f} GB/s: {truth}",
            repr(got),
            _mistaken(got, truth),
        )


_SICK = {
    "host": "a whole row and column are slow: one cause explains them, not many",
    "pair": "both directions of one pair are slow, and nothing else of either host",
    "direction": "one entry is slow and its mirror image is not: it is one way only",
}


def _mistaken(got: tuple | None, truth: tuple | None) -> str:
    """Name the mistake in a finding."""
    if got is None:
        return "something is slow and you found nothing: what is usual, and below what is slow?"
    if truth is None:
        return "healthy entries vary by 5 %; that is no fault"
    if got[:1] != truth[:1]:
        return _SICK[truth[0]]
    if got[1:] == truth[:0:-1]:
        return {
            "pair": "a pair is named with the smaller number first",
            "direction": "matrix[i][j] is from i to j: the row sends, so it is named first",
        }.get(truth[0], _SICK[truth[0]])
    if truth[0] == "host" and len(got) == 2:
        return "this is a neighbour: one number stands in *every* slow entry"
    return f"the kind is right, the place is not: {_SICK[truth[0]]}"


def check_forecast(forecast: Callable[[Mapping], float]) -> None:
    """Judge exercise 7.4: forecast alltoall on 2 hosts x 8 GPUs from the ten hosts' rows."""
    with checking.exercise("7.4", par="within 15 %, on the real figures and on others") as verdict:
        rows = published.pick(published.h100(), collective="alltoall", hosts=10)
        known = {row["gpus_per_host"]: row["busbw_gbs"] for row in rows}
        pairs = published.pick(published.h100(), collective="alltoall", hosts=2, gpus_per_host=8)
        real = statistics.median(row["busbw_gbs"] for row in pairs)
        for hosts, gpus, found, truth in (
            (2, 8, known, real),
            (3, 8, {g: _alltoall(10, g, 20.0) for g in (1, 2, 4, 8)}, _alltoall(3, 8, 20.0)),
            (2, 4, {g: _alltoall(10, g, 90.0) for g in (1, 2, 4, 8)}, _alltoall(2, 4, 90.0)),
        ):
            where = f"alltoall on {hosts} x {gpus}, from 10 hosts' {found}"
            n, there = hosts * gpus, 10 * gpus
            card = found[gpus] * (there - gpus) / (there - 1)
            got = checking.answer(forecast(found, hosts, gpus), float, what=where)
            meaning = checking.diagnose(
                got,
                {
                    "on fewer hosts more bytes stay inside: busbw is no constant": found[gpus],
                    "cards add up for all_reduce, not for alltoall": gpus * found[1],
                    "this is a card's speed; busbw counts the bytes inside a host, too": card,
                    "upside down: of n - 1 parts n - g cross a card": card * (n - gpus) / (n - 1),
                    "more hosts do not make a bus bandwidth grow": found[gpus] * hosts / 10,
                    "fewer hosts do not multiply a bus bandwidth": found[gpus] * 10 / hosts,
                },
                otherwise="find the card's speed in a row first: busbw x (n - g)/(n - 1)",
            )  # fmt: skip
            checking.close_to(got, truth, within=0.15, what=where, unit="GB/s", meaning=meaning)
        verdict.reached = f"{forecast(known, 2, 8):.0f} GB/s; the logs say {real:.0f}"


def _alltoall(hosts: int, gpus: int, card: float) -> float:
    n = hosts * gpus
    return (n - 1) / (n - gpus) * card
