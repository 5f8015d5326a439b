"""Checks of lesson 3: the coalesced broadcast, two boards, a race, a bucket to choose."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from course.checks import boards, checking
from course.checks.checking import hold
from course.checks.sets import own_sets
from course.checks.trial import Case, Ran, trials
from course.comm.buckets import plan
from course.lessons.coalesced_broadcast import evidence, networks
from course.lessons.coalesced_broadcast.tensors import EMPTY, LARGE, LISTS, SMALL

CAPS = (0, 96, 120, 1_000_000)  # bytes, of exercise 3.1; 96 and 120 are reached exactly
CAP = 16_000  # bytes, of exercise 3.3; two tensors of 2,000 floats
PLACES = """the pieces of the buffer are not where the tensors expect them, or passed through
another dtype: copy, in the order of the elements"""
ANOTHER = """another bucket's values: its buffer was packed again, or received into, before this one
was unpacked"""
OWN = """the tensor has its own values still: copy the buffer back into it, after the wait (reshape
of a tensor with gaps is a copy)"""
FLYING = """with async_op=True a broadcast only begins: until the wait the buffer belongs to it, and
must not be unpacked or packed again; what flies when the loop is over has to be waited for, too"""
CLOSED = """only buckets are sent, one open for each dtype: consecutive tensors, as many as fit;
what does not fit closes its bucket for good; what is open when the loop is over is sent, too"""
ORDERS = """ranks make different calls: the buckets may depend on shapes, dtypes and cap, never on
values or on the rank"""
SUMS = """a sum in which the other ranks hold zeros gives rank src's values, but every rank
then sends and adds, and not every type can be added: give, with broadcast"""
IN_TURN = """with a wait after each start, or for whole pairs, the race is gone, and overlap with
it: wait for a broadcast only when its buffer is needed again"""


def check_coalesce(coalesce: Callable[[list[torch.Tensor], int, int], None]) -> None:
    """Judge exercise 3.1: five lists, four caps, from rank 0 of 2 and from rank 2 of 3.

    Every bit of every tensor, in place; one broadcast for each bucket of the plan, and nothing
    else; each is waited for before its buffer is used. Sets have an order of each rank's own.
    """
    with checking.exercise("3.1", coalesce, par="the broadcasts of the plan, and no other call"):
        cases = [
            Case(n, make=partial(_given, name=name, cap=cap, src=src))
            for names in (SMALL, [EMPTY])
            for n, src in ((2, 0), (3, 2))
            for name, cap in itertools.product(names, CAPS)
        ]
        for _ in _played(own_sets(coalesce), cases, PLACES):
            pass


def check_repaired(broadcast: Callable[[list[torch.Tensor], int], None]) -> None:
    """Judge exercise 3.3: five lists on 2 ranks and two of them on 3, of which some are late.

    As in 3.1; and each bucket is on its way while the one before is, with two buffers in all.
    """
    with checking.exercise("3.3", broadcast, par="rank 0's values, and no more than two buffers"):
        cases = [
            Case(n, make=partial(_given, name=name, cap=CAP), late=0.1)
            for n, names in ((2, LARGE), (3, LARGE[:2]), (2, [EMPTY]))
            for name in names
        ]
        for what, ran in _played(broadcast, cases, ANOTHER):
            pairs = [*itertools.pairwise(ran.calls)]  # all are waited for
            both = sum(after.at < before.waited for before, after in pairs)
            together = f"{what}: each bucket goes out while the one before is on its way"
            hold(both == len(pairs), together, f"{both} of {len(pairs)} did", IN_TURN)
            new = f"{what}: buffers, made in all"
            enough = "two buffers, kept and used in turn, are enough: later buckets need no new one"
            checking.at_most(ran.made / CAP, 2.5, what=new, unit="buckets", meaning=enough)


def _given(case: Case, rank: int, *, name: str, cap: int, src: int | None = None) -> tuple:
    tensors = LISTS[name]((rank - (src or 0)) % case.world_size)
    return (tensors, cap) if src is None else (tensors, cap, src)


def _played(way: Callable, cases: Sequence[Case], meaning: str) -> Iterator[tuple[str, Ran]]:
    """Hold what both exercises ask of every rank; yield what each did, with the case in words.

    `meaning` says what wrong values usually mean.
    """
    for case, ranks in trials(way, cases, checks=False, hang=ORDERS):
        name, cap, src = (case.make.keywords.get(key, 0) for key in ("name", "cap", "src"))
        wanted, *_ = case.make(case, src)
        for rank, ran in enumerate(ranks):
            what = f"{name}, cap={cap}, src={src}, {case}, rank {rank}"
            own, *_ = case.make(case, rank)
            _hold_waits(what, ran)
            _hold_source(what, ran, src)
            _hold_values(what, ran, wanted, own, meaning)
            _hold_in_place(what, ran)
            _hold_calls(what, ran, wanted, cap, src)
            yield what, ran


def _hold_waits(what: str, ran: Ran) -> None:
    early = sum(call.waited is None or call.touched is not None for call in ran.calls)
    every = f"{what}: each broadcast is waited for before its buffer is used"
    hold(not early, every, f"{early} of {len(ran.calls)} are not", FLYING)


def _hold_source(what: str, ran: Ran, src: int) -> None:
    others = sorted({call.kind for call in ran.calls} - {"broadcast"})
    usual = SUMS if "all_reduce" in others else CLOSED
    hold(not others, f"{what}: broadcasts, and no other call", others, usual)
    roots = {call.peer for call in ran.calls}
    from_src = f"{what}: broadcasts from rank {src} only"
    hold(roots <= {src}, from_src, f"from ranks {sorted(roots)}", "src says who gives")


def _hold_values(what: str, ran: Ran, wanted: list, own: list, meaning: str) -> None:
    tensors = zip(ran.given[0], wanted, own, strict=True)
    for place, (tensor, right, before) in enumerate(tensors):
        which = f"{what}, tensor {place} of shape {tuple(right.shape)}"
        checking.same_values(tensor, right, what=which, meaning=meaning, mistakes={OWN: before})


def _hold_in_place(what: str, ran: Ran) -> None:
    views = "others may hold views of a tensor: copy_ into it, do not replace its data"
    hold(ran.stays, f"{what}: the tensors stay where they are", "one has moved", views)


def _hold_calls(what: str, ran: Ran, wanted: list[torch.Tensor], cap: int, src: int) -> None:
    others = {
        "the cap is in bytes, not in elements": plan(wanted, cap=4 * cap),
        "a bucket may be exactly full": plan(wanted, cap=cap - 1),
        "each tensor has a call to itself: put in as many as fit": wanted,
    }
    calls = ((call.kind, call.peer, str(call.dtype), call.nbytes) for call in ran.calls)
    counted, exact = Counter(calls), _calls(plan(wanted, cap=cap), src)
    meanings = (text for text, buckets in others.items() if counted == _calls(buckets, src))
    planned = f"{what}: calls of kind, source, dtype, bytes: {dict(exact)}"
    hold(counted == exact, planned, dict(counted), next(meanings, CLOSED))


def _calls(buckets: Sequence, src: int) -> Counter:
    """Count the broadcasts that carry buckets."""
    return Counter(("broadcast", src, str(bucket.dtype), bucket.nbytes) for bucket in buckets)


WHO = boards.WhoWasIt("3.2", evidence.INVESTIGATION, {"first": "b", "second": "d"})


PRICES = """calls x alpha + new pages x fault, and any three buckets that follow each other, all of
them the plan's, which are seldom as large as the cap; a page that is begun counts as a whole one"""


def check_cap(best_cap: Callable[..., int | None]) -> None:
    """Judge exercise 3.4: nine networks; of two caps that cost the same either is right."""
    with checking.exercise("3.4", best_cap, par="the cheapest cap that fits") as verdict:
        for name, net in networks.NETWORKS.items():
            given = list(net.nbytes), list(net.caps), net.budget, net.alpha, net.fault
            cap = checking.ask(best_cap, *given, case=name)
            is_cap = cap in net.caps
            hold(is_cap, f"{name}: one of {net.caps}", repr(cap)[:100], "None means: all in one")
            usual = {
                net.best(largest=True): "three that follow each other, not the three largest",
                net.best(alive=1): "one bucket fits, and the loop has three at a time",
                net.best(alive=2): "two buckets fit, and the loop has a third: act 2",
                net.best(faults=False): "buffers above 32 MiB pay for their pages every time",
            }
            (costs, most), (least, _) = net.price(cap), net.price(net.best())
            is_best = most <= net.budget and math.isclose(costs, least, rel_tol=1e-9)
            best = f"{name}: {least:.6g} s with at most {net.budget} bytes at a time"
            got = f"cap {cap}, which costs {costs:.6g} s and takes {most} bytes"
            hold(is_best, best, got, net.trap or usual.get(cap, PRICES))
        verdict.reached = f"it for {len(networks.NETWORKS)} networks"
