"""Checks of lesson 07: what is slow, rails by hand, jobs on two groups of hosts, the rule."""

from collections.abc import Callable, Sequence

import torch

from course import checking
from course.checking import CheckFailed
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.experiment import carried
from course.trial import Case, Ran, Trial, sent

NINE = frozenset({1, 2, 3, 4, 6, 9, 12, 16, 17})
ALL = frozenset(range(1, 18))
SLOTS = frozenset({"1b", "43", "52", "61", "9d", "c3", "d1", "df"})
JOBS = (
    ([9, 8], 136), ([8, 9], 136), ([4, 4, 4, 4], 128), ([17], 119), ([10, 7], 126),
    ([5, 5, 5], 115), ([3, 3, 3, 8], 136), ([2, 13], 107), ([5, 4, 4, 4], 136), ([6, 4, 3, 3], 128),
)  # fmt: skip
"""Hosts of each job, and the most GPUs that can take part at full speed."""


def check_slow_pairs(slow_pairs: Callable[[dict], set]) -> None:
    """Judge exercise 7.1: `slow_pairs(figures)` returns the slow pairs of (pair -> GB/s)."""
    with checking.exercise("7.1", par="every table, whatever share of it is slow") as verdict:
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
        for figures, expected in tables:
            got = checking.ask(slow_pairs, figures)
            got = checking.answer(got, (set, frozenset), what="slow_pairs(figures)")
            if got != expected:
                raise CheckFailed(
                    f"{len(expected)} slow pairs of {len(figures)}",
                    f"found {len(got & expected)} of them, and called {len(got - expected)} "
                    "healthy ones slow",
                    "healthy pairs differ by up to 10 %; that is no fault"
                    if got - expected
                    else "which pairs can you trust to be healthy, where most are slow? (Not the "
                    "median.) And how far below those is slow, where some are far slower?",
                )
        verdict.reached = f"all {len(tables)}"


def check_rails(all_reduce: Callable[..., None]) -> None:
    """Judge exercise 7.2: `all_reduce(tensor, cards)` over several cards, by hand."""
    with checking.exercise("7.2", par="2(n-1)/n S/g on every card") as verdict:
        cases = [
            Case(n, (7560,), dtype, {"cards": cards})
            for n, cards in ((4, 2), (6, 2), (6, 3))
            for dtype in (torch.float64, torch.float32)
        ]
        trial = Trial(all_reduce, by_hand=True, timeout=30.0)
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
    checking.at_most(
        most, 1.02 * par, what=f"bytes that leave a server by one card, {case}", unit="S",
        meaning=checking.diagnose(
            round(most, 3), {one_ring: round(par * cards, 3)},
            otherwise="add up inside a server what can be, let all its cards carry a part of that, "
            "and across send no more than a ring would",
        ),
    )  # fmt: skip
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
    if case.dtype == torch.float64 and torch.allclose(got, case.total(), rtol=1e-2):
        return "the numbers were rounded on the way: send them in the tensor's own dtype"
    otherwise = "a share is summed on its own ring only, or a turn of the ring is missing"
    return checking.diagnose(got, wrong, otherwise=otherwise)


def check_placement(place: Callable[[list[int]], list]) -> None:
    """Judge exercise 7.3: `place(jobs)` gives each job hosts and slots, at full speed."""
    with checking.exercise("7.3", par="every GPU that can run at full speed") as verdict:
        for jobs, most in JOBS:
            where = f"place({jobs})"
            got = checking.answer(checking.ask(place, list(jobs)), list, what=where)
            if any(not isinstance(each, (tuple, list)) or len(each) != 2 for each in got):
                meaning = "each job gets two things: its hosts, and its slots on each of them"
                raise CheckFailed(f"{where}: (hosts, slots) for each job", f"{got}", meaning)
            hosts = [host for chosen, _ in got for host in chosen]
            if [len(chosen) for chosen, _ in got] != jobs or len({*hosts} & ALL) < len(hosts):
                meaning = "each job gets as many hosts as it asks for; no host serves two jobs"
                raise CheckFailed(f"{where}: {jobs} of the hosts 1 to 17", f"{got}", meaning)
            if unknown := {slot for _, slots in got for slot in slots} - SLOTS:
                meaning = "a slot is named by its address, as in checks.SLOTS"
                raise CheckFailed(f"{where}: slots of {sorted(SLOTS)}", f"{unknown}", meaning)
            across = [c for c, slots in got if "9d" in slots and 0 < len(NINE & {*c}) < len(c)]
            if across:
                raise CheckFailed(
                    f"{where}: every job at full speed",
                    f"{sorted(across[0])} is in both groups and uses slot 9d",
                    "a message into a 9d of the nine comes from a host of the eight: keep the job "
                    "in one group, or leave that slot out",
                )
            gpus = sum(len(chosen) * len(SLOTS & {*slots}) for chosen, slots in got)
            meaning = "more jobs than need be cross the gap, or one that does not leaves slots out"
            if gpus < most:
                raise CheckFailed(f"{where}: {most} GPUs at full speed", f"{gpus}", meaning)
        verdict.reached = f"all {len(JOBS)} days"


def quiet(gpus_per_host: int) -> list[tuple[logs.PairTest, bool]]:
    """Return the fast sendrecv tests, each with whether it is of the upper kind."""
    tests = logs.select(logs.seventeen_hosts(), collective="sendrecv", gpus_per_host=gpus_per_host)
    limit = 0.98 * logs.best("sendrecv", gpus_per_host)  # nothing lies from 0.962 to 0.995
    return [(test, test.busbw["16GiB"] > limit) for test in tests if not test.is_slow]


def check_upper(upper: Callable[[int, int, logs.Slots], bool]) -> None:
    """Judge exercise 7.4: `upper(first, second, gpus)` on the fast tests with 8 and 4 GPUs."""
    with checking.exercise("7.4", par="235 tests, none wrong") as verdict:
        for gpus, meaning in (
            (8, "the lesson's last picture shows these: two groups, and host 8 by itself. "),
            (4, "who sends, into which slot? Does the sender's own GPU of that slot take part? "),
        ):
            tests = quiet(gpus)
            wrong = [t for t, kind in tests if bool(upper(t.first, t.second, t.gpus)) != kind]
            if wrong:
                one, (first, second) = wrong[0], map(" ".join, wrong[0].gpus)
                meaning += f"One of them, at {one.busbw['16GiB']:g} GB/s: hosts "
                meaning += f"{one.first} ({first}) and {one.second} ({second})"
                expected = f"{gpus} GPUs per host: {len(tests)} tests, none wrong"
                raise CheckFailed(expected, f"{len(wrong)} wrong", meaning)
        verdict.reached = "235 of 235"
