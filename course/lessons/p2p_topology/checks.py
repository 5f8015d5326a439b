"""Checks of lesson 04: reading a topology, relaying in chunks, dividing bytes, the best ring."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.topology import (
    CLASS_NAMES,
    PRESETS,
    PUZZLE_TEXT,
    LinkRates,
    Topology,
    nvlinks,
)
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.measure import memory, timing
from labkit.measure.calls import Call
from labkit.ranks.launcher import launch

RATES = LinkRates(
    nvlink=20e9,
    pcie={"PIX": 14e9, "PXB": 13e9, "PHB": 10e9, "NODE": 9e9, "SYS": 6e9},
    source="made up, so that no figure can be looked up",
)
WITH_CARDS = """
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A
GPU1\tNV12\t X \tNODE\tPXB\t32-63,96-127\t1\t\tN/A
GPU2\tPIX\tNODE\t X \tPHB\t32-63,96-127\t1\t\tN/A
NIC0\tSYS\tPXB\tPHB\t X \t\t\t\t

Legend:

  X    = Self
"""


def _random_links(gpus: int, kinds: Sequence[str], seed: int) -> list[list[str]]:
    """Draw a link class for each pair of GPUs."""
    generator = random.Random(seed)
    links = [["X"] * gpus for _ in range(gpus)]
    for i, j in itertools.combinations(range(gpus), 2):
        links[i][j] = links[j][i] = generator.choice(kinds)
    return links


def _printed(links: Sequence[Sequence[str]]) -> str:
    """Write links as `nvidia-smi topo -m` does, below the prompt that was copied with them."""
    names = [f"GPU{gpu}" for gpu in range(len(links))]
    rows = ["\t".join([name, *row, "0-15", "0"]) for name, row in zip(names, links, strict=True)]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    return "\n".join(["$ nvidia-smi topo -m", header, *rows, "", "Legend:", "", "  X    = Self"])


def check_copy_time(copy_time: Callable[..., float]) -> None:
    """Judge exercise 4.1: `copy_time(text, src, dst, nbytes=, nvlink=, pcie=)` in seconds."""
    texts = {
        "the puzzle": PUZZLE_TEXT,
        "a machine with a network card": WITH_CARDS,
        "the same, pasted with spaces": WITH_CARDS.replace("\t", "   "),
        "twelve GPUs": _printed(_random_links(12, ["NV1", "NV2", "NV18", *CLASS_NAMES], seed=1)),
    }
    with checking.exercise("4.1", par=f"every pair of {len(texts)} tables") as verdict:
        count = 0
        for name, text in texts.items():
            topology = Topology.parse(text, RATES)
            for src, dst in itertools.permutations(range(topology.gpus), 2):
                _judge_time(copy_time, name, text, topology, src, dst)
                count += 1
        verdict.reached = f"all {count} pairs"


def _judge_time(copy_time, name: str, text: str, topology: Topology, src: int, dst: int) -> None:
    nbytes, link = 120_000_000, topology.link(src, dst)
    what = f"{name}, GPU {src} to GPU {dst} ({link}), {nbytes / 1e6:g} MB"
    rates = {"nvlink": RATES.nvlink, "pcie": dict(RATES.pcie)}
    try:
        got = checking.ask(copy_time, text, src, dst, nbytes=nbytes, **rates)
    except Exception as error:
        error.add_note(f"asked for: {what}. The table was:\n{text}")
        raise
    checking.answer(got, float, what=what)
    expected = nbytes / topology.bandwidth(src, dst)
    mistakes: dict[str, float] = {}
    if nvlinks(link):
        digit = f"{link} was read as {link[:3]}: the number may have two digits"
        mistakes |= {digit: nbytes / (RATES.nvlink * int(link[2]))} if len(link) > 3 else {}
        one = f"{link} is not one NVLink: it is {link[2:]} of them, side by side"
        mistakes[one] = nbytes / RATES.nvlink
    other_row = [gpu for gpu in range(topology.gpus) if str(gpu).startswith(str(src))]
    for gpu in set(other_row) - {src, dst}:
        mistakes[f"the row of GPU{gpu} was read: its name begins with GPU{src}, too"] = (
            nbytes / topology.bandwidth(gpu, dst)
        )
    for side, beside in (("left", dst - 1), ("right", dst + 1)):
        if 0 <= beside < topology.gpus and beside != src:
            shifted = "off by one: the first word of a row is the GPU's name, not a link"
            mistakes[f"{shifted} (the column to the {side} was read)"] = (
                nbytes / topology.bandwidth(src, beside)
            )
    mixed = "bytes and gigabytes were mixed: all rates are in bytes per second"
    mistakes |= {mixed: expected / 1e9, f"{mixed}, and so is the answer in seconds": expected * 1e9}
    mistakes["milliseconds were returned: the statement asks for seconds"] = expected * 1e3
    mistakes["rates are in bytes per second already: no factor of 8"] = expected * 8
    meaning = checking.diagnose(
        float(got),
        mistakes,
        otherwise="another link class was read: find the row of src, then the column of dst; what "
        "stands behind the GPUs' columns differs from machine to machine, so count from the left",
        within=1e-6,
    )
    checking.close_to(got, expected, within=1e-6, what=what, unit="s", meaning=meaning)


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
    before = tensor.clone()
    if late and rank == way[-1]:
        time.sleep(0.3)
    with checking.by_hand() as log, memory.watch() as usage:
        relay(tensor, list(way), chunk, length)
    return tensor, before, log.calls, usage.peak


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
        if sum(send.waited > after.at for send, after in pairs) < len(sizes) // 2:
            raise CheckFailed(
                f"{setting} receives chunk k + 1 while chunk k is being sent",
                "each send is waited for before the next receive is posted",
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


def check_shares(shares: Callable[..., Sequence[float]]) -> None:
    """Judge exercise 4.3: `shares(rates, delays, nbytes)`, the bytes for each way."""
    generator, within = random.Random(4), 0.001
    cases = [
        ([46.6e9, 46.6e9, 7.5e9], [0.0, 0.0, 0.0], 400e6),
        ([46.6e9, 46.6e9, 7.5e9], [1e-3, 1e-3, 0.0], 400e6),
        ([46.6e9, 46.6e9, 7.5e9], [1e-3, 1e-3, 0.0], 4e6),  # the relays come too late
        ([5e9], [2e-3], 1e8),
        ([1e9, 1e9], [3e-3, 3e-3], 5e6),
    ]
    for ways in (3, 4, 6):
        rates = [generator.uniform(1e9, 9e10) for _ in range(ways)]
        cases.append((rates, [generator.choice([0, 1e-3, 9e-3]) for _ in rates], 1e8))
    par = f"the earliest finish, within {within:.1%}"
    with checking.exercise("4.3", par=par) as verdict:
        worst = max(_judge_shares(shares, *case, within) for case in cases)
        verdict.reached = f"{(worst - 1) * 100:.2g} % above the earliest at worst"


def _judge_shares(
    shares, rates: list[float], delays: list[float], nbytes: float, within: float
) -> float:
    def finish(given: Sequence[float]) -> float:
        ways = zip(delays, given, rates, strict=True)
        return max((delay + part / rate for delay, part, rate in ways if part > 0), default=0.0)

    setting = f"rates {[f'{r:.3g}' for r in rates]}, delays {delays}, S = {nbytes:.3g}"
    got = checking.ask(shares, list(rates), list(delays), nbytes)
    checking.answer(got, (list, tuple), what="a list with the bytes of each way")
    if len(got) != len(rates) or not all(isinstance(part, int | float) for part in got):
        raise CheckFailed(
            f"{setting}: {len(rates)} numbers", repr(got)[:200], "one share for each way, in order"
        )
    best = flows.best_shares(rates, delays, nbytes=nbytes)
    said = [f"{part:.4g}" for part in got]
    if min(got) < -1e-6 * nbytes:
        raise CheckFailed(
            f"{setting}: no share below 0",
            str(said),
            "a way whose delay is longer than the others need altogether gets nothing: leave it "
            "out, and divide again among the rest",
        )
    if abs(sum(got) - nbytes) > 1e-6 * nbytes:
        raise CheckFailed(
            f"{setting}: shares that add up to S",
            f"{said}, together {sum(got):.6g}",
            "a share that was cut off at 0 must be taken from the others"
            if sum(got) > nbytes
            else "bytes are lost: are these fractions, or was a way left out?",
        )
    ratio, total = finish(got) / finish(best), sum(rates)
    if ratio <= 1 + within:
        return ratio
    first = min(range(len(rates)), key=lambda i: delays[i] + nbytes / rates[i])
    equal = [nbytes / len(rates)] * len(rates)
    fastest = [nbytes * (i == first) for i in range(len(rates))]
    mistakes = {
        "equal shares: the slowest way ends last, and the others wait": equal,
        "shares in proportion to the rates: right without delays; with them, a way that starts "
        "late should get less": [nbytes * rate / total for rate in rates],
        "everything takes the one fastest way": fastest,
        "the shares are right and in another order than the ways: undo the sorting": sorted(best),
    }
    meaning = checking.diagnose(
        finish(got),
        {why: finish(shares) for why, shares in mistakes.items()},
        otherwise="all ways that are used must end at the same moment T: way i carries "
        "(T - delays[i]) * rates[i]; find the T at which these add up to S",
        within=1e-6,
    )
    raise CheckFailed(
        f"{setting}: the last byte after {finish(best) * 1e3:.4g} ms",
        f"after {finish(got) * 1e3:.4g} ms, with {said}",
        meaning,
    )


MISREADINGS: dict[str, Callable[[str], Any]] = {
    'NV counts were compared as text, in which "NV10" comes before "NV2": int(link[2:])': (
        lambda link: (nvlinks(link) > 0, link if nvlinks(link) else RATES.bandwidth(link))
    ),
    "only one digit of the count was read: NV10 is ten links, not one": (
        lambda link: int(link[2]) * 1e12 if nvlinks(link) else RATES.bandwidth(link)
    ),
    "all NV links were taken to be alike: more cables are faster": (
        lambda link: 1e12 if nvlinks(link) else RATES.bandwidth(link)
    ),
    "PHB and NODE are swapped: PHB is the faster of them": (
        lambda link: RATES.bandwidth({"PHB": "NODE", "NODE": "PHB"}.get(link, link))
    ),
    "all PCIe classes were taken to be alike: PIX, PXB, PHB, NODE, SYS, the fastest first": (
        lambda link: nvlinks(link)
    ),
}
"""What a wrong order of the link classes usually means -> that order."""


def _machines() -> dict[str, Sequence[Sequence[str]]]:
    wide = ((0, 2, "NV4"), (3, 5, "NV4"), (6, 1, "NV4"))
    return {
        **{name: topology.classes for name, topology in PRESETS.items()},
        "eight GPUs, a mesh": _hidden_ring(8, "NV2", "SYS", seed=0, shortcuts=wide),
        "eight GPUs, another mesh": _hidden_ring(8, "NV2", "SYS", seed=1, shortcuts=wide),
        "two GPUs": [["X", "NV4"], ["NV4", "X"]],
        "three GPUs": [["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]],
        "five GPUs on PCIe": _hidden_ring(5, "PHB", "NODE", seed=2),
        "six GPUs, NV10 beside NV2": _hidden_ring(6, "NV10", "NV2", seed=3),
        "seven GPUs, NV18 beside NV1": _random_links(7, ["NV18", "NV1", "NV2", "SYS"], seed=2),
        "nine GPUs on PCIe": _hidden_ring(9, "PXB", "SYS", seed=4, shortcuts=((0, 4, "PIX"),)),
    }


def _hidden_ring(
    gpus: int, ring: str, rest: str, *, seed: int, shortcuts: Sequence[tuple[int, int, str]] = ()
) -> list[list[str]]:
    """Return links with a shuffled ring of one class, tempting shortcuts across it, and the rest.

    A shortcut is two places on the ring and the class that joins them.
    """
    order = random.Random(seed).sample(range(gpus), gpus)
    links = [["X" if i == j else rest for j in range(gpus)] for i in range(gpus)]
    around = [(place, (place + 1) % gpus, ring) for place in range(gpus)]
    for i, j, kind in (*around, *shortcuts):
        links[order[i]][order[j]] = links[order[j]][order[i]] = kind
    return links


def check_ring(ring: Callable[[list[list[str]]], Sequence[int]]) -> None:
    """Judge exercise 4.4: `ring(links)` returns an order of the GPUs that avoids slow links."""
    machines = _machines()
    par = f"the fastest ring there is, on {len(machines)} machines of 2 to 9 GPUs"
    with checking.exercise("4.4", par=par) as verdict:
        for name, links in machines.items():
            _judge_ring(ring, name, links)
        verdict.reached = f"all {len(machines)}"


def _judge_ring(ring, name: str, links: Sequence[Sequence[str]]) -> None:
    topology = Topology(tuple(map(tuple, links)), (0,) * len(links), RATES).as_fabric()
    order = checking.ask(ring, [list(row) for row in links])
    order = list(order) if order is not None else checking.answer(order, list, what="the order")
    if sorted(order) != list(range(len(links))):
        raise CheckFailed(
            f"{name}: each of the {len(links)} GPUs once",
            f"{order}",
            "the order names every GPU exactly once; the way back to the first is implied",
        )
    expected, got = flows.best_ring(topology).rate, flows.Ring(topology, order)
    if got.rate < expected * (1 - 1e-9):
        src, dst = got.hottest
        raise CheckFailed(
            f"{name}: a ring whose slowest link carries {expected / 1e9:.3g} GB/s",
            f"{order}: {src} to {dst} is {links[src][dst]}, {got.rate / 1e9:.3g} GB/s",
            _why_wrong_ring(got, links),
        )


def _why_wrong_ring(got: flows.Ring, links: Sequence[Sequence[str]]) -> str:
    """Find the goal that the ring does reach: the slowest link by a misreading, or the sum."""

    def reaches(speed: Callable[[str], Any], goal: Callable[[list], Any]) -> bool:
        value = {kind: speed(kind) for row in links for kind in row if kind != "X"}

        def of(order: Sequence[int]) -> Any:
            return goal([value[links[i][j]] for i, j in itertools.pairwise([*order, order[0]])])

        rings = itertools.permutations(range(1, len(links)))
        return of(got.order) == max(of((0, *rest)) for rest in rings)

    for meaning, speed in MISREADINGS.items():
        if reaches(speed, min):
            return meaning
    for speed in (nvlinks, RATES.bandwidth):
        if reaches(speed, sum):
            return (
                "the sum of the links was made largest: a ring turns at the speed of its slowest "
                "link, and wide links elsewhere do not help it"
            )
    if got.hottest == (got.order[-1], got.order[0]):
        return "the link that closes the ring, from the last GPU to the first, is part of it"
    return (
        "taking the best next link at every step runs into a dead end: when no good link is left, "
        "go back and try another (backtracking)"
    )
