"""Checks of lesson 07: what is slow, rails by hand, jobs on two groups, a rule."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch

from course.checks import checking
from course.checks.checking import hold
from course.checks.trial import Case, sent, trials
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.evidence import NINE
from course.lessons.eighty_gpus.experiment import carried
from course.lessons.eighty_gpus.tables import LIMITS, Figures, below, tables

ALL = frozenset(range(1, 18))
SLOTS = frozenset({"1b", "43", "52", "61", "9d", "c3", "d1", "df"})
DEAD = frozenset({(2, 8), (3, 8), (5, 16), (7, 16), (8, 9)})
"""Pairs of hosts that never completed a test with 4 or 8 GPUs."""
DAYS = {(8, 9): 136, (10, 7): 126, (3, 3, 3, 8): 136, (5, 4, 4, 4): 136, (14, 1, 1, 1): 122}
"""Hosts of each job -> the most GPUs that can run at full speed."""


FIXED = "is the limit a fixed figure? What is healthy in one table is slow in another"
WIDE = "healthy pairs differ by up to 10 %; a slow one reaches at most 60 % of a healthy one"


def check_slow_pairs(slow_pairs: Callable[[Figures], Iterable]) -> None:
    """Judge exercise 7.1: `slow_pairs(figures)` returns the slow pairs, on each of `tables`."""
    with checking.exercise("7.1", slow_pairs, par="every table, whatever share of it is slow"):
        given = [_pairs(checking.ask(slow_pairs, figures), figures) for figures in tables()]
        for figures, pairs in zip(tables(), given, strict=True):
            best = max(figures.values())
            right = below(0.8 * best, figures)
            slow = f"{len(right)} slow pairs of {len(figures)}; the best has {best:g} GB/s"
            named = f"{len(pairs & right)} of them, and {len(pairs - right)} other pairs"
            hold(pairs == right, slow, named, _why(given))


def _pairs(answer: object, figures: Figures) -> set[tuple[int, int]]:
    kinds = (set, frozenset, list, tuple)
    listed = checking.answer(answer, kinds, what="the slow pairs, in a set")
    pairs = [tuple(pair) if isinstance(pair, list) else pair for pair in listed]
    others = [pair for pair in pairs if pair not in list(figures)]
    hold(not others, "pairs, as in `figures`", others[:1], "two hosts are asked for each")
    return set(pairs)


def _why(given: list[set[tuple[int, int]]]) -> str:
    """Say by which limit all tables were judged alike."""
    for meaning, limit in LIMITS.items():
        if given == [below(limit([*figures.values()]), figures) for figures in tables()]:
            return meaning
    each = [*zip(tables(), given, strict=True)]
    slow = [figures[pair] for figures, pairs in each for pair in pairs]
    fast = [gbs for figures, pairs in each for pair, gbs in figures.items() if pair not in pairs]
    is_fixed = max(slow, default=0.0) < min(fast, default=math.inf)
    return FIXED if is_fixed else WIDE


def check_rails(all_reduce: Callable[..., None]) -> None:
    """Judge exercise 7.2: `all_reduce(tensor, cards)` over several cards, by hand.

    Three servers of two cards, two of three, one of two, and three of one: the sums, then the bytes
    that leave a server by each card.
    """
    shapes = [(6, 2, torch.float32), (6, 3, torch.float64)]
    shapes += [(2, 2, torch.float32), (3, 1, torch.float32)]
    cases = [Case(n, (7560,), dtype, {"cards": cards}) for n, cards, dtype in shapes]
    single = """one ring through all ranks leaves each server by one card: let each carry a part of
        the server's sum, and send across no more than a ring would"""
    with checking.exercise("7.2", all_reduce, par="2(n-1)/n S/g on every card") as verdict:
        reached = {}
        for case, ranks in trials(all_reduce, cases, by_hand=True, timeout=8.0):
            n, cards = case.world_size, case.options["cards"]
            for rank, ran in enumerate(ranks):
                _hold_sum(ran.given[0], case, rank)
            most, par = max(carried(sent(ranks), cards)) / case.nbytes, 2 * (n - 1) / n / cards
            what = f"bytes that leave a server by one card, {case}"
            checking.at_most(most, 1.02 * par, what=what, unit="S", meaning=single)
            reached[n, cards] = most
        verdict.reached = f"{reached[6, 3]:.2f} S on the busiest of 2 x 3 cards"


def _hold_sum(tensor: torch.Tensor, case: Case, rank: int) -> None:
    cards, total = case.options["cards"], case.total()
    data = [case.data(each) for each in range(case.world_size)]
    first, card = rank - rank % cards, rank % cards
    inside, across = sum(data[first : first + cards]), sum(data[card::cards])
    usual = {
        "the tensor is as it was: change it in place": data[rank],
        "each server has its own sum: what goes across is missing": inside,
        "only ranks of one number were added: first sum inside each server": across,
    }
    short = """a share is summed on its own ring only, or a turn of the ring is missing, or the last
        phase, in which a server's other shares come back"""
    rounded = """every sum is there, and rounded: it went through a type with fewer digits than the
        tensor's. Bytes are saved that way, but not by this exercise's rules"""
    is_close = tensor.shape == total.shape and (tensor - total).abs().max() < total.abs().max() / 50
    words = {"what": f"rank {rank}, {case}", "meaning": rounded if is_close else short}
    checking.same_values(tensor, total, **words, mistakes=usual)


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
            in_order = "each job gets as many hosts as it asks for; the first answer is the first's"
            hold(sizes == [*jobs], f"{what}: jobs of {[*jobs]}", f"jobs of {sizes}", in_order)
            used = sorted(host for hosts, _ in placed for host in hosts)
            alone = {*used} <= ALL and len({*used}) == len(used)
            hold(alone, f"{what}: hosts 1 to 17, none twice", used, "no host serves two jobs")
            for hosts, slots in placed:
                is_fast = "9d" not in slots or len(NINE & hosts) in (0, len(hosts))
                across = f"{sorted(hosts)} is in both groups and uses slot 9d"
                hold(is_fast, f"{what}: every job at full speed", across, mixed)
                runs = not any({*pair} <= hosts for pair in DEAD)
                dead = "two of these never completed a test with several GPUs: see checks.DEAD"
                hold(runs, f"{what}: every job runs", sorted(hosts), dead)
            gpus = sum(len(hosts) * len(slots) for hosts, slots in placed)
            fewer = "across the gap a job uses seven slots: can fewer hosts be in such jobs?"
            hold(gpus >= most, f"{what}: {most} GPUs at full speed", gpus, fewer)


def check_level(level: Callable[[int, int, logs.Slots], str]) -> None:
    """Judge exercise 7.4: `level(first, second, gpus)` on tests that were shown, and held out.

    Each also with first and second swapped.
    """
    shown = [test for test, _ in logs.levels(shown=True)]
    usual = {
        ("rail", "across"): "host 8 is in no group with others; the nine and the rest are groups",
        ("across", "rail"): "does each message stay in one group, and does the sender's own GPU of "
        "the receiver's slot take part?",
        ("slow", "across"): "what makes a test slow counts before what makes it a bit slower",
    }
    swapped = "a pair is the same pair when its second host stands first"
    with checking.exercise("7.4", level, par="none wrong, of those held out, too"):
        for test, right in sorted(logs.levels(), key=lambda pair: pair[0] not in shown):
            case = "shown" if test in shown else "held out"
            given = test.pair, test.gpus
            for (first, second), gpus in (given, [value[::-1] for value in given]):
                answer = checking.ask(level, first, second, gpus)
                named = checking.word(answer, logs.LEVELS, what="level")
                hosts = f"hosts {first} and {second}, slots {gpus[0]} and {gpus[1]} ({case})"
                meaning = usual.get((right, named), "") if first < second else swapped
                hold(named == right, f"{hosts}: {right}", named, meaning)
