"""Checks of lesson 07: what is slow, rails by hand, jobs on two groups, a rule."""

import statistics
from collections.abc import Callable, Iterable, Sequence

import torch

from course.checks import checking
from course.checks.checking import hold
from course.checks.trial import Case, sent, trials
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.evidence import NINE
from course.lessons.eighty_gpus.experiment import carried

ALL = frozenset(range(1, 18))
SLOTS = frozenset({"1b", "43", "52", "61", "9d", "c3", "d1", "df"})
DEAD = frozenset({(2, 8), (3, 8), (5, 16), (7, 16), (8, 9)})
"""Pairs of hosts that never completed a test with 4 or 8 GPUs."""
DAYS = {(8, 9): 136, (10, 7): 126, (3, 3, 3, 8): 136, (5, 4, 4, 4): 136, (14, 1, 1, 1): 122}
"""Hosts of each job -> the most GPUs that can run at full speed."""
LEVELS = "slow", "across", "rail"


def check_slow_pairs(slow_pairs: Callable[[dict], Iterable]) -> None:
    """Judge exercise 7.1: `slow_pairs(figures)` returns the slow pairs of (pair -> GB/s).

    On the lesson's table, on one without a slow pair, on one with a single healthy pair, and on one
    whose slow pairs are slow in many ways.
    """
    tests = logs.select(logs.seventeen_hosts(), collective="alltoall", gpus_per_host=8)
    lesson = {test.pair: test.busbw["16GiB"] for test in tests}
    healthy = {(a, b): 20.0 + (a * b) % 3 for a in range(6) for b in range(a)}
    single = {(a, b): 60.0 for a in range(8) for b in range(a)} | {(1, 0): 200.0}
    mixed = healthy | dict(zip(healthy, (12.0, 7.5, 4.8, 3.0, 1.9, 1.2), strict=False))
    with checking.exercise("7.1", slow_pairs, par="every table, whatever share of it is slow"):
        for figures in (lesson, healthy, single, mixed):
            best, median = max(figures.values()), 0.8 * statistics.median(figures.values())
            usual = {
                0.5 * best: "these are below half of the best: a slow pair may reach 60 %",
                median: "these are below 80 % of the median, which slow pairs pull down where "
                "most are slow: which pairs do you trust to be healthy?",
                2 * best: "every pair is called slow, and at least one is healthy. Is the limit a "
                "fixed figure? It differs from table to table",
                0.8 * best: "healthy pairs differ by up to 10 %; a slow one reaches at most 60 %",
            }
            below = {most: {pair for pair, gbs in figures.items() if gbs < most} for most in usual}
            answer = checking.ask(slow_pairs, figures)
            kinds = (set, frozenset, list, tuple)
            answer = checking.answer(answer, kinds, what="the slow pairs, in a set")
            no_pair = [element for element in answer if not isinstance(element, tuple)]
            hold(not no_pair, "pairs, as in `figures`", no_pair[:1], "two hosts are asked for each")
            pairs, right = {*answer}, below[0.8 * best]
            meaning = usual[next((most for most in usual if pairs == below[most]), 0.8 * best)]
            if right and not pairs:
                meaning = """no pair is called slow: does the limit come from pairs that are slow
                    themselves, or is it a fixed figure?"""
            asked = f"{len(right)} slow pairs of {len(figures)}; the best has {best:g} GB/s"
            got = f"{len(pairs & right)} of them, and {len(pairs - right)} other pairs"
            hold(pairs == right, asked, got, meaning)


def check_rails(all_reduce: Callable[..., None]) -> None:
    """Judge exercise 7.2: `all_reduce(tensor, cards)` over several cards, by hand.

    Three servers of two cards, and two of three: the sums, then the bytes that leave a server by
    each card.
    """
    kinds = ((2, torch.float32), (3, torch.float64))
    cases = [Case(6, (7560,), dtype, {"cards": cards}) for cards, dtype in kinds]
    short = """a share is summed on its own ring only, or a turn of the ring is missing, or the last
        phase, in which a server's other shares come back"""
    single = """one ring through all ranks leaves each server by one card: let each carry a part of
        the server's sum, and send across no more than a ring would"""
    with checking.exercise("7.2", all_reduce, par="2(n-1)/n S/g on every card") as verdict:
        for case, ranks in trials(all_reduce, cases, by_hand=True, timeout=8.0):
            n, cards = case.world_size, case.options["cards"]
            data = [case.data(rank) for rank in range(n)]
            for rank, ran in enumerate(ranks):
                first, card = rank - rank % cards, rank % cards
                inside, across = sum(data[first : first + cards]), sum(data[card::cards])
                usual = {
                    "the tensor is as it was: change it in place": data[rank],
                    "each server has its own sum: what goes across is missing": inside,
                    "only ranks of one number were added: first sum inside each server": across,
                }
                told = {"what": f"rank {rank}, {case}", "meaning": short, "mistakes": usual}
                checking.same_values(ran.given[0], case.total(), **told)
            most, par = max(carried(sent(ranks), cards)) / case.nbytes, 2 * (n - 1) / n / cards
            what = f"bytes that leave a server by one card, {case}"
            checking.at_most(most, 1.02 * par, what=what, unit="S", meaning=single)
        verdict.reached = f"{most:.2f} S on the busiest of 2 x 3 cards"


def check_placement(place: Callable[[list[int]], Sequence]) -> None:
    """Judge exercise 7.3: `place(jobs)` gives each job hosts and slots, at full speed.

    On each of `DAYS`: the answer's form, what may not be, and the number of GPUs at work.
    """
    mixed = """a message into a 9d of the nine comes from a host of the eight: keep the job in one
        group, or leave that slot out"""
    with checking.exercise("7.3", place, par="every GPU that can run at full speed"):
        for jobs, most in DAYS.items():
            what = f"place({[*jobs]})"
            answer = checking.ask(place, [*jobs], case=what)
            form = f"{what}: (hosts, slots) for each job, in the order of the jobs"
            for pair in checking.answer(answer, (list, tuple), what=form):
                is_pair = isinstance(pair, list | tuple) and len(pair) == 2
                several = (list, tuple, set, frozenset)
                of_sets = is_pair and all(isinstance(part, several) for part in pair)
                hold(of_sets, form, pair, "a job gets hosts, and slots: which, and not how many")
                named = all(isinstance(slot, str) for slot in pair[1]) and {*pair[1]} <= SLOTS
                hold(named, form, pair, "a job gets hosts, and slots")
            placed = [({*hosts}, {*slots}) for hosts, slots in answer]
            sizes = [len(hosts) for hosts, _ in placed]
            meaning = "each job gets as many hosts as it asks for; the first answer is the first's"
            hold(sizes == [*jobs], f"{what}: jobs of {[*jobs]}", f"jobs of {sizes}", meaning)
            used = sorted(host for hosts, _ in placed for host in hosts)
            alone = {*used} <= ALL and len({*used}) == len(used)
            hold(alone, f"{what}: hosts 1 to 17, none twice", used, "no host serves two jobs")
            for hosts, slots in placed:
                is_fast = "9d" not in slots or len(NINE & hosts) in (0, len(hosts))
                got = f"{sorted(hosts)} is in both groups and uses slot 9d"
                hold(is_fast, f"{what}: every job at full speed", got, mixed)
                runs = not any({*pair} <= hosts for pair in DEAD)
                meaning = "two of these never completed a test with several GPUs: see checks.DEAD"
                hold(runs, f"{what}: every job runs", sorted(hosts), meaning)
            gpus = sum(len(hosts) * len(slots) for hosts, slots in placed)
            meaning = "across the gap a job uses seven slots: can fewer hosts be in such jobs?"
            hold(gpus >= most, f"{what}: {most} GPUs at full speed", gpus, meaning)


def levels(*, shown: bool = False) -> list[tuple[logs.PairTest, str]]:
    """Return the sendrecv tests with 4 and 8 GPUs, each with its level: one of `LEVELS`.

    `shown`: only those that exercise 7.4 shows, two thirds; the others are held out.
    """
    found = []
    for gpus in (8, 4):
        best = logs.best("sendrecv", gpus)
        for test in logs.select(logs.seventeen_hosts(), collective="sendrecv", gpus_per_host=gpus):
            share = test.busbw["16GiB"] / best  # nothing lies from 0.08 to 0.93, or 0.962 to 0.995
            level = LEVELS[(share > 0.5) + (share > 0.98)]
            if not shown or (test.first + test.second) % 3:
                found.append((test, level))
    return found


def check_level(level: Callable[[int, int, logs.Slots], str]) -> None:
    """Judge exercise 7.4: `level(first, second, gpus)` on tests that were shown, and held out.

    Each also with first and second swapped.
    """
    shown = [test for test, _ in levels(shown=True)]
    usual = {
        ("rail", "across"): "host 8 is in no group with others; the nine and the rest are groups",
        ("across", "rail"): "does each message stay in one group, and does the sender's own GPU of "
        "the receiver's slot take part?",
        ("slow", "across"): "what makes a test slow counts before what makes it a bit slower",
    }
    swapped = "a pair is the same pair when its second host stands first"
    with checking.exercise("7.4", level, par="none wrong, of those held out, too"):
        for test, right in sorted(levels(), key=lambda pair: pair[0] not in shown):
            case = "shown" if test in shown else "held out"
            given = test.pair, test.gpus
            for (first, second), gpus in (given, [value[::-1] for value in given]):
                got = checking.ask(level, first, second, gpus)
                got = checking.word(got, LEVELS, what="level")
                asked = f"hosts {first} and {second}, slots {gpus[0]} and {gpus[1]} ({case})"
                meaning = usual.get((right, got), "") if first < second else swapped
                hold(got == right, f"{asked}: {right}", got, meaning)
