"""Checks of lesson 06: three collectives by hand, a broadcast in turn, and two predictions.

A function is tried on data that differ by rank and place, on shapes that do not divide, on several
numbers of ranks, and on a tensor so large that a race shows. How it was done comes first: no
collectives, every handle waited for, no buffer used before. Then come the values, then the costs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from course.checks import checking
from course.checks.checking import at_most, hold
from course.checks.trial import Case, Ran, sent, trials
from course.comm.rounds import count_rounds
from course.lessons.equivalent_collectives.model import CLAIMS
from labkit.measure.records import bus_factor

BIG = 2**18
"""Elements whose messages do not fit into the kernel's buffers; there odd ranks start late."""


def check_ring_all_reduce(ring_all_reduce: Callable[[torch.Tensor], None]) -> None:
    """Judge 6.1: the sum in place, 2(n-1)/n S sent by a rank in 2(n-1) messages, 0.5 S of scratch.

    On 1, 3 and 4 ranks, with lengths that divide, that do not, and that are below n.
    """
    turns = """the chunk that a rank receives is the one that its left neighbour sends: write both
        down for n = 3. In the first turn it is received into a buffer and added; the second begins
        with the complete chunk. Are whole chunks right? Then a turn is missing"""
    lean = """the values are right, but in a ring a rank sends to its right neighbour only, one
        chunk of S/n in each of 2(n-1) rounds: neither whole tensors, nor a round more"""
    par = "1.5 S sent per rank, 6 messages and 0.5 S of scratch on 4 ranks"
    with checking.exercise("6.1", ring_all_reduce, par=par) as verdict:
        shapes = [(4000,), (4001,), (3,), (), (12, 7), (BIG,)]
        cases = [Case(3, (60,)), Case(3, (301,)), *(Case(4, shape) for shape in shapes)]
        cases += [Case(4, (4000,), torch.int64), Case(1, (61,))]
        for case, runs in _tried(ring_all_reduce, cases, turns, scratch=2 / 4):
            n, busiest = case.world_size, sent(runs).sum(axis=1).max() / case.dtype.itemsize
            messages = max(len(run.messages) for run in runs)
            most, rounds = 2 * (case.numel - case.numel // n), 2 * (n - 1)
            expected = f"{case}: at most {most} elements in {rounds} messages sent by a rank"
            in_short = f"{busiest:g} elements in {messages} messages by the busiest"
            hold(busiest <= most and messages <= rounds, expected, in_short, lean)
            if case.numel == BIG:
                verdict.reached = f"{busiest / case.numel:.4g} S and {messages} messages on 4 ranks"


def check_broadcast_in_turn(broadcast_in_turn: Callable[..., None]) -> None:
    """Judge 6.2: values on 1, 4 and 5 ranks, log2(n) rounds, rounded up, one send at a time."""
    shared = "two sends at once share the link, and both arrive late: wait in between"
    doubles = """whoever has the tensor passes it on in every round, so their number doubles: a
        chain, or a root that serves all, takes n - 1"""
    par = "2 rounds on 4 ranks, 3 on 5 to 8, one send at a time"
    with checking.exercise("6.2", broadcast_in_turn, par=par) as verdict:
        settings = [(4, (804,), 0), (4, (BIG,), 2), (5, (12, 5), 4), (5, (), 3), (1, (803,), 0)]
        cases = [Case(n, shape, options={"src": src}) for n, shape, src in settings]
        reached = {}
        for case, runs in _tried(broadcast_in_turn, cases, FROM_SRC):
            for rank, run in enumerate(runs):
                pairs = itertools.pairwise(run.messages)
                in_turn = all(a.waited and a.waited <= b.at for a, b in pairs)
                rule = f"{case}, rank {rank}: a send ends before the next one begins"
                hold(in_turn, rule, "one begins while another is under way", shared)
            n, rounds = case.world_size, count_rounds([run.report for run in runs])
            at_most(rounds, math.ceil(math.log2(n)), what=f"{case}: rounds", meaning=doubles)
            reached[n] = rounds
        verdict.reached = f"{reached[4]} rounds on 4 ranks, {reached[5]} on 5"


def check_recursive_doubling(recursive_doubling: Callable[[torch.Tensor], None]) -> None:
    """Judge 6.3: the sum in place, in log2(n) rounds, two more off the powers of two; 2 S scratch.

    On 1, 2, 4, 5, 6, 7 and 8 ranks.
    """
    swaps = """in round k every rank swaps its whole sum with the rank 2**k away, receives into a
        buffer of its own, and adds. Off the powers of two some hand theirs over before"""
    disguise = f"a ring or a tree in disguise, or two exchanges where one will do: {swaps}"
    par, raises = "2 rounds on 4 ranks, 4 rounds on 6, 2 S of scratch", {"is none of": swaps}
    with checking.exercise("6.3", recursive_doubling, par=par, raises=raises) as verdict:
        cases = [Case(2, (64,)), Case(4, (64,)), Case(4, (64,), torch.int64), Case(4, (4 * BIG,))]
        cases += [Case(8, (64,)), Case(7, (56,))]  # of 7, three hand theirs over
        cases += [Case(n, shape) for n in (5, 6, 1) for shape in ((60,), (5, 12), ())]
        reached = {}
        for case, runs in _tried(recursive_doubling, cases, swaps, scratch=2):
            n, rounds = case.world_size, count_rounds([run.report for run in runs])
            fewest = math.floor(math.log2(n)) + (2 if n & (n - 1) else 0)
            at_most(rounds, fewest, what=f"{case}: rounds", meaning=disguise)
            reached[n] = rounds
        verdict.reached = f"{reached[4]} rounds on 4 ranks, {reached[6]} on 6"


FROM_SRC = "count ranks from src, modulo n, and leave out those that do not exist"


def _tried(
    way: Callable[..., None], cases: Sequence[Case], meaning: str, scratch: float = math.inf
) -> Iterator[tuple[Case, list[Ran]]]:
    """Try the cases, hold values and, in S, scratch; `meaning`: of wrong values in a plain case."""
    own = """these are still this rank's own numbers: did any arrive? Write into it, or views of it
        (tensor += x adds in place; tensor = tensor + x and clone make another tensor)"""
    tried = [replace(case, late=0.05 if case.numel >= BIG else 0.0) for case in cases]
    for case, ranks in trials(way, tried, by_hand=True, timeout=5.0):
        src, is_big = case.options.get("src"), case.numel >= BIG
        expected = case.total() if src is None else case.data(src)
        special = {
            "keep the tensor's dtype, also in scratch": case.dtype != torch.float32,
            "right on small tensors, wrong on a large one: a race through numpy?": is_big,
            "there may be any number of dimensions, and pieces that differ in length or are empty: "
            "cut tensor.view(-1) with tensor_split": case.numel % case.world_size > 0,
        }
        usual = next((hint for hint, fits in special.items() if fits), meaning)
        for rank, ran in enumerate(ranks):
            mistakes = {own: case.data(rank)}
            if src:
                mistakes = {f"that is rank 0's tensor: {meaning}": case.data(0), **mistakes}
            words = {"what": f"{case}, rank {rank}", "meaning": usual, "mistakes": mistakes}
            checking.same_values(ran.given[0], expected, **words)
        if is_big:
            peak = max(ran.peak for ran in ranks) / case.nbytes
            copies = "copies: tensor_split gives views, and one buffer to receive into is enough"
            at_most(peak, scratch, what=f"{case}: scratch memory, in S", meaning=copies)
        yield case, ranks


VERDICTS = ("possible", "needs a switch that adds", "impossible")


def check_audit(verdicts: dict[str, str]) -> None:
    """Judge 6.4: one of `VERDICTS` for each of `CLAIMS`; say what refutes a wrong one."""
    with checking.exercise("6.4", par="6 of 6 verdicts") as verdict:
        form = "keep the form of the cell above: a dict, with an answer for each letter"
        is_form = isinstance(verdicts, dict) and verdicts.keys() == CLAIMS.keys()
        hold(is_form, f"a dict with {', '.join(CLAIMS)}", repr(verdicts)[:200], form)
        left = [letter for letter, given in verdicts.items() if given is ...]
        hold(len(left) in (0, len(CLAIMS)), "a verdict for each letter", f"{left} are left", form)
        words = checking.plain(verdicts)
        for letter, (name, nbytes, n, seconds, link) in CLAIMS.items():
            named = checking.word(words[letter], VERDICTS, what=letter)
            rate, busbw = nbytes / seconds, nbytes / seconds * bus_factor(name, n)
            helped = name == "all_reduce" and rate * (n + 1) / n <= link
            right = VERDICTS[0 if busbw <= link else 1 if helped else 2]
            only = "only an all_reduce whose busbw is above the link, and (n+1)/n S / t is not"
            figures = f"busbw is {busbw / 1e9:.4g} GB/s, the link {link / 1e9:.4g}"
            why = only if named == VERDICTS[1] else f"{figures}: which is larger, what helps"
            hold(named == right, f"{letter}: another answer", repr(named), why)
        verdict.reached = "6 of 6"


def check_crossing(crossing: Callable[[float, float, int], float]) -> None:
    """Judge 6.5: the bytes at which ring and doubling take the same time, in five settings."""
    never = """two ranks: one round of S against two of S/2. The bytes are equal, the rounds are
        not, so the ring is never ahead: return math.inf"""
    equate = "equate 2(n-1) (alpha + beta S/n) and log2(n) (alpha + beta S)"
    with checking.exercise("6.5", crossing, par="five settings within 1 %") as verdict:
        settings = [(200e-6, 4e-8, 8), (200e-6, 4e-8, 4), (5e-6, 1e-10, 16), (1e-3, 1e-9, 64)]
        for alpha, beta, n in settings:
            rounds = math.log2(n)  # of S; the ring has 2(n-1) rounds of S/n
            right = (2 * (n - 1) - rounds) * alpha / ((rounds - 2 * (n - 1) / n) * beta)
            once = (n - 1 - rounds) * alpha / ((rounds - (n - 1) / n) * beta)
            mistakes = {
                "that is the bytes of one of the ring's messages, S/n: S is asked": right / n,
                "the ring goes around twice: 2(n-1) rounds": once,
                "the sign: the ring has more rounds, the doubling more bytes": -right,
                "that is where latency and bytes of *one* message cost the same": alpha / beta,
            }
            what = f"S for alpha={alpha:g}, beta={beta:g}, n={n}"
            value = checking.ask(crossing, alpha, beta, n, case=what)
            checking.figures([value], [(what, right, mistakes, equate)], within=0.01)
        try:
            on_two = checking.ask(crossing, 1e-4, 1e-8, 2)
        except ZeroDivisionError as error:
            on_two = error
        hold(on_two == math.inf, "math.inf on 2 ranks", repr(on_two), never)
        verdict.reached = "5 of 5"
