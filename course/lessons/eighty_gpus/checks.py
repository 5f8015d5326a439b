"""Checks of lesson 07: what is slow, rails by hand, jobs on two groups, a rule, what luck does."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from numbers import Real
from typing import Any

import torch

from course.checks import checking
from course.checks.checking import CheckFailed
from course.checks.trial import Case, Ran, Trial, sent
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.evidence import NINE
from course.lessons.eighty_gpus.experiment import carried

ALL = frozenset(range(1, 18))
SLOTS = frozenset({"1b", "43", "52", "61", "9d", "c3", "d1", "df"})
DEAD = frozenset({(2, 8), (3, 8), (5, 16), (7, 16), (8, 9)})
"""Pairs of hosts that never completed a test with 4 or 8 GPUs."""
DAYS = (
    [9, 8],
    [8, 9],
    [4, 4, 4, 4],
    [10, 7],
    [5, 5, 5],
    [3, 3, 3, 8],
    [2, 13],
    [5, 4, 4, 4],
    [6, 4, 3, 3],
    [15, 2],
    [15],
    [2] * 8,
    [12, 5],
    [14, 1, 1, 1],
    [],
)
"""Hosts of each job; more days are drawn when the check runs."""


def check_slow_pairs(slow_pairs: Callable[[dict], Iterable]) -> None:
    """Judge exercise 7.1: `slow_pairs(figures)` returns the slow pairs of (pair -> GB/s)."""
    with checking.exercise(
        "7.1", slow_pairs, par="every table, whatever share of it is slow"
    ) as verdict:
        tests = logs.select(logs.seventeen_hosts(), collective="alltoall", gpus_per_host=8)
        real = {(test.first, test.second): test.busbw["16GiB"] for test in tests}
        tables = [(real, {(test.first, test.second) for test in tests if test.is_slow})]
        healthy = {(a, b): 20.0 + (a * b) % 3 for a in range(6) for b in range(a)}
        for count in (0, 1, 7, 14):
            slow = set(sorted(healthy)[:count])
            pairs = {pair: gbs * (0.6 if pair in slow else 1) for pair, gbs in healthy.items()}
            tables.append((pairs, slow))
        many = {(a, b): 60.0 for a in range(20) for b in range(a)}
        tables.append((many | {(1, 0): 200.0}, set(many) - {(1, 0)}))
        mixed = dict(zip(sorted(healthy), (12.0, 7.5, 4.8, 3.0, 1.9, 1.2), strict=False))
        tables.append((healthy | mixed, set(mixed)))
        tables.append(({pair: gbs / 10 for pair, gbs in (healthy | mixed).items()}, set(mixed)))
        for figures, expected in tables:
            got = _pairs(checking.ask(slow_pairs, figures), figures)
            if got != expected:
                raise CheckFailed(
                    f"{len(expected)} slow pairs of {len(figures)}",
                    f"found {len(got & expected)} of them, and called {len(got - expected)} "
                    "healthy ones slow",
                    _wrong_pairs(got, expected, figures),
                )
        verdict.reached = f"all {len(tables)}"


def _pairs(got: Any, figures: dict) -> set:
    """Return pairs of hosts that are given as any sequence or set, each in either order."""
    got = got.tolist() if hasattr(got, "tolist") else got
    kinds = (set, frozenset, list, tuple, dict)
    checking.answer(got, kinds, what="slow_pairs(figures), the slow pairs")
    pairs, ends = set(), {host for pair in figures for host in pair}
    for each in got:
        each = each.tolist() if hasattr(each, "tolist") else each
        if not isinstance(each, list | tuple | set | frozenset):
            meaning = "a pair is asked, as `figures` has it: two hosts"
            if isinstance(each, float):
                meaning = "these are bandwidths; the pairs that show them are asked"
            elif each in ends:
                meaning = "these are hosts; a pair of hosts is asked, as `figures` has it"
            raise CheckFailed("slow pairs, as in `figures`", repr(each)[:80], meaning)
        pair = tuple(each)
        pairs.add(pair if pair in figures else pair[::-1])
    if isinstance(got, dict) and pairs == {*figures}:
        pairs = {pair for pair, is_slow in got.items() if is_slow is True}
    if unknown := pairs - {*figures}:
        meaning = "only pairs that are in `figures` can be slow"
        raise CheckFailed("slow pairs, as in `figures`", f"{sorted(unknown)[:3]}", meaning)
    return pairs


def _wrong_pairs(got: set, expected: set, figures: dict) -> str:
    """Say what was taken for slow."""
    if got == {*figures} - expected and expected:
        return "these are the healthy pairs: the slow ones are asked"
    best = max(figures.values())
    if got == {*figures}:
        return (
            "every pair is called slow, and at least one is healthy: is the limit a constant, "
            "which differs from table to table, or does it judge hosts?"
        )
    if not got and best < 5:
        return "in this table all figures are small: how far below is slow, as a share of the best?"
    if got - expected:
        if min(figures[pair] for pair in got - expected) > 0.9 * best - 1e-9:
            return "healthy pairs differ by up to 10 %; that is no fault"
        return "a pair that is close to the best one is healthy, whatever the others show"
    return (
        "which pairs can you trust to be healthy, where most are slow? (Not the "
        "median.) And how far below those is slow, where some are far slower?"
    )


def check_rails(all_reduce: Callable[..., None]) -> None:
    """Judge exercise 7.2: `all_reduce(tensor, cards)` over several cards, by hand."""
    with checking.exercise("7.2", all_reduce, par="2(n-1)/n S/g on every card") as verdict:
        cases = [
            Case(n, (7560,), dtype, {"cards": cards})
            for n, cards in ((4, 2), (6, 2), (6, 3))
            for dtype in (torch.float64, torch.float32)
        ]
        trial = Trial(all_reduce, by_hand=True, timeout=8.0)
        for case, runs in trial.runs(cases):
            for rank, ran in enumerate(runs):
                if not torch.equal(ran.given[0], case.total()):
                    meaning = _wrong_sum(ran.given[0], case, rank)
                    what = f"rank {rank}, {case}"
                    checking.same_values(ran.given[0], case.total(), what=what, meaning=meaning)
            most = _hold_cards(case, runs)
        verdict.reached = f"{most:.2f} S on the busiest of 2 x 3 cards"


def _hold_cards(case: Case, runs: Sequence[Ran]) -> float:
    n, cards = case.world_size, case.options["cards"]
    most = max(carried(sent(runs), cards)) / case.nbytes
    par, least = 2 * (n - 1) / n / cards, 2 * (n - cards) / n / cards
    one_ring = "one ring through all ranks leaves each server by one card: the others idle"
    if cards > 2:  # with two it was right
        one_ring = "it was right with 2 cards a server: is there a 2 where `cards` belongs?"
    checking.at_most(
        most,
        1.02 * par,
        what=f"bytes that leave a server by one card, {case}",
        unit="S",
        meaning=checking.diagnose(
            round(most, 3),
            {one_ring: round(par * cards, 3)},
            otherwise="add up inside a server what can be, let all its cards carry a part of that, "
            "and across send no more than a ring would",
        ),
    )
    if most < 0.98 * least:
        raise CheckFailed(
            f"{case}: at least {least:.3f} S by the busiest card: so much must leave a server",
            f"{most:.3f} S",
            "too good to be true: the sums are exact by luck, in fewer bits than the tensor has",
        )
    return most


def _wrong_sum(got: torch.Tensor, case: Case, rank: int) -> str:
    """Say what was added up instead of everybody's tensors."""
    n, cards = case.world_size, case.options["cards"]
    own, first = {r: case.data(r) for r in range(n)}, rank - rank % cards
    wrong = {
        "the tensor is as it was: change it in place, do not make a new one": own[rank],
        "this is the mean: all_reduce sums": case.total() / n,
        "each server has its own sum: what goes across is missing": sum(
            own[r] for r in range(first, first + cards)
        ),
        "only ranks of one number were added: first sum inside each server": sum(
            own[r] for r in range(rank % cards, n, cards)
        ),
        "your own tensor is counted twice": case.total() + own[rank],
    }
    most = float(case.total().abs().max())
    if not got.isfinite().all() or torch.allclose(got, case.total(), rtol=0, atol=1e-2 * most):
        return "the numbers were rounded on the way: send them in the tensor's own dtype"
    shares = zip(got.tensor_split(cards), case.total().tensor_split(cards), strict=True)
    ready = [torch.equal(*each) for each in shares]
    if sum(ready) == 1:
        return (
            f"share {ready.index(True)} of {cards} is summed, and the server's other shares have "
            "not come back: the last phase, inside the server, is missing"
        )
    otherwise = "a share is summed on its own ring only, or a turn of the ring is missing"
    return checking.diagnose(got, wrong, otherwise=otherwise)


def check_placement(place: Callable[[list[int]], Sequence]) -> None:
    """Judge exercise 7.3: `place(jobs)` gives each job hosts and slots, at full speed."""
    with checking.exercise("7.3", place, par="every GPU that can run at full speed") as verdict:
        days = [*DAYS, *_other_days(random.Random())]
        answers = checking.ask(partial(map, place), days, limit=60.0)  # one process for all days
        for jobs, answer in zip(days, answers, strict=True):
            where = f"place({jobs})"
            got = _placed(answer, jobs, where)
            for hosts, slots in got:
                _holds(hosts, slots, where)
            gpus, most = sum(len(h) * len(s) for h, s in got), most_gpus(jobs)
            if gpus < most:
                across = [len(h) for h, _ in got if 0 < len(NINE & {*h}) < len(h)]
                meaning = (
                    f"jobs of {across} hosts are across the gap: can fewer hosts be in such jobs?"
                    if sum(across) > 8 * sum(jobs) - most
                    else "a job inside one group can use all eight slots, one across seven"
                )
                raise CheckFailed(f"{where}: {most} GPUs at full speed", f"{gpus}", meaning)
        verdict.reached = f"all {len(days)} days"


def _placed(got: Any, jobs: list[int], where: str) -> list[tuple[list[int], frozenset]]:
    """Return each job's hosts and slots, from any sequences and sets."""
    if isinstance(got, dict):
        got = [got.get(at, got.get(str(at))) for at in range(len(jobs))]
    placed = []
    for each in checking.answer(got, (list, tuple), what=where):
        if not isinstance(each, tuple | list) or len(each) != 2:
            meaning = "each job gets two things: its hosts, and its slots on each of them"
            raise CheckFailed(f"{where}: (hosts, slots) for each job", f"{each}", meaning)
        hosts, slots = (one.tolist() if hasattr(one, "tolist") else one for one in each)
        if not isinstance(hosts, list | tuple | set | frozenset | range):
            meaning = "hosts are a list of numbers, for a job of one host, too"
            raise CheckFailed(f"{where}: (hosts, slots) for each job", f"{each}", meaning)
        if not isinstance(slots, Iterable):
            meaning = "slots are a list of addresses: which of checks.SLOTS does the job use?"
            raise CheckFailed(f"{where}: (hosts, slots) for each job", f"{each}", meaning)
        if isinstance(slots, str) or (unknown := {*slots} - SLOTS):
            meaning = "a slot is named by its address, as in checks.SLOTS"
            shown = slots if isinstance(slots, str) else sorted(map(str, unknown))
            raise CheckFailed(f"{where}: slots of {sorted(SLOTS)}", f"{shown}", meaning)
        placed.append((list(hosts), frozenset(slots)))
    sizes, hosts = [len(hosts) for hosts, _ in placed], [h for hosts, _ in placed for h in hosts]
    meaning = ""
    if len(placed) < len(jobs) or (0 in sizes[: len(jobs)] and 0 not in jobs):
        meaning = "a job is left out: each gets as many hosts as it asks for"
    elif sizes != jobs:
        meaning = "each job gets as many hosts as it asks for"
        if sorted(sizes) == sorted(jobs):
            meaning = "the answers are in another order than the jobs: the first is the first job's"
    elif len({*hosts}) < len(hosts):
        meaning = "no host serves two jobs"
    elif not {*hosts} <= ALL:
        meaning = "the hosts are numbered from 1 to 17"
    if meaning:
        raise CheckFailed(f"{where}: {jobs} of the hosts 1 to 17", f"{got}"[:300], meaning)
    return placed


def _holds(hosts: list[int], slots: frozenset, where: str) -> None:
    """Hold one job to what runs at full speed."""
    if "9d" in slots and 0 < len(NINE & {*hosts}) < len(hosts):
        raise CheckFailed(
            f"{where}: every job at full speed",
            f"{sorted(hosts)} is in both groups and uses slot 9d",
            "a message into a 9d of the nine comes from a host of the eight: keep the job "
            "in one group, or leave that slot out",
        )
    if dead := sorted(pair for pair in DEAD if {*pair} <= {*hosts}):
        raise CheckFailed(
            f"{where}: every job runs",
            f"{sorted(hosts)} holds {dead[0]}",
            "these two hosts never completed a test with more than one GPU (checks.DEAD): no job "
            "may have both",
        )


_CLASSES = (
    frozenset({2, 3, 9}),
    frozenset({16}),
    frozenset({1, 4, 6, 12, 17}),
    frozenset({8}),
    frozenset({5, 7}),
    frozenset({10, 11, 13, 14, 15}),
)
"""Hosts that are alike: three sorts of the nine, three of the eight."""


def most_gpus(jobs: Iterable[int]) -> int:
    """Return the most GPUs that can run at full speed; less than 0 where the jobs do not fit."""
    return _most(tuple(sorted(jobs, reverse=True)), tuple(map(len, _CLASSES)))


@cache
def _most(left: tuple[int, ...], free: tuple[int, ...]) -> int:
    if not left:
        return 0
    best = -1000
    for taken in itertools.product(*(range(min(left[0], n) + 1) for n in free)):
        of_2, of_16, _, of_8, of_5, _ = taken
        if sum(taken) != left[0] or (of_8 and of_2) or (of_16 and of_5):
            continue
        slots = 7 if sum(taken[:3]) and sum(taken[3:]) else 8
        rest = _most(left[1:], tuple(n - k for n, k in zip(free, taken, strict=True)))
        best = max(best, slots * left[0] + rest)
    return best


def _other_days(deal: random.Random, count: int = 12) -> Iterator[list[int]]:
    """Draw days that nobody has seen."""
    while count:
        jobs, left = [], deal.randint(1, 17)
        while left and len(jobs) < 6:
            jobs.append(deal.randint(1, min(left, 15)))
            left -= jobs[-1]
        if most_gpus(jobs) > 0:
            count -= 1
            yield jobs


def quiet(gpus_per_host: int, *, shown: bool = False) -> list[tuple[logs.PairTest, bool]]:
    """Return the fast sendrecv tests, each with whether it is of the upper kind.

    `shown`: only those that exercise 7.4 shows; the others are held out.
    """
    tests = logs.select(logs.seventeen_hosts(), collective="sendrecv", gpus_per_host=gpus_per_host)
    limit = 0.98 * logs.best("sendrecv", gpus_per_host)  # nothing lies from 0.962 to 0.995
    fast = [(test, test.busbw["16GiB"] > limit) for test in tests if not test.is_slow]
    return [one for one in fast if not shown or (one[0].first + one[0].second) % 3]


def check_upper(upper: Callable[[int, int, logs.Slots], bool]) -> None:
    """Judge exercise 7.4: `upper(first, second, gpus)` on fast tests, shown, held out, invented."""
    with checking.exercise("7.4", upper, par="none wrong, of those held out, too") as verdict:
        for gpus, meaning in (
            (8, "the lesson's last picture shows these: two groups, and host 8 by itself. "),
            (4, "who sends, into which slot? Does the sender's own GPU of that slot take part? "),
        ):
            for shown in (True, False):
                cases = [
                    (t.first, t.second, t.gpus, kind, f"at {t.busbw['16GiB']:g} GB/s")
                    for t, kind in quiet(gpus, shown=shown)
                ]
                what = f"{gpus} GPUs per host, {'shown' if shown else 'with those held out'}"
                _hold_upper(upper, cases, what, meaning)
        swapped = [
            (t.second, t.first, t.gpus[::-1], kind, "the lesson's, its hosts swapped")
            for gpus in (8, 4)
            for t, kind in quiet(gpus)
        ]
        meaning = "a pair is the same pair when its second host stands first. "
        _hold_upper(upper, swapped, "hosts swapped", meaning)
        invented = [
            (first, second, gpus, _stays(first, second, gpus), "invented")
            for first, second, gpus in _other_tests(random.Random())
        ]
        meaning = "a rule holds for slots that nobody tried, too; these ascend, like the lesson's. "
        _hold_upper(upper, invented, "invented slots", meaning)
        verdict.reached = f"235 of 235, and {len(invented)} that nobody ran"


def _hold_upper(upper: Callable[..., Any], cases: list[tuple], what: str, meaning: str) -> None:
    wrong = []
    for case in cases:
        first, second, gpus, kind, _ = case
        got = upper(first, second, gpus)
        got = got.item() if hasattr(got, "item") else got
        if not isinstance(got, bool | int):
            checking.answer(got, bool, what="upper(first, second, gpus)")
        if bool(got) != kind:
            wrong.append(case)
    if wrong:
        first, second, gpus, _, words = wrong[0]
        slots = [" ".join(own) for own in gpus]
        meaning += f"One of them, {words}: hosts {first} ({slots[0]}) and {second} ({slots[1]})"
        raise CheckFailed(f"{what}: {len(cases)} tests, none wrong", f"{len(wrong)} wrong", meaning)


def _stays(first: int, second: int, gpus: logs.Slots) -> bool:
    """Tell whether both messages of a sendrecv stay on their rail and in their group."""
    group = {host: "alone" if host == 8 else str(host in NINE) for host in (first, second)}
    own = {first: gpus[0], second: gpus[1]}
    messages = logs.messages(first, second, gpus, "sendrecv")
    return all(group[src] == group[to] and slot in own[src] for src, to, slot in messages)


def _other_tests(deal: random.Random, count: int = 200) -> Iterator[tuple[int, int, logs.Slots]]:
    """Draw tests that nobody ran: two hosts, and as many slots on each, ascending."""
    for at in range(count):
        first, second = deal.sample(sorted(ALL), 2)
        if at % 2:  # half of them in one group: there the slots decide
            group = NINE if first in NINE else ALL - NINE - {8}
            first, second = deal.sample(sorted(group), 2)
        many = deal.randint(2, 8)
        slots = [tuple(sorted(deal.sample(sorted(SLOTS), many))) for _ in range(2)]
        yield first, second, (slots[0], slots[1])


CLUSTERS: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = (
    (17, tuple(sorted(DEAD))),
    (6, ((1, 2), (1, 3), (1, 4))),
    (6, ((1, 2), (3, 4), (5, 6))),
    (9, ((2, 5), (5, 7), (5, 9), (3, 5))),
    (12, ((1, 2), (2, 3), (7, 8), (8, 9), (3, 8))),
    (5, ((2, 4),)),
    (5, ((1, 2), (2, 3), (3, 4), (4, 5))),  # 0.80 where a host may be a pair with itself
)
"""How many hosts there are, and the pairs that fail."""


def check_by_luck(by_luck: Callable[[set, list], float]) -> None:
    """Judge exercise 7.5: `by_luck(pairs, hosts)`, the chance that as few hosts touch as many."""
    with checking.exercise(
        "7.5", by_luck, par="within 0.02 of the share of random choices"
    ) as verdict:
        worst = 0.0
        for count, pairs in CLUSTERS:
            hosts = list(range(1, count + 1))
            got = checking.ask(by_luck, set(pairs), hosts, limit=60.0)
            got = got.item() if hasattr(got, "item") else got
            got = checking.answer(got, Real, what="by_luck(pairs, hosts), a share")
            right = touched_share(len(pairs), fewest(pairs), count)
            if not abs(got - right) <= 0.02:
                few = fewest(pairs)
                busiest = Counter(host for pair in pairs for host in pair).most_common(1)[0][1]
                mistakes = {
                    "that is the chance that it does *not* happen": 1 - right,
                    f"touched by {few} hosts and by no fewer; as few or fewer is asked": (
                        right - touched_share(len(pairs), few - 1, count)
                    ),
                    "that is the chance for one host more": touched_share(
                        len(pairs), few + 1, count
                    ),
                    "that is the chance for one host fewer": touched_share(
                        len(pairs), few - 1, count
                    ),
                    f"you ask whether one host is in {busiest} of the pairs; all of them are to be "
                    "touched, by as few hosts as touch these": _in_one(len(pairs), busiest, count),
                }
                meaning = checking.diagnose(
                    float(got),
                    mistakes,
                    within=0.05,
                    otherwise="choose as many different pairs at random from all pairs of hosts "
                    "(two hosts, in one order), and count how often as few hosts touch every one "
                    "of them",
                )
                if abs(got - _these(len(pairs), few, count)) < 0.003:
                    meaning = (
                        f"that is how often *these* hosts touch all, or fewer than {few}; any "
                        f"{few} will do"
                    )
                if not 0 <= got <= 1:
                    meaning = "a share from 0 to 1 is asked; these are per cent, or a count"
                what = f"{len(pairs)} pairs of {count} hosts, all touched by {few}"
                raise CheckFailed(f"{what}: another share", f"{float(got):.3f}", meaning)
            worst = max(worst, abs(got - right))
        verdict.reached = f"{worst:.3f} at worst"


def fewest(pairs: Iterable[tuple[int, int]]) -> int:
    """Return the smallest number of hosts that touch all of these pairs."""
    pairs = list(pairs)
    hosts = sorted({host for pair in pairs for host in pair})
    return next(
        few
        for few in range(len(hosts) + 1)
        for chosen in itertools.combinations(hosts, few)
        if all({*pair} & {*chosen} for pair in pairs)
    )


@cache
def touched_share(pairs: int, few: int, hosts: int, deals: int = 20_000) -> float:
    """Return how often so few hosts, or fewer, touch all of so many random pairs."""
    every, deal = list(itertools.combinations(range(hosts), 2)), random.Random(3)
    if math.comb(len(every), pairs) <= deals:
        chosen = list(itertools.combinations(every, pairs))
    else:
        chosen = [deal.sample(every, pairs) for _ in range(deals)]
    return sum(_touched(each, few) for each in chosen) / len(chosen)


def _touched(pairs: Sequence[tuple[int, int]], few: int) -> bool:
    """Tell whether `few` hosts can touch all pairs: one end of the first is among them."""
    if not pairs:
        return True
    return few > 0 and any(
        _touched([pair for pair in pairs if host not in pair], few - 1) for host in pairs[0]
    )


def _these(pairs: int, few: int, hosts: int) -> float:
    """Return the chance that `few` hosts named beforehand touch all pairs."""
    apart = math.comb(hosts - few, 2)
    return math.comb(math.comb(hosts, 2) - apart, pairs) / math.comb(math.comb(hosts, 2), pairs)


def _in_one(pairs: int, busiest: int, hosts: int) -> float:
    """Return how often some host is in so many of the pairs."""
    deal, every = random.Random(5), list(itertools.combinations(range(hosts), 2))
    found = (Counter(h for pair in deal.sample(every, pairs) for h in pair) for _ in range(5000))
    return sum(max(counts.values()) >= busiest for counts in found) / 5000
