"""Checks of lesson 07: what is slow, rails by hand, jobs on two groups, a rule."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from course.checks import checking
from course.checks.checking import hold
from course.checks.trial import Case, Trial, sent
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.evidence import NINE
from course.lessons.eighty_gpus.experiment import carried

ALL = frozenset(range(1, 18))
SLOTS = frozenset({"1b", "43", "52", "61", "9d", "c3", "d1", "df"})
DEAD = frozenset({(2, 8), (3, 8), (5, 16), (7, 16), (8, 9)})
"""Pairs of hosts that never completed a test with 4 or 8 GPUs."""
DAYS = {
    (9, 8): 136,
    (8, 9): 136,
    (10, 7): 126,
    (5, 5, 5): 115,
    (3, 3, 3, 8): 136,
    (5, 4, 4, 4): 136,
    (15, 2): 119,
    (2, 2, 2, 2, 2, 2, 2, 2): 128,
    (14, 1, 1, 1): 122,
    (): 0,
}
"""Hosts of each job -> the most GPUs that can run at full speed."""


def check_slow_pairs(slow_pairs: Callable[[dict], Iterable]) -> None:
    """Judge exercise 7.1: `slow_pairs(figures)` returns the slow pairs of (pair -> GB/s).

    On the lesson's table, on one without a slow pair, on one with a single healthy pair, and on one
    whose slow pairs are slow in many ways, in GB/s and in tenths of that.
    """
    tests = logs.select(logs.seventeen_hosts(), collective="alltoall", gpus_per_host=8)
    lesson = {(test.first, test.second): test.busbw["16GiB"] for test in tests}
    healthy = {(a, b): 20.0 + (a * b) % 3 for a in range(6) for b in range(a)}
    single = {(a, b): 60.0 for a in range(8) for b in range(a)} | {(1, 0): 200.0}
    mixed = healthy | dict(zip(healthy, (12.0, 7.5, 4.8, 3.0, 1.9, 1.2), strict=False))
    tenths = {pair: gbs / 10 for pair, gbs in mixed.items()}
    tables = (lesson, healthy, single, mixed, tenths)
    par = "every table, whatever share of it is slow"
    with checking.exercise("7.1", slow_pairs, par=par) as verdict:
        for figures in tables:
            values = [*figures.values()]
            right = _below(0.8 * max(values), figures)
            pairs = _pairs(checking.ask(slow_pairs, figures), figures)
            usual = {
                "these are below half of the best: a slow pair may reach 60 %": [
                    _below(0.5 * max(values), figures)
                ],
                "these are below the median or the mean, which slow pairs pull down where most are "
                "slow: which pairs can you trust to be healthy?": [
                    _below(0.8 * statistics.median(values), figures),
                    _below(0.8 * statistics.mean(values), figures),
                ],
                "these are the healthy pairs: the slow ones are asked": [{*figures} - right],
                "every pair is called slow, and at least one is healthy. Is the limit a fixed "
                "figure? It differs from table to table": [{*figures}],
            }
            otherwise = (
                "healthy pairs differ by up to 10 %, which is no fault"
                if pairs - right
                else "a slow pair reaches at most 60 % of a healthy one, and some reach far less"
            )
            hold(
                pairs == right,
                f"{len(right)} slow pairs of {len(figures)}; the best has {max(values):g} GB/s",
                f"{len(pairs & right)} of them, and {len(pairs - right)} healthy ones",
                next((text for text, wrong in usual.items() if pairs in wrong), otherwise),
            )
        verdict.reached = f"all {len(tables)}"


def _below(limit: float, figures: Mapping[tuple, float]) -> set[tuple]:
    return {pair for pair, gbs in figures.items() if gbs < limit}


def _pairs(answer: Any, figures: Mapping[tuple, float]) -> set[tuple]:
    """Return pairs of hosts that are given as any sequence or set, each in either order."""
    kinds = (set, frozenset, list, tuple)
    pairs = set()
    for pair in checking.answer(answer, kinds, what="the slow pairs, in a set or a list"):
        known = {tuple(pair), tuple(pair)[::-1]} & {*figures} if isinstance(pair, kinds) else ()
        hold(known, "slow pairs, as in `figures`", repr(pair)[:80], "two hosts are asked for each")
        pairs.update(known)
    return pairs


def check_rails(all_reduce: Callable[..., None]) -> None:
    """Judge exercise 7.2: `all_reduce(tensor, cards)` over several cards, by hand.

    Two and three servers of two cards, and two of three: the sums in both dtypes, then the bytes
    that leave a server by each card.
    """
    cases = [
        Case(4, (7560,), torch.float64, {"cards": 2}),
        Case(6, (7560,), torch.float32, {"cards": 2}),
        Case(6, (7560,), torch.float64, {"cards": 3}),
    ]
    with checking.exercise("7.2", all_reduce, par="2(n-1)/n S/g on every card") as verdict:
        for case, ranks in Trial(all_reduce, by_hand=True, timeout=8.0).runs(cases):
            n, cards = case.world_size, case.options["cards"]
            for rank, ran in enumerate(ranks):
                _hold_sum(ran.given[0], case, rank)
            most = max(carried(sent(ranks), cards)) / case.nbytes
            checking.at_most(
                most,
                1.02 * 2 * (n - 1) / n / cards,
                what=f"bytes that leave a server by one card, {case}",
                unit="S",
                meaning="one ring through all ranks leaves each server by one card, and the others "
                "idle. Let all cards of a server carry a part of its sum, and across send no more "
                "than a ring would",
            )
        verdict.reached = f"{most:.2f} S on the busiest of 2 x 3 cards"


def _hold_sum(got: torch.Tensor, case: Case, rank: int) -> None:
    n, cards, total = case.world_size, case.options["cards"], case.total()
    data = [case.data(other) for other in range(n)]
    server = slice(rank - rank % cards, rank - rank % cards + cards)
    shares = zip(got.tensor_split(cards), total.tensor_split(cards), strict=True)
    ready = [torch.equal(share, right) for share, right in shares]
    otherwise = "a share is summed on its own ring only, or a turn of the ring is missing"
    if sum(ready) == 1:
        otherwise = (
            f"share {ready.index(True)} of {cards} is summed, and the server's other shares have "
            "not come back: the last phase, inside the server, is missing"
        )
    elif torch.allclose(got, total, rtol=0, atol=1e-2 * float(total.abs().max())):
        otherwise = "the numbers were rounded on the way: send them in the tensor's own dtype"
    mistakes = {
        "the tensor is as it was: change it in place, do not make a new one": data[rank],
        "this is the mean: all_reduce sums": total / n,
        "each server has its own sum: what goes across is missing": sum(data[server]),
        "only ranks of one number were added: first sum inside each server": sum(
            data[rank % cards :: cards]
        ),
    }
    what = f"rank {rank}, {case}"
    checking.same_values(got, total, what=what, mistakes=mistakes, meaning=otherwise)


def check_placement(place: Callable[[list[int]], Sequence]) -> None:
    """Judge exercise 7.3: `place(jobs)` gives each job hosts and slots, at full speed.

    On each of `DAYS`: the answer's form, what may not be, and the number of GPUs at work.
    """
    with checking.exercise("7.3", place, par="every GPU that can run at full speed") as verdict:
        for jobs, most in DAYS.items():
            what = f"place({[*jobs]})"
            placed = _placed(checking.ask(place, [*jobs], case=what), jobs, what)
            for hosts, slots in placed:
                hold(
                    "9d" not in slots or len(NINE & hosts) in (0, len(hosts)),
                    f"{what}: every job at full speed",
                    f"{sorted(hosts)} is in both groups and uses slot 9d",
                    "a message into a 9d of the nine comes from a host of the eight: keep the job "
                    "in one group, or leave that slot out",
                )
                dead = sorted(pair for pair in DEAD if {*pair} <= hosts)
                hold(
                    not dead,
                    f"{what}: every job runs",
                    f"{sorted(hosts)} holds {dead[:1]}",
                    "these two hosts never completed a test with more than one GPU (checks.DEAD): "
                    "no job may have both",
                )
            gpus = sum(len(hosts) * len(slots) for hosts, slots in placed)
            hold(
                gpus >= most,
                f"{what}: {most} GPUs at full speed",
                gpus,
                "a job inside one group can use all eight slots, one across seven: can fewer hosts "
                "be in jobs across the gap?",
            )
        verdict.reached = f"all {len(DAYS)} days"


def _placed(answer: Any, jobs: Sequence[int], what: str) -> list[tuple[set[int], set[str]]]:
    """Return each job's hosts and slots, from any sequences and sets."""
    form = f"{what}: (hosts, slots) for each job, in the order of the jobs"
    kinds = (list, tuple, set, frozenset, range)
    for pair in checking.answer(answer, (list, tuple), what=form):
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        is_pair = is_pair and all(isinstance(part, kinds) for part in pair)
        hold(is_pair, form, pair, "each job gets two things: a list of hosts, and one of slots")
        hold({*pair[1]} <= SLOTS, form, pair, "a slot is named by its address, as in checks.SLOTS")
    sizes = [len(hosts) for hosts, _ in answer]
    used = sorted(host for hosts, _ in answer for host in hosts)
    asked = f"{what}: {[*jobs]} hosts, numbered from 1 to 17, none of them twice"
    meaning = "each job gets as many hosts as it asks for, and the first answer is the first job's"
    hold(sizes == [*jobs], asked, f"jobs of {sizes}", meaning)
    hold({*used} <= ALL and len({*used}) == len(used), asked, used, "no host serves two jobs")
    return [({*hosts}, {*slots}) for hosts, slots in answer]


def quiet(gpus_per_host: int, *, shown: bool = False) -> list[tuple[logs.PairTest, bool]]:
    """Return the fast sendrecv tests, each with whether it is of the upper kind.

    `shown`: only those that exercise 7.4 shows; the others are held out.
    """
    tests = logs.select(logs.seventeen_hosts(), collective="sendrecv", gpus_per_host=gpus_per_host)
    limit = 0.98 * logs.best("sendrecv", gpus_per_host)  # nothing lies from 0.962 to 0.995
    fast = [(test, test.busbw["16GiB"] > limit) for test in tests if not test.is_slow]
    return [(test, kind) for test, kind in fast if not shown or (test.first + test.second) % 3]


def check_upper(upper: Callable[[int, int, logs.Slots], bool]) -> None:
    """Judge exercise 7.4: `upper(first, second, gpus)` on fast tests, shown and held out.

    At last all of them once more, with first and second swapped.
    """

    def tests(gpus_per_host: int, *, shown: bool = False) -> list[tuple]:
        found = quiet(gpus_per_host, shown=shown)
        return [((test.first, test.second, test.gpus), kind) for test, kind in found]

    every = [*tests(8), *tests(4)]
    swapped = [((second, first, gpus[::-1]), kind) for (first, second, gpus), kind in every]
    with checking.exercise("7.4", upper, par="none wrong, of those held out, too") as verdict:
        for what, meaning, asked in (
            (
                "8 GPUs per host",
                "the lesson's last picture shows these: two groups, and host 8 by itself",
                tests(8),
            ),
            (
                "4 GPUs per host",
                "who sends, into which slot? Does the sender's own GPU of that slot take part?",
                tests(4, shown=True),
            ),
            (
                "with those held out",
                "a rule holds for tests that you have not seen, too: what do the exceptions share?",
                every,
            ),
            (
                "hosts swapped",
                "a pair is the same pair when its second host stands first",
                swapped,
            ),
        ):
            wrong = []
            for test, kind in asked:
                is_upper = checking.ask(upper, *test)
                if is_upper not in (0, 1):
                    checking.answer(is_upper, bool, what="upper(first, second, gpus)")
                if bool(is_upper) != kind:
                    wrong.append(test)
            hold(
                not wrong,
                f"{what}: {len(asked)} tests, none wrong",
                f"{len(wrong)} wrong, the first of them {wrong[:1]}",
                meaning,
            )
        verdict.reached = f"{len(every)} of {len(every)}"
