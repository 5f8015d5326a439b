"""Checks of lesson 04: the relay without room, and three short forms."""

import time
import tracemalloc
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from course import checking, memory
from course.checking import CheckFailed
from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.topology import LinkRates, Topology
from course.lessons.p2p_topology.topology_text import read_bandwidths
from course.published import load
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
RATES = LinkRates(nvlink=20e9, pcie={"PHB": 10e9, "PXB": 13e9, "SYS": 6e9}, source="made up")


def check_best_way(answer: tuple[Sequence[int], float]) -> None:
    """Judge 4.1: the GPUs of the fastest way from 0 to 2 in small chunks, and its milliseconds."""
    machine, nbytes = Topology.parse(MACHINE, RATES), 120e6
    ways = [[0, 2], *([0, relay, 2] for relay in (1, 3))]
    right = min(
        ways, key=lambda way: flows.ways_time(machine.bandwidth, [way], nbytes=nbytes, chunk=1)
    )
    seconds = flows.ways_time(machine.bandwidth, [right], nbytes=nbytes, chunk=1)
    whole = flows.ways_time(machine.bandwidth, [right], nbytes=nbytes, chunk=nbytes)
    with checking.exercise("4.1", par="the way, and its time within 2 %") as verdict:
        checking.answer(answer, tuple, what="(way, milliseconds)")
        way, milliseconds = answer
        if list(way) != right:
            raise CheckFailed(
                "the fastest way from 0 to 2 with one relay at most",
                f"{way}",
                "a way is as fast as its slowest hop: write the smaller rate of each two hops down",
            )
        meaning = checking.diagnose(
            milliseconds,
            {
                "in one piece the hops' times add up; in small chunks they overlap": 1e3 * whole,
                "seconds were returned: milliseconds are asked for": seconds,
                "NV2 is two NVLinks, side by side": 2e3 * seconds,
            },
            otherwise="bytes divided by the rate of the slowest hop",
            within=0.02,
        )
        checking.close_to(
            milliseconds, 1e3 * seconds, within=0.02, what="its time", unit="ms", meaning=meaning
        )
        verdict.reached = f"{way}, {milliseconds:.3g} ms"


# 4.2: the relay that has no room

FAST, SLOW = 160e6, 20e6  # bits per second: to and from the shared neighbour, and directly
NBYTES = 4_000_000
CHUNK = 200_000  # elements; far more bytes than a link lets through in one burst
FASTER = 5.0


def check_relay(relay: Callable[..., None]) -> None:
    """Judge exercise 4.2: `relay(tensor, way, chunk, length)`, with two slots on each relay."""
    cases = [
        (1000, 64, [0, 1, 2], torch.float32),
        (7, 2, [2, 0, 1], torch.float64),
        (5, 9, [1, 2, 3, 0], torch.int32),
        (640, 64, [3, 1, 4, 0, 2], torch.float32),
        (6, 2, [4, 2], torch.float32),
        (2**19, 2**16, [0, 1, 2], torch.float32),  # large, and its last rank is late
    ]
    par = f"{FASTER:g} times as fast as the direct link, with two slots"
    with checking.exercise("4.2", par=par) as verdict:
        for case in cases:
            _judge_relay(relay, *case)
        try:
            verdict.reached = f"{_judge_speed(relay):.1f} times the direct link"
        except FabricUnavailable as refusal:
            verdict.reached = f"all values; the speed was not judged: {refusal.cause}"


def hand_on(
    relay: Callable, length: int, chunk: int, way: list[int], dtype: torch.dtype, late: bool
) -> tuple[torch.Tensor, torch.Tensor, list[Call], int]:
    """Relay, on a rank; return its tensor after and before, its calls, and the memory it took."""
    rank = dist.get_rank()
    tensor = checking.rank_data(length, rank=rank).to(dtype)
    if rank in way[1:-1]:
        tensor = tensor.new_full((2 * chunk,), rank)
    before, storage = tensor.clone(), tensor.untyped_storage().nbytes()
    if late and rank == way[-1]:
        time.sleep(0.3)
    tracemalloc.start()
    with checking.by_hand() as log, memory.watch() as usage:
        relay(tensor, list(way), chunk, length)
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    taken = usage.peak + tensor.untyped_storage().nbytes() - storage
    return tensor, before, log.calls, taken + (traced if traced > 2**17 else 0)  # less is Python's


def times(relay: Callable, way: list[int], nbytes: int, chunk: int, iters: int) -> list[float]:
    """Relay over and over, on a rank; return the seconds of each time."""
    length = nbytes // 4
    tensor = torch.ones(2 * chunk if dist.get_rank() in way[1:-1] else length)
    return timing.time_calls(lambda: relay(tensor, way, chunk, length), warmup=1, iters=iters)


def _judge_relay(relay, length: int, chunk: int, way: list[int], dtype: torch.dtype) -> None:
    large = length > 1000
    case = (length, chunk, way, dtype, large)
    results = checking.on_ranks(hand_on, relay, *case, world_size=5)
    setting = f"{length} elements in chunks of {chunk} along {way}"
    for rank in sorted(set(range(5)) - set(way)):
        tensor, before, calls, _ = results[rank]
        if calls:
            raise CheckFailed(
                f"{setting}: no calls on rank {rank}, which is not on the way",
                f"{calls[0].kind} to or from rank {calls[0].peer}",
                "ranks that are not on the way must return at once",
            )
        checking.same_values(
            tensor,
            before,
            what=f"{setting}: rank {rank}, which is not on the way",
            meaning="ranks that are not on the way must return without touching their tensor",
        )
    for here, rank in enumerate(way):
        _judge_calls(results[rank][2], here, length, chunk, way, dtype)
    checking.same_values(
        results[way[-1]][0],
        checking.rank_data(length, rank=way[0]).to(dtype),
        what=f"{setting}: the last rank's tensor",
        meaning="a chunk is missing or in the wrong place: chunk k belongs at k * chunk, and in "
        "slot k % 2 of a relay; the last chunk may be shorter",
    )
    for rank in way if large else []:
        checking.at_most(
            results[rank][3],
            chunk * dtype.itemsize - 1,
            what=f"new tensors on rank {rank} of {way}",
            unit="bytes",
            meaning="a copy of the tensor or a third slot was made: a relay has its two slots, the "
            "ends send from and receive into their tensor",
        )


def _judge_calls(
    calls: Sequence[Call], here: int, length: int, chunk: int, way: list[int], dtype: torch.dtype
) -> None:
    """Hold one rank's sends and receives to what the statement says of them."""
    sizes = [min(chunk, length - k) * dtype.itemsize for k in range(0, length, chunk)]
    neighbours = {
        "send": way[here + 1] if here + 1 < len(way) else None,
        "recv": way[here - 1] if here > 0 else None,
    }
    setting = f"{length} elements in chunks of {chunk} along {way}: rank {way[here]}"
    for kind, peer in neighbours.items():
        own, verb = [call for call in calls if call.kind == kind], {"recv": "receives"}.get(kind)
        verb, to = verb or "sends", {"send": "to", "recv": "from"}[kind]
        expected = f"{len(sizes)} chunks {to} rank {peer}" if peer is not None else "nothing"
        for call in own:
            if call.peer != peer:
                raise CheckFailed(
                    f"{setting} {verb} {expected}",
                    f"a {kind} {to} rank {call.peer}",
                    _why_wrong_peer(kind, call.peer, here, way),
                )
        if sorted(call.nbytes for call in own) != sorted(sizes if peer is not None else []):
            largest = max((call.nbytes for call in own), default=0)
            mistakes = {
                "whole tensors travel: send each chunk by itself": sum(sizes),
                "a chunk is missing, or travels twice: the last one may be shorter": max(sizes),
            }
            otherwise = (
                "pieces of another size: `chunk` counts elements, and the ranks before and after "
                "expect pieces of just that size"
            )
            raise CheckFailed(
                f"{setting} {verb} {expected}, {max(sizes)} bytes each but for the last",
                f"{len(own)} of up to {largest} bytes",
                checking.diagnose(largest, mistakes, otherwise=otherwise),
            )
        for call in own:
            if call.dtype != dtype:
                raise CheckFailed(
                    f"{setting} {verb} {dtype}", str(call.dtype), "values change on another dtype"
                )
            if call.touched:
                raise CheckFailed(
                    f"{setting}: a buffer is left alone until its {kind} is waited for",
                    f"{call.touched} used it before",
                    "a slot was received into while it was still being sent from: wait for the "
                    "isend of chunk k before you receive chunk k + 2"
                    if kind == "send"
                    else "a chunk was handed on before it had arrived: wait for the irecv first",
                )
    if 0 < here < len(way) - 1 and len(sizes) >= 4:
        sends = [call for call in calls if call.kind == "send"]
        receives = [call for call in calls if call.kind == "recv"]
        pairs = zip(sends, receives[1:], strict=False)
        if sum(send.waited > r.at and send.at < r.waited for send, r in pairs) < len(sizes) // 2:
            raise CheckFailed(
                f"{setting} receives chunk k + 1 while chunk k is being sent",
                "sends and receives that are never under way at the same time",
                "the hops take turns. `isend` returns at once: receive into the other slot, and "
                "wait for the send only when its slot is needed again",
            )


def _why_wrong_peer(kind: str, peer: int, here: int, way: list[int]) -> str:
    if here == len(way) - 1 and kind == "send":
        return "the last rank has nobody to send to; do the ranks confirm each chunk?"
    if here == 0 and kind == "recv":
        return "the first rank has nobody to receive from; do the ranks confirm each chunk?"
    if peer in (way[0], way[-1]):
        return (
            "a hop was skipped: a way may have any number of ranks, and each sends to the next "
            "one on it, not to the end (way[-1]); `way.index(rank)` tells where a rank stands"
        )
    if peer in way:
        return "the wrong neighbour: way[here + 1] comes after, way[here - 1] before"
    return "that rank is not on the way: nothing is copied to bystanders"


def _judge_speed(relay) -> float:
    """Time it on three hosts like GPUs 0, 5 and 2; the best of three tries counts."""
    rates = [[0, FAST, SLOW], [FAST, 0, FAST], [SLOW, FAST, 0]]
    with Fabric(rates) as fabric:
        direct, best = NBYTES / fabric.payload_rate(0, 2), float("inf")
        hops = [fabric.payload_rate(0, 1), fabric.payload_rate(1, 2)]
        for _ in range(3):
            way = [0, 1, 2]
            results = launch(times, relay, way, NBYTES, CHUNK, 2, world_size=3, fabric=fabric)
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
        worst = 0.0
        for name, nbytes in DESIGNS.items():
            got = checking.answer(design, dict, what="size -> shares").get(name)
            if name not in design:
                raise CheckFailed(
                    f"an entry for each of {', '.join(map(repr, DESIGNS))}",
                    f"entries for {', '.join(map(repr, design)) or 'nothing'}",
                    "the sizes are the dict's keys, as text",
                )
            shares = list(
                checking.answer(got, (list, tuple), what=f"{name}: the bytes of each way")
            )
            whole = len(shares) == 3 and abs(sum(shares) / nbytes - 1) <= 1e-3  # no NaN is
            if not whole or min(shares) < 0:
                raise CheckFailed(
                    f"{name}: three shares of {nbytes:.3g} bytes, none below 0",
                    f"{shares}",
                    "count",
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
    rates = read_bandwidths(load("p2p_topology")["p2p_off"].quotation)
    print(
        "GB/s, from row to column (PUBLISHED, GPUs renamed)\n   "
        + "".join(f"{j:7}" for j in range(8))
    )
    for i, a in enumerate(ORDER):
        cells = ("      -" if a == b else f"{rates[a][b] / 1e9:7.2f}" for b in ORDER)
        print(f"{i:2} " + "".join(cells))


def check_reading(neighbours: Sequence[Sequence[int]], p2p: bool) -> None:
    """Judge 4.4: the pairs on one NUMA node, and whether P2P was on."""
    place = {gpu: i for i, gpu in enumerate(ORDER)}
    right = {frozenset((place[gpu], place[gpu + 1])) for gpu in range(0, 8, 2)}
    with checking.exercise("4.4", par="four pairs, and the switch") as verdict:
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
        verdict.reached = "both"
