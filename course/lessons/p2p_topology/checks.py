"""Checks of lesson 04: the relay without room, and three short forms."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.topology import PUZZLE
from course.published import load
from course.trial import Case, Ran, Trial
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure import timing
from labkit.measure.calls import Call
from labkit.ranks.launcher import launch

# 4.1: predict

MACHINE = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV2     PHB     NV4     SYS     0-31            0
GPU1    NV2      X      NV2     SYS     PXB     0-31            0
GPU2    PHB     NV2      X      NV1     PHB     0-31            0
GPU3    NV4     SYS     NV1      X      SYS     32-63           1
NIC0    SYS     PXB     PHB     SYS      X
"""
"""Made up, so that it cannot be looked up."""


def check_best_way(vote: Callable[[], str]) -> None:
    """Judge 4.1: the fastest way from 0 to 2 in small chunks, and its milliseconds."""
    slowest = "a way is as fast as its slowest hop: write the smaller rate of each two hops down"
    wrong = {
        "a": slowest,
        "b": "NV2 is two NVLinks, side by side; in small chunks the hops overlap",
        "d": slowest,
    }
    with checking.exercise("4.1", par="the way and its time"):
        checking.letter(vote, right="c", wrong=wrong)


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
    with checking.exercise("4.2", par=par) as verdict:
        cases = []
        for length, chunk, way, dtype in WAYS:
            make = partial(_given, way=way, chunk=chunk)
            cases.append(Case(5, (length,), dtype, make=make, late=0.3 * (length > 1000)))
        for case, ranks in Trial(relay, by_hand=True).runs(cases):
            _judge_relay(case, ranks)
        try:
            verdict.reached = f"{_judge_speed(relay):.1f} times the direct link"
        except FabricUnavailable as refusal:
            verdict.reached = f"all values; the speed was not judged: {refusal.cause}"


def _given(case: Case, rank: int, *, way: list[int], chunk: int) -> tuple:
    """Return a rank's arguments; its tensor has its numbers, or two slots on a relay."""
    slots = torch.full((2 * chunk,), rank).to(case.dtype)
    return slots if rank in way[1:-1] else case.data(rank), list(way), chunk, case.numel


def _judge_relay(case: Case, ranks: Sequence[Ran]) -> None:
    way, chunk = case.make.keywords.values()
    itemsize = case.dtype.itemsize
    setting = f"{case.numel} elements in chunks of {chunk} along {way}"
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


def check_shares(design: dict[str, Sequence[float]]) -> None:
    """Judge 4.3: size -> the bytes for each way."""
    with checking.exercise("4.3", par="within 3 % of the earliest finish") as verdict:
        design = checking.answer(design, dict, what="size -> shares")
        worst = 0.0
        for name, nbytes in DESIGNS.items():
            shares = list(design.get(name) or ())
            whole = len(shares) == 3 and abs(sum(shares) / nbytes - 1) <= 1e-3  # no NaN is
            if not whole or min(shares) < 0:
                raise CheckFailed(
                    f"{name!r}: three shares of {nbytes:.3g} bytes, none below 0",
                    f"{shares} in {design}",
                    f"the keys are {', '.join(map(repr, DESIGNS))}; each has the bytes of 3 ways",
                )
            late = finish(shares) / earliest(nbytes) - 1
            worst = max(worst, late)
            if late > 0.03:
                raise CheckFailed(
                    f"{name}: the last byte after {1e3 * earliest(nbytes):.3g} ms",
                    f"after {1e3 * finish(shares):.3g} ms",
                    "a relay that starts after the direct link could be done is of no use"
                    if nbytes < 1e7
                    else "one way ends before another: what could it have carried meanwhile?",
                )
        verdict.reached = f"{worst:.1%} above the earliest at worst"


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


def check_reading(neighbours: Sequence[Sequence[int]], p2p: bool) -> None:
    """Judge 4.4: the pairs on one NUMA node, and whether P2P was on."""
    place = {gpu: i for i, gpu in enumerate(ORDER)}
    right = {frozenset((place[gpu], place[gpu + 1])) for gpu in range(0, 8, 2)}
    with checking.exercise("4.4", par="four pairs, and the switch"):
        kinds = (list, tuple, set, frozenset)
        got = {frozenset(pair) for pair in checking.answer(neighbours, kinds, what="pairs")}
        if got != right:
            raise CheckFailed(
                "the four pairs that share a NUMA node",
                f"{sorted(map(sorted, got))}",
                "each GPU has exactly one other to which, and from which, all figures are lower",
            )
        if p2p is not False:
            raise CheckFailed(
                "whether P2P was on",
                f"{p2p}",
                "with P2P this server's pairs differ twelvefold; here all are nearly alike",
            )
