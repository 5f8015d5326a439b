"""Checks of lesson 04: the relay without room, and four short forms."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.checks import boards, checking
from course.checks.checking import CheckFailed
from course.checks.trial import Case, Ran, Trial
from course.lessons.p2p_topology import evidence, flows
from course.lessons.p2p_topology.topology import PUZZLE, Topology
from course.published import load
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure import timing
from labkit.measure.calls import Call
from labkit.ranks.launcher import launch

# 4.1: predict

MACHINE = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV3     PHB     NV8     SYS     0-31            0
GPU1    NV3      X      NV3     SYS     PXB     0-31            0
GPU2    PHB     NV3      X      NV2     PHB     0-31            0
GPU3    NV8     SYS     NV2      X      SYS     32-63           1
NIC0    SYS     PXB     PHB     SYS      X
"""
"""Made up, so that it cannot be looked up."""
MACHINE_RATES = {"NV1": 10e9, "PHB": 8e9, "PXB": 13e9, "SYS": 6e9}
"""Bytes per second of one NVLink and of the other classes on it."""
SENT = 120e6
"""Bytes that go from GPU 0 to GPU 2 in 4.1."""


def check_best_ways(answer: Callable[[], Sequence[float]]) -> None:
    """Judge 4.1: relay and milliseconds in one piece, then relay and milliseconds in chunks."""
    with checking.exercise("4.1", answer, par="both relays, both times"):
        got = checking.plain(_given_by(answer))
        if isinstance(got, list | tuple) and all(isinstance(x, list | tuple) for x in got):
            got = [figure for pair in got for figure in pair]  # two pairs are four figures
        machine = Topology.parse(MACHINE, MACHINE_RATES)
        whole, small = (
            {
                gpu: 1e3 * flows.relay_time(_hops(machine, gpu), nbytes=SENT, chunk=chunk)
                for gpu in (1, 3)
            }
            for chunk in (SENT, 1.0)
        )
        slower = "the slower of the two rates alone decides, and the fast hop does not help"
        both = "in one piece the second hop starts when the first has ended: add their times"
        relay = "write down the time of both relays: the best one need not be the same twice"
        asked: list[checking.Asked] = [
            ("the relay in one piece", 3, {f"{both}. That is the winner in small chunks": 1},
             relay),
            ("its ms in one piece", whole[3], {both: small[3], "that is the other relay":
             whole[1], "that is the first hop alone": 1e3 * SENT / 80e9}, both),
            ("the relay in small chunks", 1, {f"{both}; in chunks they overlap": 3}, relay),
            ("its ms in small chunks", small[1], {f"in small chunks the hops overlap: {slower}":
             whole[1], "that is the other relay": small[3]}, slower),
        ]  # fmt: skip
        checking.figures(got, asked, within=5e-3)


def _hops(machine: Topology, relay: int) -> list[float]:
    return [machine.bandwidth(0, relay), machine.bandwidth(relay, 2)]


def _given_by(answer: Any) -> Any:
    """Call a learner's function; a value that was given in its place stays as it is."""
    return answer() if callable(answer) else answer


# 4.2: the relay that has no room

FAST, SLOW = 160e6, 20e6  # bits per second: to and from the shared neighbour, and directly
NBYTES = 4_000_000
CHUNK = 200_000  # elements; far more bytes than a link lets through in one burst
FASTER = 5.0
WAYS = (
    (1000, 64, [0, 1, 2], torch.float32),
    (7, 2, [2, 0, 1], torch.float64),
    (5, 9, [1, 2, 3, 0], torch.int32),
    (640, 64, [3, 1, 4, 0, 2], torch.float32),
    (6, 2, [4, 2], torch.float32),
    (2**19, 2**16, [0, 2, 1], torch.float32),  # large, and its last rank is late
)
"""Elements, chunk, way and dtype of each case, on five ranks."""


def check_relay(relay: Callable[..., None]) -> None:
    """Judge exercise 4.2: `relay(tensor, way, chunk, length)`, with two slots on each relay."""
    par = f"{FASTER:g} times as fast as the direct link, with two slots"
    with checking.exercise("4.2", relay, par=par) as verdict:
        cases = []
        for length, chunk, way, dtype in WAYS:
            make = partial(_given, way=way, chunk=chunk)
            cases.append(Case(5, (length,), dtype, make=make, late=0.3 * (length > 1000)))
        for case in cases:  # each in a launch of its own: what one leaves cannot meet the next
            _judge_relay(case, _ran(relay, case))
        try:
            verdict.reached = f"{_judge_speed(relay):.1f} times the direct link"
        except FabricUnavailable as refusal:
            verdict.reached = f"all values; the speed was not judged: {refusal.cause}"


def _setting(case: Case) -> str:
    way, chunk = case.make.keywords.values()
    return f"{case.numel} elements in chunks of {chunk} along {way}"


def _ran(relay: Callable[..., None], case: Case) -> list[Ran]:
    """Run one case; what goes wrong in it names the way and the chunks."""
    chunk = case.make.keywords["chunk"]
    full, itemsize = chunk * case.dtype.itemsize, case.dtype.itemsize
    last = ((case.numel - 1) % chunk + 1) * itemsize
    try:
        [(_, ranks)] = Trial(relay, by_hand=True, timeout=6.0).runs([case])
        return ranks
    except CheckFailed as failure:
        failure.expected = f"{_setting(case)}: {failure.expected}"
        if met := re.search(r"a message of (\d+) bytes met a receive of (\d+)", failure.got):
            sent, room = map(int, met.groups())
            if last < full and {sent, room} == {last, full}:
                which = "is sent whole" if sent == full else "is received whole"
                failure.meaning = (
                    f"the last chunk {which}: only {last // itemsize} of its {chunk} elements are "
                    f"left of {case.numel}. Cut with min(chunk, length - start) on every rank"
                )
            elif full in (sent, room) or last in (sent, room):
                failure.meaning = (
                    f"a chunk here has {full} bytes, and the last one {last}. Either a rank cuts "
                    "the tensor in another way than its neighbour, or a chunk was left out"
                )
        raise
    except Exception as error:
        error.add_note(f"in the case: {_setting(case)}")
        raise


def _given(case: Case, rank: int, *, way: list[int], chunk: int) -> tuple:
    """Return a rank's arguments; its tensor has its numbers, or two slots on a relay."""
    slots = torch.full((2 * chunk,), rank).to(case.dtype)
    return slots if rank in way[1:-1] else case.data(rank), list(way), chunk, case.numel


def _judge_relay(case: Case, ranks: Sequence[Ran]) -> None:
    way, chunk = case.make.keywords.values()
    itemsize = case.dtype.itemsize
    setting = _setting(case)
    for rank, ran in enumerate(ranks):
        if rank in way:
            _judge_calls(ran.calls, way.index(rank), case, f"{setting}: rank {rank}")
        elif ran.calls or not torch.equal(ran.given[0], case.data(rank)):
            raise CheckFailed(
                f"{setting}: rank {rank}, which is not on the way, does nothing",
                f"{ran.calls[0].kind} {ran.calls[0].peer}" if ran.calls else "its tensor changed",
                "ranks that are not on the way must return at once, without touching their tensor",
            )
    checking.same_values(
        ranks[way[0]].given[0],
        case.data(way[0]),
        what=f"{setting}: the first rank's tensor, as it was",
        meaning="the first rank sends a copy: what it has is still needed there",
    )
    checking.same_values(
        ranks[way[-1]].given[0],
        case.data(way[0]),
        what=f"{setting}: the last rank's tensor",
        meaning="a chunk is missing or in the wrong place: chunk k belongs at k * chunk, and in "
        "slot k % 2 of a relay; the last chunk may be shorter",
    )
    for rank in way if case.late else []:
        ran, slots = ranks[rank], 2 * chunk if rank in way[1:-1] else case.numel
        grown = ran.given[0].untyped_storage().nbytes() - slots * itemsize
        checking.at_most(
            ran.peak + grown,
            chunk * itemsize - 1,
            what=f"new tensors on rank {rank} of {way}",
            unit="bytes",
            meaning="a copy of the tensor or a third slot was made: a relay has its two slots, the "
            "ends send from and receive into their tensor",
        )


def _judge_calls(calls: Sequence[Call], here: int, case: Case, setting: str) -> None:
    """Hold one rank's sends and receives to what the statement says of them."""
    way, chunk = case.make.keywords.values()
    steps = range(0, case.numel, chunk)
    sizes = [min(chunk, case.numel - k) * case.dtype.itemsize for k in steps]
    of = {kind: [call for call in calls if call.kind == kind] for kind in ("send", "recv")}
    for kind, there in (("send", here + 1), ("recv", here - 1)):
        peer = way[there] if 0 <= there < len(way) else None
        expected = f"{setting}: a {kind} for each chunk, with rank {peer}"
        wrong = next((call.peer for call in of[kind] if call.peer != peer), None)
        if wrong is not None:
            raise CheckFailed(
                expected if peer is not None else f"{setting}: no {kind}",
                f"a {kind} with rank {wrong}",
                "a hop was skipped, or a chunk confirmed: each rank on the way sends to the next "
                "one, way[here + 1], and nothing to others; the ends have one neighbour each",
            )
        if peer is not None and sorted(call.nbytes for call in of[kind]) != sorted(sizes):
            largest = max((call.nbytes for call in of[kind]), default=0)
            raise CheckFailed(
                f"{expected}: {len(sizes)} of {max(sizes)} bytes, but for the last",
                f"{len(of[kind])} of up to {largest} bytes",
                "each chunk travels once, by itself; the last one may be shorter, and `chunk` "
                "counts elements of the tensor's own dtype",
            )
    if 0 < here < len(way) - 1 and len(sizes) >= 4:
        pairs = zip(of["send"], of["recv"][1:], strict=False)
        if sum(send.waited > r.at and send.at < r.waited for send, r in pairs) < len(sizes) // 2:
            raise CheckFailed(
                f"{setting} receives chunk k + 1 while chunk k is being sent",
                "sends and receives that are never under way at the same time",
                "the hops take turns. `isend` returns at once: receive into the other slot, and "
                "wait for the send only when its slot is needed again",
            )


def _times(relay: Callable[..., None]) -> list[float]:
    """Relay from rank 0 over rank 1 to rank 2, on a rank; return the seconds of each time."""
    length = NBYTES // 4
    tensor = torch.ones(2 * CHUNK if dist.get_rank() == 1 else length)
    return timing.time_calls(lambda: relay(tensor, [0, 1, 2], CHUNK, length), warmup=1, iters=2)


def _judge_speed(relay: Callable[..., None]) -> float:
    """Time it on three hosts like GPUs 0, 5 and 2; the best of three tries counts."""
    rates = [[0, FAST, SLOW], [FAST, 0, FAST], [SLOW, FAST, 0]]
    with Fabric(rates) as fabric:
        direct, best = NBYTES / fabric.payload_rate(0, 2), float("inf")
        hops = [fabric.payload_rate(0, 1), fabric.payload_rate(1, 2)]
        for _ in range(3):
            results = launch(_times, relay, world_size=3, fabric=fabric)
            best = min(best, *timing.slowest(results))
            if direct / best >= FASTER:
                return direct / best
    model = flows.relay_time(hops, nbytes=NBYTES, chunk=4 * CHUNK)
    in_turns = flows.relay_time(hops, nbytes=NBYTES, chunk=NBYTES)
    raise CheckFailed(
        f"at least {FASTER:g} times as fast as the direct link ({direct / model:.1f} by the model)",
        f"{direct / best:.1f} times ({best * 1e3:.0f} ms)",
        f"the hops overlap too little: one after the other they take {in_turns * 1e3:.0f} ms. Is "
        "some send or receive waited for earlier than need be? (Or is this machine busy? Try once "
        "more)",
    )


# 4.3: design

DESIGNS = {"4 MB": 4e6, "400 MB": 400e6}
WAY_RATES, DELAYS = (46.6e9, 46.6e9, 7.5e9), (1e-3, 1e-3, 0.0)


def finish(shares: Sequence[float]) -> float:
    """Return when the last byte has arrived, in seconds; a way without a share costs nothing."""
    ways = zip(shares, WAY_RATES, DELAYS, strict=True)
    return max((delay + share / rate for share, rate, delay in ways if share > 0), default=0.0)


def earliest(nbytes: float) -> float:
    """Return the earliest possible `finish`: all ways that are used end together."""
    best = float("inf")
    for used in ([2], [0, 1], [0, 1, 2]):
        total = sum(WAY_RATES[i] for i in used)
        end = (nbytes + sum(WAY_RATES[i] * DELAYS[i] for i in used)) / total
        if all(end >= DELAYS[i] for i in used):
            best = min(best, end)
    return best


def check_shares(design: Any) -> None:
    """Judge 4.3: a function that returns size -> the bytes for each way, or what it returned."""
    with checking.exercise("4.3", design, par="within 1 % of the earliest finish") as verdict:
        given = checking.answer(_given_by(design), dict, what="size -> shares")
        keys = f"the keys are {', '.join(map(repr, DESIGNS))}; each has the bytes of 3 ways"
        worst = 0.0
        for name, nbytes in DESIGNS.items():
            expected = f"{name!r}: three shares of {nbytes:.3g} bytes in all, none below 0"
            if name not in given:
                raise CheckFailed(expected, f"the keys {list(given)}", keys)
            shares = _floats(given[name], expected)
            if len(shares) != 3 or not all(map(math.isfinite, shares)):
                raise CheckFailed(expected, f"{shares}", THREE)
            if min(shares) < 0:
                raise CheckFailed(
                    expected,
                    f"{shares}",
                    (
                        "a share below 0 is a way that would have to end before it starts: "
                        "with so few bytes all are there before its first byte could be. Leave "
                        "that way out, and divide anew among the others"
                    ),
                )
            if not math.isclose(sum(shares), nbytes, rel_tol=1e-6):
                raise CheckFailed(
                    expected,
                    f"{shares}: {sum(shares):.7g} in all",
                    (
                        "that is MB: shares are in bytes"
                        if math.isclose(sum(shares) * 1e6, nbytes)
                        else "all bytes must go, and none twice: the shares' sum is the size"
                    ),
                )
            late = finish(shares) / earliest(nbytes) - 1
            worst = max(worst, late)
            if late > 0.01:
                raise CheckFailed(
                    f"{name}: the last byte after {1e3 * earliest(nbytes):.4g} ms, or 1 % later",
                    f"after {1e3 * finish(shares):.4g} ms",
                    _why_late(shares, nbytes),
                )
        verdict.reached = f"{worst:.1%} above the earliest at worst"


THREE = "each size has three numbers: the bytes that go by each of the three ways"


def _floats(given: Any, expected: str) -> list[float]:
    """Return a sequence, an array or a tensor of numbers as floats."""
    try:
        return [float(share) for share in given]
    except (TypeError, ValueError):
        raise CheckFailed(expected, repr(given)[:200], THREE) from None


def _why_late(shares: Sequence[float], nbytes: float) -> str:
    if nbytes / WAY_RATES[-1] < DELAYS[0]:
        return "a relay that starts after the direct link could be done is of no use"
    by_rate = [nbytes * rate / sum(WAY_RATES) for rate in WAY_RATES]
    if all(math.isclose(a, b, rel_tol=0.01) for a, b in zip(shares, by_rate, strict=True)):
        return (
            "shares in proportion to the rates: the relays start 1 ms later than the direct link, "
            "and end later. Let all ways end at the same T, with the delay in it"
        )
    return "one way ends before another: what could it have carried meanwhile?"


# 4.4: read a matrix

ORDER = (3, 6, 0, 5, 2, 1, 7, 4)
"""Which GPU of the published matrix stands at each place."""


def print_matrix() -> None:
    """Print a published matrix with its GPUs in another order."""
    server = PUZZLE.with_measured(load("p2p_topology")["p2p_off"].value)
    print(
        "GB/s, from row to column (PUBLISHED, GPUs renamed)\n   "
        + "".join(f"{j:7}" for j in range(8))
    )
    for i, a in enumerate(ORDER):
        cells = ("      -" if a == b else f"{server.bandwidth(a, b) / 1e9:7.2f}" for b in ORDER)
        print(f"{i:2} " + "".join(cells))


def check_reading(answer: Any, p2p: Any = None) -> None:
    """Judge 4.4: a function that returns the pairs on one NUMA node and whether P2P was on."""
    place = {gpu: i for i, gpu in enumerate(ORDER)}
    right = {frozenset((place[gpu], place[gpu + 1])) for gpu in range(0, 8, 2)}
    with checking.exercise("4.4", answer, par="four pairs, and the switch"):
        if callable(answer):
            given = answer()
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise CheckFailed(
                    "two things: the pairs, and whether P2P was on",
                    repr(given)[:200],
                    "return pairs, p2p",
                )
            answer, p2p = given
        got = _pairs(answer)
        if len(got) != len(set(got)):
            twice = next(pair for pair in got if got.count(pair) > 1)
            raise CheckFailed("each pair once", f"{sorted(twice)} twice", "four pairs are asked")
        if set(got) != right:
            raise CheckFailed(
                "the four pairs that share a NUMA node",
                f"{sorted(map(sorted, got))}",
                _why_not(set(got), right),
            )
        if (on := _switch(p2p)) is None:
            raise CheckFailed("P2P: True or False", repr(p2p), "`True` is on, `False` is off")
        if on:
            raise CheckFailed(
                "whether P2P was on",
                f"{p2p}",
                "with P2P this server's pairs differ twelvefold; here all are nearly alike",
            )


def _pairs(given: Any) -> list[frozenset[int]]:
    """Return pairs of GPUs from any sequence, set or array of them."""
    try:
        given = given.items() if isinstance(given, Mapping) else given
        pairs = [frozenset(int(gpu) for gpu in pair) for pair in given]
    except (TypeError, ValueError):
        raise CheckFailed(
            "four pairs of GPUs", repr(given)[:200], "for instance [(0, 1), (2, 3), ...]"
        ) from None
    for pair in pairs:
        if len(pair) != 2 or not pair <= set(range(8)):
            raise CheckFailed(
                "four pairs of GPUs", f"{sorted(pair)}", "a pair is two GPUs, from 0 to 7"
            )
    return pairs


def _why_not(got: set[frozenset[int]], right: set[frozenset[int]]) -> str:
    named = [gpu for pair in got for gpu in pair]
    if len(named) != len(set(named)):
        gpu = next(gpu for gpu in named if named.count(gpu) > 1)
        return f"GPU {gpu} stands in two pairs; each has exactly one neighbour on its node"
    if got < right:
        return "all of these are right, and some are missing: every GPU is in a pair"
    wrong = sorted(min(map(sorted, got - right)))
    return (
        f"{wrong[0]} and {wrong[1]} have an ordinary rate. Each GPU has exactly one other to "
        "which, and from which, all figures are lower"
    )


def _switch(given: Any) -> bool | None:
    """Return whether P2P was on, of a truth value or a word; None if it is neither."""
    if isinstance(given, str):
        words = {"on": True, "true": True, "off": False, "false": False}
        return words.get(given.strip().lower().rstrip("."))
    return bool(given) if given in (0, 1) else None


# 4.5: contention

TRANSFERS = {"P": ([0, 1], 60e6), "Q": ([0, 1, 2], 180e6), "R": ([1, 2], 150e6)}
"""Which way each of three transfers goes over `MACHINE` in small chunks, and its bytes."""


def check_contention(answer: Callable[[], Sequence[float]]) -> None:
    """Judge 4.5: when P, Q and R are done, in ms, when they start together."""
    with checking.exercise("4.5", answer, par="three times within 1 %"):
        machine = Topology.parse(MACHINE, MACHINE_RATES)
        ways, sizes = zip(*TRANSFERS.values(), strict=True)
        ends = [1e3 * s for s in flows.finish_times(machine.bandwidth, ways, nbytes=sizes)]
        rate = machine.bandwidth(0, 1)
        alone = [1e3 * size / rate for size in sizes]
        halves = [2 * ms for ms in alone]
        first = "until one of them ends, two transfers share each link, half and half"
        regrow = (
            "when a transfer ends, the others share anew; and over two links a transfer is as fast "
            "as the smaller of its two shares"
        )
        asked: list[checking.Asked] = []
        for name, end, one, half in zip(TRANSFERS, ends, alone, halves, strict=True):
            mistakes = {"that is its time alone; here two transfers share each link": one}
            if not math.isclose(half, end):
                mistakes[f"half a link from beginning to end? {regrow}"] = half
            otherwise = first if end == min(ends) else regrow
            asked.append((f"{name}'s end in ms", end, mistakes, otherwise))
        got = _given_by(answer)
        if isinstance(got, Mapping) and {*got} == {*TRANSFERS}:
            got = [got[name] for name in TRANSFERS]
        checking.figures(got, asked, within=0.01)


# 4.6: two boards

WHO = boards.WhoWasIt("4.6", evidence.INVESTIGATION, {"first": "a", "second": "d"})
