"""Checks of lesson 04: reading a topology, relaying in chunks, the best chunk, the best ring."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from labkit.course.checks import judging, relay_ranks
from labkit.course.checks.judging import CheckFailed
from labkit.measure import timing
from labkit.model import presets, rings
from labkit.model.link_rates import LinkRates
from labkit.model.relay import best_chunk, relay_time
from labkit.model.topology import Topology
from labkit.run.fabric import Fabric, FabricUnavailable
from labkit.run.launcher import launch

RATES = LinkRates(
    nvlink=20e9,
    pcie={"PIX": 14e9, "PXB": 13e9, "PHB": 10e9, "NODE": 9e9, "SYS": 6e9},
    source="made up, so that no figure can be looked up",
)
WITH_CARDS = (
    "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tNODE\tPXB\t32-63,96-127\t1\t\tN/A\n"
    "GPU2\tPIX\tNODE\t X \tPHB\t32-63,96-127\t1\t\tN/A\n"
    "NIC0\tSYS\tPXB\tPHB\t X \t\t\t\t\n\n" + presets.LEGEND
)


def check_copy_time(copy_time: Callable[..., float]) -> None:
    """Judge exercise 4.1: `copy_time(text, src, dst, nbytes=, nvlink=, pcie=)` in seconds."""
    with judging.exercise("4.1", par="every pair of three machines, tabs or spaces") as verdict:
        texts = {
            "the puzzle": presets.PUZZLE_TEXT,
            "a machine with network cards": WITH_CARDS,
            "the same, pasted with spaces": WITH_CARDS.replace("\t", "   "),
        }
        count = 0
        for name, text in texts.items():
            topology = Topology.parse(text, RATES)
            for src in range(topology.gpus):
                for dst in range(topology.gpus):
                    if src != dst:
                        _judge_time(copy_time, name, text, topology, src, dst)
                        count += 1
        verdict.reached = f"all {count} pairs"


def _judge_time(copy_time, name: str, text: str, topology: Topology, src: int, dst: int) -> None:
    nbytes = 120_000_000
    expected = nbytes / topology.bandwidth(src, dst)
    got = copy_time(text, src, dst, nbytes=nbytes, nvlink=RATES.nvlink, pcie=RATES.pcie)
    link = topology.link(src, dst)
    judging.close_to(
        got,
        expected,
        within=1e-6,
        what=f"{name}, GPU {src} to GPU {dst} ({link}), {nbytes / 1e6:g} MB",
        unit="s",
        meaning=_why_wrong(got, nbytes, topology, src, dst),
    )


def _why_wrong(got: object, nbytes: int, topology: Topology, src: int, dst: int) -> str:
    def gives(bandwidth: float) -> bool:
        return isinstance(got, int | float) and abs(got * bandwidth / nbytes - 1) < 1e-6

    link = topology.link(src, dst)
    if not isinstance(got, int | float):
        return "the function must return a number of seconds on every path"
    if link.startswith("NV") and len(link) > 3 and gives(RATES.nvlink * int(link[2])):
        return f"{link} was read as {link[:3]}: the number may have two digits"
    if link.startswith("NV") and gives(RATES.nvlink):
        return f"{link} is not one NVLink: it is {link[2:]} of them, side by side"
    for other in (dst - 1, dst + 1):
        if 0 <= other < topology.gpus and other != src and gives(topology.bandwidth(src, other)):
            return "off by one: the first word of a row is the GPU's name, not a link"
    if gives(topology.bandwidth(src, dst) / 1e9) or gives(topology.bandwidth(src, dst) * 1e9):
        return "bytes and gigabytes were mixed: all rates are in bytes per second"
    if gives(topology.bandwidth(src, dst) / 8):
        return "rates are in bytes per second already: no factor of 8"
    return "another link class was read: find the row of src, then the column of dst in the header"


FAST, SLOW = 160e6, 20e6  # bits per second: to and from the shared neighbour, and directly
NBYTES = 4_000_000
CHUNK = 200_000  # elements; far more bytes than a link lets through in one burst


def check_relay(relay: Callable[..., None]) -> None:
    """Judge exercise 4.2: `relay(tensor, way, chunk)` moves a tensor along the ranks of `way`."""
    par = "5 times as fast as the direct link, and S on each hop"
    with judging.exercise("4.2", par=par) as verdict:
        for length, chunk, way in ((1000, 64, [0, 1, 2]), (7, 2, [2, 0, 1]), (5, 9, [1, 2, 3, 0])):
            _judge_values(relay, length, chunk, way)
        per_hop = _judge_bytes(relay)
        try:
            faster = _judge_speed(relay)
        except FabricUnavailable as refusal:
            verdict.reached = f"{per_hop}; the speed was not judged: {refusal.cause}"
        else:
            verdict.reached = f"{faster:.1f} times the direct link; {per_hop}"


def _judge_values(relay, length: int, chunk: int, way: list[int]) -> None:
    world_size = 4
    results = judging.on_ranks(
        relay_ranks.values, relay, length, chunk, way, world_size=world_size, timeout=6.0
    )
    sent = judging.rank_data(length, rank=way[0])
    setting = f"{length} elements in chunks of {chunk} along {way}"
    judging.same_values(
        results[way[-1]][0],
        sent,
        what=f"{setting}: the last rank's tensor",
        meaning="a chunk is missing or in the wrong place; the last chunk may be shorter "
        "(tensor.split(chunk) takes care of it)",
    )
    for rank in set(range(world_size)) - set(way):
        judging.same_values(
            results[rank][0],
            results[rank][1],
            what=f"{setting}: rank {rank}, which is not on the way",
            meaning="ranks that are not on the way must return without touching their tensor",
        )


def _judge_bytes(relay) -> str:
    nbytes = 80_000
    reports = judging.on_ranks(relay_ranks.bytes_sent, relay, nbytes, 1000, world_size=3)
    count = judging.sent(reports)
    sent = count.matrix / nbytes
    if sent[0, 2] > 0:
        raise CheckFailed(
            "nothing on the direct link from rank 0 to rank 2",
            f"{sent[0, 2]:.2f} S",
            "the source sends to the end of the way (way[-1]); it must send to the next rank on it",
        )
    for src, dst in ((0, 1), (1, 2)):
        judging.at_most(
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
        direct = NBYTES / fabric.payload_rate(0, 2)
        best = float("inf")
        for _ in range(3):
            results = launch(
                relay_ranks.times, relay, [0, 1, 2], NBYTES, CHUNK, 2, world_size=3, fabric=fabric
            )
            best = min(best, *timing.slowest(results))
            if direct / best >= 5:
                break
        hops = [fabric.payload_rate(0, 1), fabric.payload_rate(1, 2)]
    if direct / best < 5:
        in_turns = relay_time(hops, nbytes=NBYTES, chunk=NBYTES)
        raise CheckFailed(
            "at least 5 times as fast as the direct link (6.7 in these chunks by the model)",
            f"{direct / best:.1f} times ({best * 1e3:.0f} ms)",
            "the hops do not overlap: one after the other they take "
            f"{in_turns * 1e3:.0f} ms. A relay must hand on a chunk while the next one is on its "
            "way: send each chunk as soon as it is there, and let nobody wait until the chunk has "
            "reached the end"
            if best > 0.7 * in_turns
            else "the hops overlap only in part: is some send or receive waited for in the loop?",
        )
    return direct / best


def check_best_chunk(chunk_of: Callable[..., float]) -> None:
    """Judge exercise 4.3: `chunk_of(rates, nbytes, alpha)` in bytes, for any number of hops."""
    generator = random.Random(4)
    with judging.exercise("4.3", par="the least time beyond S/B, within 5 %") as verdict:
        worst = 1.0
        for hops in (2, 2, 3, 4, 6):
            rates = [generator.uniform(1e7, 5e8) for _ in range(hops)]
            nbytes, alpha = generator.choice([10**6, 10**8, 10**9]), generator.uniform(1e-6, 1e-4)
            worst = max(worst, _judge_chunk(chunk_of, rates, nbytes, alpha))
        verdict.reached = f"{(worst - 1) * 100:.1g} % above the least at worst"


def _judge_chunk(chunk_of, rates: list[float], nbytes: int, alpha: float) -> float:
    def extra(chunk: float) -> float:
        """Return the seconds beyond S/B, which no chunk size can save."""
        whole = nbytes / min(rates)
        return relay_time(rates, nbytes=nbytes, chunk=chunk, alpha=alpha) - whole

    best = best_chunk(rates, nbytes=nbytes, alpha=alpha)
    got = chunk_of(rates, nbytes, alpha)
    if not isinstance(got, int | float) or not got > 0:
        raise CheckFailed("a number of bytes above 0", repr(got), "the function must return c")
    ratio = extra(got) / extra(best)
    if ratio > 1.05:
        raise CheckFailed(
            f"{len(rates)} hops, S = {nbytes:,} B, alpha = {alpha * 1e6:.1f} us: chunks of about "
            f"{best:,.0f} B",
            f"{got:,.0f} B, which costs {extra(got) * 1e3:.3g} ms beyond S/B instead of "
            f"{extra(best) * 1e3:.3g} ms",
            _why_wrong_chunk(got, rates, nbytes, alpha),
        )
    return ratio


def _why_wrong_chunk(got: float, rates: list[float], nbytes: int, alpha: float) -> str:
    def near(other: float) -> bool:
        return abs(got / other - 1) < 0.02

    others = sum(1 / rate for rate in rates) - 1 / min(rates)
    if near(nbytes * alpha / others):
        return "the root is missing: set the derivative G - S alpha / c^2 to 0 and solve for c"
    if near((nbytes * alpha / sum(1 / rate for rate in rates)) ** 0.5):
        return "the slowest hop is in G too: its S/B is paid whatever the chunk, so leave it out"
    if near((nbytes * alpha * min(rates)) ** 0.5) or near(
        (nbytes * alpha * min(rates) / (len(rates) - 1)) ** 0.5
    ):
        return "all hops were taken to be as slow as the slowest: G is the sum of the others' 1/B"
    if near((nbytes * alpha * max(rates)) ** 0.5):
        return "only one of the hops is in G: sum 1/B over all but the slowest"
    return "minimise c G + S alpha / c, with G the sum of 1/B over all hops but the slowest"


def check_ring(ring: Callable[[list[list[str]]], Sequence[int]]) -> None:
    """Judge exercise 4.4: `ring(links)` returns an order of the GPUs that avoids slow links."""
    with judging.exercise("4.4", par="the fastest ring there is, on 12 machines") as verdict:
        machines = {
            name: [list(row) for row in topology.table.classes]
            for name, topology in presets.PRESETS.items()
        }
        machines |= {f"a shuffled mesh, number {seed}": _mesh(seed) for seed in range(7)}
        for name, links in machines.items():
            _judge_ring(ring, name, links)
        verdict.reached = f"all {len(machines)}"


def _judge_ring(ring, name: str, links: list[list[str]]) -> None:
    topology = Topology.parse(presets.as_text(links, [0] * len(links)), RATES).as_fabric()
    order = ring([list(row) for row in links])
    if order is None or sorted(order) != list(range(len(links))):
        raise CheckFailed(
            f"{name}: each of the {len(links)} GPUs once",
            f"{order}",
            "the order names every GPU exactly once; the way back to the first is implied",
        )
    expected = rings.ring_rate(topology, rings.best_ring(topology))
    got = rings.ring_rate(topology, order)
    if got < expected * (1 - 1e-9):
        src, dst = rings.hottest(topology, order)
        closing = (src, dst) == (order[-1], order[0])
        raise CheckFailed(
            f"{name}: a ring whose slowest link carries {expected / 1e9:.3g} GB/s",
            f"{list(order)}: {src} to {dst} is {links[src][dst]}, {got / 1e9:.3g} GB/s",
            "the link that closes the ring, from the last GPU to the first, is part of it"
            if closing
            else "taking the best next link at every step runs into a dead end: when no good link "
            "is left, go back and try another (backtracking)",
        )


def _mesh(seed: int) -> list[list[str]]:
    """Return eight GPUs with a hidden ring of NV2, tempting NV4 shortcuts, and SYS elsewhere."""
    generator = random.Random(seed)
    order = generator.sample(range(8), 8)
    links = [["X" if i == j else "SYS" for j in range(8)] for i in range(8)]

    def join(a: int, b: int, kind: str) -> None:
        links[a][b] = links[b][a] = kind

    for place, gpu in enumerate(order):
        join(gpu, order[(place + 1) % 8], "NV2")
    for a, b in ((0, 2), (3, 5), (6, 1)):
        join(order[a], order[b], "NV4")
    return links
