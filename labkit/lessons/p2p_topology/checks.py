"""Checks of lesson 04: reading a topology, relaying in chunks, the best chunk, the best ring."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch.launcher import launch
from labkit.lessons.p2p_topology import flows
from labkit.lessons.p2p_topology.topology import PRESETS, PUZZLE_TEXT, LinkRates, Topology
from labkit.measure import timing, wire

RATES = LinkRates(
    nvlink=20e9,
    pcie={"PIX": 14e9, "PXB": 13e9, "PHB": 10e9, "NODE": 9e9, "SYS": 6e9},
    source="made up, so that no figure can be looked up",
)
WITH_CARDS = """
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A
GPU1\tNV12\t X \tNODE\tPXB\t32-63,96-127\t1\t\tN/A
GPU2\tPIX\tNODE\t X \tPHB\t32-63,96-127\t1\t\tN/A
NIC0\tSYS\tPXB\tPHB\t X \t\t\t\t

Legend:

  X    = Self
"""


def check_copy_time(copy_time: Callable[..., float]) -> None:
    """Judge exercise 4.1: `copy_time(text, src, dst, nbytes=, nvlink=, pcie=)` in seconds."""
    texts = {
        "the puzzle": PUZZLE_TEXT,
        "a machine with network cards": WITH_CARDS,
        "the same, pasted with spaces": WITH_CARDS.replace("\t", "   "),
    }
    with checking.exercise("4.1", par="every pair of three machines, tabs or spaces") as verdict:
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
    got = copy_time(text, src, dst, nbytes=nbytes, nvlink=RATES.nvlink, pcie=RATES.pcie)
    checking.answer(got, float, what=what)
    expected = nbytes / topology.bandwidth(src, dst)
    mistakes = {}
    if link.startswith("NV"):
        digit = f"{link} was read as {link[:3]}: the number may have two digits"
        mistakes[digit] = nbytes / (RATES.nvlink * int(link[2])) if len(link) > 3 else None
        one = f"{link} is not one NVLink: it is {link[2:]} of them, side by side"
        mistakes[one] = nbytes / RATES.nvlink
    for number, beside in enumerate((dst - 1, dst + 1)):
        if 0 <= beside < topology.gpus and beside != src:
            shifted = "off by one: the first word of a row is the GPU's name, not a link"
            mistakes[shifted + "." * number] = nbytes / topology.bandwidth(src, beside)
    mixed = "bytes and gigabytes were mixed: all rates are in bytes per second"
    mistakes |= {mixed: expected / 1e9, mixed + ".": expected * 1e9}
    mistakes["rates are in bytes per second already: no factor of 8"] = expected * 8
    meaning = checking.diagnose(
        float(got),
        mistakes,
        otherwise="another link class was read: find the row of src, then the column of dst in "
        "the header",
        within=1e-6,
    )
    checking.close_to(got, expected, within=1e-6, what=what, unit="s", meaning=meaning)


FAST, SLOW = 160e6, 20e6  # bits per second: to and from the shared neighbour, and directly
NBYTES = 4_000_000
CHUNK = 200_000  # elements; far more bytes than a link lets through in one burst
FASTER = 5.0


def check_relay(relay: Callable[..., None]) -> None:
    """Judge exercise 4.2: `relay(tensor, way, chunk)` moves a tensor along the ranks of `way`."""
    par = f"{FASTER:g} times as fast as the direct link, and S on each hop"
    with checking.exercise("4.2", par=par) as verdict:
        for length, chunk, way in ((1000, 64, [0, 1, 2]), (7, 2, [2, 0, 1]), (5, 9, [1, 2, 3, 0])):
            _judge_values(relay, length, chunk, way)
        per_hop = _judge_bytes(relay)
        try:
            faster = _judge_speed(relay)
        except FabricUnavailable as refusal:
            verdict.reached = f"{per_hop}; the speed was not judged: {refusal.cause}"
        else:
            verdict.reached = f"{faster:.1f} times the direct link; {per_hop}"


def values(relay, length: int, chunk: int, way: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Relay, on a rank; return its tensor as it is after and was before."""
    tensor = checking.rank_data(length, rank=dist.get_rank())
    before = tensor.clone()
    relay(tensor, way, chunk)  # no barrier after it: torch's checks count sends per rank
    return tensor, before


def bytes_sent(relay, nbytes: int, chunk: int) -> wire.Report:
    """Relay twice from rank 0 over 1 to 2; return the wire meter's report of the second time."""
    tensor = torch.ones(nbytes // 4)
    relay(tensor, [0, 1, 2], chunk)
    with wire.meter() as meter:
        relay(tensor, [0, 1, 2], chunk)
    return meter.report


def times(relay, way: list[int], nbytes: int, chunk: int, iters: int) -> list[float]:
    """Relay over and over, on a rank; return the seconds of each time."""
    tensor = torch.ones(nbytes // 4)
    return timing.time_calls(lambda: relay(tensor, way, chunk), warmup=1, iters=iters)


def _judge_values(relay, length: int, chunk: int, way: list[int]) -> None:
    world_size = 4
    results = checking.on_ranks(values, relay, length, chunk, way, world_size=world_size)
    setting = f"{length} elements in chunks of {chunk} along {way}"
    checking.same_values(
        results[way[-1]][0],
        checking.rank_data(length, rank=way[0]),
        what=f"{setting}: the last rank's tensor",
        meaning="a chunk is missing or in the wrong place; the last chunk may be shorter "
        "(tensor.split(chunk) takes care of it)",
    )
    for rank in set(range(world_size)) - set(way):
        checking.same_values(
            *results[rank],
            what=f"{setting}: rank {rank}, which is not on the way",
            meaning="ranks that are not on the way must return without touching their tensor",
        )


def _judge_bytes(relay) -> str:
    nbytes = 80_000
    reports = checking.on_ranks(bytes_sent, relay, nbytes, 1000, world_size=3)
    count = checking.sent(reports)
    sent = count.matrix / nbytes
    if sent[0, 2] > 0:
        raise CheckFailed(
            "nothing on the direct link from rank 0 to rank 2",
            f"{sent[0, 2]:.2f} S",
            "the source sends to the end of the way (way[-1]); it must send to the next rank on it",
        )
    for src, dst in ((0, 1), (1, 2)):
        checking.at_most(
            float(sent[src, dst]),
            1.0,
            what=f"sent from rank {src} to rank {dst}",
            unit="S",
            meaning="every chunk crosses every hop once: are whole tensors sent for each chunk?",
        )
    return f"{sent[0, 1]:.2f} S on each hop, {count.how}"


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
    in_turns = flows.relay_time(hops, nbytes=NBYTES, chunk=NBYTES)
    raise CheckFailed(
        f"at least {FASTER:g} times as fast as the direct link (6.7 in these chunks by the model)",
        f"{direct / best:.1f} times ({best * 1e3:.0f} ms)",
        "the hops do not overlap: one after the other they take "
        f"{in_turns * 1e3:.0f} ms. A relay must hand on a chunk while the next one is on its "
        "way: send each chunk as soon as it is there, and let nobody wait until the chunk has "
        "reached the end"
        if best > 0.7 * in_turns
        else "the hops overlap only in part: is some send or receive waited for in the loop?",
    )


def check_best_chunk(chunk_of: Callable[..., float]) -> None:
    """Judge exercise 4.3: `chunk_of(rates, nbytes, alpha)` in bytes, for any number of hops."""
    generator, within = random.Random(4), 0.05
    par = f"the least time beyond S/B, within {within:.0%}"
    with checking.exercise("4.3", par=par) as verdict:
        worst = 1.0
        for hops in (2, 2, 3, 4, 6):
            rates = [generator.uniform(1e7, 5e8) for _ in range(hops)]
            nbytes, alpha = generator.choice([10**6, 10**8, 10**9]), generator.uniform(1e-6, 1e-4)
            worst = max(worst, _judge_chunk(chunk_of, rates, nbytes, alpha, within))
        verdict.reached = f"{(worst - 1) * 100:.1g} % above the least at worst"


def _judge_chunk(chunk_of, rates: list[float], nbytes: int, alpha: float, within: float) -> float:
    def extra(chunk: float) -> float:
        """Return the seconds beyond S/B, which no chunk size can save."""
        whole = nbytes / min(rates)
        return flows.relay_time(rates, nbytes=nbytes, chunk=chunk, alpha=alpha) - whole

    best = flows.best_chunk(rates, nbytes=nbytes, alpha=alpha)
    got = checking.answer(chunk_of(rates, nbytes, alpha), float, what="c, in bytes")
    if not got > 0:
        raise CheckFailed("a number of bytes above 0", repr(got), "the function must return c")
    ratio = extra(got) / extra(best)
    if ratio <= 1 + within:
        return ratio
    every = sum(1 / rate for rate in rates)
    alike = "all hops were taken to be as slow as the slowest: G is the sum of the others' 1/B"
    meaning = checking.diagnose(
        float(got),
        {
            "the root is missing: set the derivative G - S alpha / c^2 to 0 and solve for c": best
            * best,
            "the slowest hop is in G too: its S/B is paid whatever the chunk, so leave it out": (
                nbytes * alpha / every
            )
            ** 0.5,
            alike: (nbytes * alpha * min(rates)) ** 0.5,
            alike + ".": (nbytes * alpha * min(rates) / (len(rates) - 1)) ** 0.5,
            "only one of the hops is in G: sum 1/B over all but the slowest": (
                nbytes * alpha * max(rates)
            )
            ** 0.5,
        },
        otherwise="minimise c G + S alpha / c, with G the sum of 1/B over all hops but the slowest",
        within=0.02,
    )
    raise CheckFailed(
        f"{len(rates)} hops, S = {nbytes:,} B, alpha = {alpha * 1e6:.1f} us: chunks of about "
        f"{best:,.0f} B",
        f"{got:,.0f} B, which costs {extra(got) * 1e3:.3g} ms beyond S/B instead of "
        f"{extra(best) * 1e3:.3g} ms",
        meaning,
    )


def check_ring(ring: Callable[[list[list[str]]], Sequence[int]]) -> None:
    """Judge exercise 4.4: `ring(links)` returns an order of the GPUs that avoids slow links."""
    machines = {name: topology.classes for name, topology in PRESETS.items()}
    machines |= {f"a shuffled mesh, number {seed}": _mesh(seed) for seed in range(7)}
    par = f"the fastest ring there is, on {len(machines)} machines"
    with checking.exercise("4.4", par=par) as verdict:
        for name, links in machines.items():
            _judge_ring(ring, name, links)
        verdict.reached = f"all {len(machines)}"


def _judge_ring(ring, name: str, links: Sequence[Sequence[str]]) -> None:
    topology = Topology(tuple(map(tuple, links)), (0,) * len(links), RATES).as_fabric()
    order = ring([list(row) for row in links])
    if order is None or sorted(order) != list(range(len(links))):
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
            f"{list(order)}: {src} to {dst} is {links[src][dst]}, {got.rate / 1e9:.3g} GB/s",
            "the link that closes the ring, from the last GPU to the first, is part of it"
            if (src, dst) == (order[-1], order[0])
            else "taking the best next link at every step runs into a dead end: when no good link "
            "is left, go back and try another (backtracking)",
        )


def _mesh(seed: int) -> list[list[str]]:
    """Return eight GPUs with a hidden ring of NV2, tempting NV4 shortcuts, and SYS elsewhere."""
    order = random.Random(seed).sample(range(8), 8)
    links = [["X" if i == j else "SYS" for j in range(8)] for i in range(8)]

    def join(a: int, b: int, kind: str) -> None:
        links[a][b] = links[b][a] = kind

    for place, gpu in enumerate(order):
        join(gpu, order[(place + 1) % 8], "NV2")
    for a, b in ((0, 2), (3, 5), (6, 1)):
        join(order[a], order[b], "NV4")
    return links
