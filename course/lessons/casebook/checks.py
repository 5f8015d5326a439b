"""The checks of lesson 08: first what an answer does, which no load can change; then its gain."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.lessons.casebook.cases import CASES
from course.lessons.casebook.ward import run
from labkit.fabric.errors import FabricUnavailable
from labkit.measure.calls import CallLog

TRIES = 3
"""How often a fix is measured at most: other programs can only add time."""


def check_order(order: Callable) -> None:
    """Judge an order of peers: complete, without circles, few turns in a ring; then its gain."""
    graphs = _graphs(n := 8)
    with _judged("8.1", "connections") as verdict:
        plans = checking.on_ranks(_orders, order, graphs, world_size=n, checks=False)
        for name, peers in graphs.items():
            plan = [plans[rank][name] for rank in range(n)]
            for rank, (mine, given) in enumerate(zip(plan, peers, strict=True)):
                _same_peers(mine, given, rank=rank, name=name)
            turns = _turns(plan, name)
            if name == "ring" and turns > 4:
                raise CheckFailed(
                    f"a ring of {n} ranks is connected in 4 turns at most; 2 are possible",
                    f"{turns} turns",
                    "a queue: each pair waits for the one before it, whether upwards or downwards. "
                    "Every second pair could connect at the same time",
                )
        verdict.reached = _gain("connections", order)


def check_groups(make: Callable) -> None:
    """Judge how groups are made: the right ones, usable, without a crowd; then the gain."""
    # torch names a group that is made locally by its ranks and by how many groups a rank has so far
    # (_hash_ranks_to_str, 2.13): all members must have equally many, or they wait for ever.
    members = [[0, 1], [2, 3], [4, 5], [1, 2], [0, 3], [0, 1, 2, 3]]
    with _judged("8.2", "groups") as verdict:
        seen = checking.on_ranks(_made, make, members, world_size=6, checks=False, timeout=20)
        for rank, one in enumerate(seen):
            wanted = [ranks for ranks in members if rank in ranks]
            checking.answer(one["got"], list, what=f"rank {rank}: its groups")
            if one["ranks"] != wanted:
                raise CheckFailed(
                    f"rank {rank}: groups of {wanted}, in this order",
                    f"{one['ranks']}",
                    _wrong_groups(one["ranks"], wanted),
                )
            if one["sums"] != [float(sum(ranks)) for ranks in wanted]:
                raise CheckFailed(
                    f"rank {rank}: sums of {[float(sum(ranks)) for ranks in wanted]} in its groups",
                    f"{one['sums']}",
                    "a group is there but does not work: do all its members make it alike?",
                )
            if one["calls"].count("barrier") > 1:
                raise CheckFailed(
                    "one barrier at the end, or none",
                    f"rank {rank} made {one['calls'].count('barrier')} for {len(members)} groups",
                    "the crowd is still there: all ranks wait for each other after every group, "
                    "also after groups that they are not in",
                )
            if others := sorted({*one["calls"]} - {"barrier"}):
                raise CheckFailed(
                    "groups made without a message of yours",
                    f"rank {rank} called {', '.join(others)}",
                    "a collective waits for all ranks as a barrier does, whatever its name is",
                )
        verdict.reached = _gain("groups", make)


def check_metrics(average: Callable) -> None:
    """Judge how metrics are averaged: exactly, in one call, as figures only; then the gain."""
    n = 4
    with _judged("8.3", "metrics") as verdict:
        seen = checking.on_ranks(_averaged, average, world_size=n, checks=False, timeout=20)
        everybody = [_metrics_of(rank) for rank in range(n)]
        wanted = {name: sum(one[name] for one in everybody) / n for name in everybody[0]}
        for rank, one in enumerate(seen):
            got = checking.answer(one["got"], dict, what=f"rank {rank}: the averages by name")
            if got.keys() != wanted.keys():
                odd = sorted(map(str, got.keys() ^ wanted.keys()))[:3]
                raise CheckFailed(
                    f"rank {rank}: the names that were given",
                    f"these are missing or new: {', '.join(odd)}",
                    "every metric has an average, under its own name",
                )
            if one["changed"]:
                raise CheckFailed(
                    "the metrics as they were",
                    f"rank {rank} changed the dictionary that it was given",
                    "the caller still needs its own figures: return a new dictionary",
                )
            for name, mean in wanted.items():
                if not isinstance(got[name], int | float) or got[name] != mean:
                    raise CheckFailed(
                        f"rank {rank}: {mean!r} for {name!r}",
                        f"{got[name]!r}"[:80],
                        _wrong_mean(rank, name, got[name], everybody, wanted),
                    )
            _few_calls(rank, one["calls"], figures=len(wanted))
        verdict.reached = _gain("metrics", average)


def check_shares(shares: Callable) -> None:
    """Judge shares of a message: all paths end together; then the gain, where links can be made."""
    with _judged("8.4", "streams") as verdict:
        for rates in ([10e6, 10e6, 40e6], [5e9], [1.0, 2.0, 4.0, 8.0, 1.0], [3.0, 1.0]):
            got = checking.answer(
                checking.ask(shares, list(rates)), (list, tuple), what="a share for each path"
            )
            wanted = [rate / sum(rates) for rate in rates]
            if len(got) == len(wanted) and all(map(_close, got, wanted)):
                continue
            meaning = _wrong_shares(list(got), rates)
            raise CheckFailed(f"shares of {wanted} for rates of {rates}", f"{list(got)}", meaning)
        try:
            verdict.reached = _gain("streams", shares)
        except FabricUnavailable as reason:
            verdict.reached = f"the right shares; their gain was not measured: {reason}"


def check_deal(deal: Callable) -> None:
    """Judge how samples are dealt: each once, no rank much later than others; then the gain."""
    steps = [
        ([1, 1, 1, 2, 2, 2, 3, 3, 3, 9, 9, 9], 4),
        ([9, 1, 9, 1, 9, 1, 9, 1], 2),
        ([5, 4, 3, 3, 3], 2),
        ([7], 3),
        ([8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1], 3),
    ]
    with _judged("8.5", "late-rank") as verdict:
        for lengths, ranks in steps:
            what = "a list of sample numbers for each rank"
            got = checking.answer(checking.ask(deal, list(lengths), ranks), list, what=what)
            _each_once(got, lengths, ranks)
            loads = [sum(lengths[i] for i in own) for own in got]
            even = max(math.ceil(sum(lengths) / ranks), max(lengths))
            if max(loads) > 1.2 * even:
                raise CheckFailed(
                    f"lengths {lengths} on {ranks} ranks: nobody has more than {1.2 * even:.1f}",
                    f"the ranks have {loads}",
                    _why_uneven(got, loads, lengths, ranks),
                )
        verdict.reached = _gain("late-rank", deal)


# --- what all checks share


def _judged(number: str, name: str) -> Any:
    par = f"{CASES[name].par:g} times better, the same results"
    return checking.exercise(number, par=par)


def _gain(name: str, fix: Callable) -> str:
    """Measure a fix against the fault; the best run of each counts."""
    case, before, after = CASES[name], [], []
    for _ in range(TRIES):
        sick, well = run(case), run(case, fix)
        for rank, (was, now) in enumerate(zip(sick, well, strict=True)):
            if was["result"] != now["result"]:
                raise CheckFailed(
                    f"rank {rank} still computes {str(was['result'])[:80]}",
                    str(now["result"])[:80],
                    "the fix changed the result, not only the time",
                )
        before.append(case.cost(sick))
        after.append(case.cost(well))
        gain = min(before) / min(after)
        if gain >= case.par:
            return f"{gain:.1f} times"
    raise CheckFailed(
        f"{case.cost_name}: at least {case.par:g} times better than with the fault",
        f"{gain:.2f} times",
        f"the fault is still there: {case.suspects[case.culprit].says}",
    )


# --- 8.1


def _graphs(n: int) -> dict[str, list[list[int]]]:
    """Return symmetric graphs: for each rank the list of its peers."""
    ring = [[(rank - 1) % n, (rank + 1) % n] for rank in range(n)]
    star = [[*range(1, n)], *([0] for _ in range(1, n))]
    everybody = [[other for other in range(n) if other != rank] for rank in range(n)]
    chance = random.Random(8)
    edges = [(a, b) for a in range(n) for b in range(a) if chance.random() < 0.3]
    some = [[b if a == r else a for a, b in edges if r in (a, b)] for r in range(n)]
    for mine in [*some, *everybody]:
        chance.shuffle(mine)
    return {"ring": ring, "star": star, "random graph": some, "complete graph": everybody}


def _orders(order: Callable, graphs: dict[str, list[list[int]]]) -> dict[str, Any]:
    found, rank = {}, dist.get_rank()
    for name, peers in graphs.items():
        with checking.own_work():
            found[name] = order(peers[rank])
    return found


def _same_peers(got: Any, peers: list[int], *, rank: int, name: str) -> None:
    checking.answer(got, list, what=f"rank {rank}: its peers in order")
    if sorted(got) == sorted(peers):
        return
    if rank in got:
        meaning = "a rank does not connect to itself"
    elif set(peers) - set(got):
        meaning = "a peer is left out: it waits for this rank for ever"
    elif set(got) - set(peers):
        meaning = "there are ranks in it that are no peers: they do not expect this one"
    else:
        meaning = "a peer is in it twice: connect to each once"
    raise CheckFailed(f"{name}, rank {rank}: the peers {sorted(peers)} in some order", f"{got}",
                      meaning)  # fmt: skip


def _turns(plan: Sequence[list[int]], name: str) -> int:
    """Play the rendezvous: in each turn those pairs connect whose two ends have each other next."""
    left, turns = [list(peers) for peers in plan], 0
    while any(left):
        heads = [peers[0] if peers else None for peers in left]
        pairs = [r for r, head in enumerate(heads) if head is not None and heads[head] == r]
        if not pairs:
            waits = ", ".join(f"{r} for {h}" for r, h in enumerate(heads) if h is not None)
            raise CheckFailed(
                f"{name}: every rank gets its connections",
                f"after {turns} turns nobody can go on; ranks wait: {waits}",
                "a circle: each waits for one that waits for another. Both ends of a connection "
                "must take it at a place that they agree on, with no ties: give each connection a "
                "number of its own that both can compute",
            )
        for rank in pairs:
            left[rank].pop(0)
        turns += 1
    return turns


# --- 8.2


def _made(make: Callable, members: list[list[int]]) -> dict[str, Any]:
    given = [list(ranks) for ranks in members]
    with CallLog() as log, checking.own_work():
        got = make(given)
    groups = list(got) if isinstance(got, list | tuple) else []
    real = [isinstance(group, dist.ProcessGroup) for group in groups]
    ranks = [
        sorted(dist.get_process_group_ranks(group)) if good else None
        for group, good in zip(groups, real, strict=True)
    ]
    sums = []
    if ranks == [own for own in members if dist.get_rank() in own]:
        for group in groups:
            total = torch.tensor(float(dist.get_rank()))
            dist.all_reduce(total, group=group)
            sums.append(total.item())
    told = list(ranks) if isinstance(got, list | tuple) else None if got is None else repr(got)
    calls = [call.kind for call in log.calls]
    return {"got": told, "ranks": ranks, "sums": sums, "calls": calls}


def _wrong_groups(got: list, wanted: list[list[int]]) -> str:
    if None in got:
        return (
            "something in the list is no group of this rank: new_group gives a placeholder to "
            "ranks that are not members; leave those out"
        )
    if sorted(got) == sorted(wanted):
        return "the right groups in another order: the caller counts on the order of `members`"
    if any(own not in wanted for own in got):
        return "a group has other members than it should have"
    if len(got) < len(wanted):
        return "a group is missing: a rank may be in several, all of them are asked for"
    return "a group is there twice"


# --- 8.3


def _metrics_of(rank: int) -> dict[str, float]:
    """Return a rank's metrics: whole numbers that need 53 bits, in another order on each rank."""
    names = ["loss", "tokens", "step time", *(f"layer_{i}/load" for i in range(12))]
    metrics = {
        name: float(2**40 * (i + 1) + 4 * (rank + 1) * (7 * i + 1)) for i, name in enumerate(names)
    }
    random.Random(rank).shuffle(names)
    return {name: metrics[name] for name in names}


def _averaged(average: Callable) -> dict[str, Any]:
    given = _metrics_of(dist.get_rank())
    with CallLog() as log, checking.own_work():
        got = average(given)
    if isinstance(got, dict):
        got = {k: v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v
               for k, v in got.items()}  # fmt: skip
    changed = list(given.items()) != list(_metrics_of(dist.get_rank()).items())
    calls = [(call.kind, call.nbytes, str(call.dtype)) for call in log.calls]
    return {"got": got, "changed": changed, "calls": calls}


def _wrong_mean(
    rank: int, name: str, got: Any, everybody: list[dict], wanted: dict[str, float]
) -> str:
    n, place = len(everybody), list(everybody[rank]).index(name)
    mixed = sum(list(one.values())[place] for one in everybody) / n
    exact = wanted[name]
    mistakes = {
        "that is this rank's own figure: nothing was averaged": everybody[rank][name],
        "that is the sum: divide it by the number of ranks": exact * n,
        "divided by the number of ranks less one": exact * n / (n - 1),
        "that is the largest of the ranks' figures, not their mean": max(
            one[name] for one in everybody
        ),
        "position i means another metric on each rank: dictionaries keep the order in which they "
        "were filled. Sort the names": mixed,
    }
    close = isinstance(got, int | float) and abs(got / exact - 1) < 1e-2
    rough = "right but for rounding: use float64" if close else "the mean of this metric is wrong"
    return checking.diagnose(got, mistakes, otherwise=rough, within=1e-15)


def _few_calls(rank: int, calls: list[tuple[str, int, str]], *, figures: int) -> None:
    kinds = [kind for kind, *_ in calls]
    if any("gather" in kind or "broadcast" in kind or "to_all" in kind for kind in kinds):
        raise CheckFailed(
            "each rank's figures are summed on the way",
            f"rank {rank} called {', '.join(dict.fromkeys(kinds))}",
            "everything goes to everybody (or to one rank and back), n times as much as is "
            "needed: a mean is a sum, and there is a collective for sums",
        )
    if len(calls) > 2:
        raise CheckFailed(
            "one call for all metrics",
            f"rank {rank} made {len(calls)} calls for {figures} metrics",
            "a call for each metric pays the cost of a call each time: put them into one tensor",
        )
    if sum(nbytes for _, nbytes, _ in calls) > 8 * figures + 64:
        raise CheckFailed(
            f"{8 * figures} bytes: a float64 for each metric",
            f"rank {rank} gave {sum(nbytes for _, nbytes, _ in calls)} bytes to its calls",
            "more than the figures travels: the names are the same on every rank and may stay",
        )


# --- 8.4 and 8.5


def _close(a: Any, b: float) -> bool:
    return isinstance(a, int | float) and math.isclose(a, b, rel_tol=1e-6)


def _wrong_shares(got: list, rates: list[float]) -> str:
    n, inverse = len(rates), [1 / rate for rate in rates]
    mistakes = {
        "equal shares: the slow paths still decide": [1 / n] * n,
        "that is the time which each path needs for a byte: the slow path gets the large share": [
            one / sum(inverse) for one in inverse
        ],
        "shares of the fastest rate, not of all: they do not add up to 1": [
            rate / max(rates) for rate in rates
        ],
        "per cent: the shares are to add up to 1": [100 * rate / sum(rates) for rate in rates],
        "the rates themselves: divide by their sum": list(rates),
        "squares of the rates: twice the rate carries twice as much, not four times": [
            rate**2 / sum(r**2 for r in rates) for rate in rates
        ],
        "the right shares on the wrong paths: keep the order of the rates": [
            rate / sum(rates) for rate in sorted(rates)
        ],
    }
    for meaning, wrong in mistakes.items():
        if len(got) == n and all(map(_close, got, wrong)):
            return meaning
    if len(got) != n:
        return "a share for each path: there may be any number of paths"
    if any(map(_close, got, [1.0] * n)) and n > 1:
        return "everything on one path: the others could carry some of it meanwhile"
    if all(isinstance(share, int | float) for share in got) and not _close(sum(got), 1.0):
        return "the shares do not add up to 1: bytes are lost or sent twice"
    return "a path is done before another: its share over its rate must be the same for all"


def _each_once(got: list, lengths: list[int], ranks: int) -> None:
    if len(got) != ranks:
        raise CheckFailed(f"a list for each of {ranks} ranks", f"{len(got)} lists",
                          "a rank without samples gets an empty list")  # fmt: skip
    dealt = [sample for own in got for sample in own]
    if sorted(dealt) == list(range(len(lengths))):
        return
    if sorted(dealt) == sorted(lengths):
        meaning = "these are lengths: return the samples' numbers, that is their places in the list"
    elif len(set(dealt)) < len(dealt):
        meaning = "a sample is dealt twice: its gradient would count twice"
    else:
        meaning = "a sample is left out: balance must not cost data"
    raise CheckFailed(f"samples 0 to {len(lengths) - 1}, each once", f"{got}", meaning)


def _why_uneven(got: list, loads: list[int], lengths: list[int], ranks: int) -> str:
    counts = {len(own) for own in got}
    orders = {
        "in the order in which they come": range(len(lengths)),
        "shortest first": sorted(range(len(lengths)), key=lambda i: lengths[i]),
    }
    for name, order in orders.items():
        greedy = [0] * ranks
        for sample in order:
            greedy[greedy.index(min(greedy))] += lengths[sample]
        if sorted(loads) == sorted(greedy):
            return (
                f"dealt {name}, each to the rank that has the least so far: long ones that come "
                "last fit nowhere. Long ones first: short ones can fill gaps, long ones cannot"
            )
    if max(counts) - min(counts) <= 1:
        return (
            "equally many samples, but not equally much work: the rank with the long ones comes "
            "late, and all others wait for it in all_reduce"
        )
    if max(loads) > 0.9 * sum(lengths):
        return "nearly everything is with one rank"
    return (
        "the long samples should be dealt first, each to the rank that has the least so far: "
        "short ones can fill gaps, long ones cannot"
    )
