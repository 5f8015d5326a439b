"""Exercise 4.2: carry a tensor over relays, in chunks."""

from __future__ import annotations

from collections.abc import Callable

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch.launcher import launch
from labkit.lessons.p2p_topology import relay_ranks
from labkit.lessons.p2p_topology.relay_model import relay_time
from labkit.measure import timing

FAST, SLOW = 160e6, 20e6  # bits per second: to and from the shared neighbour, and directly
NBYTES = 4_000_000
CHUNK = 200_000  # elements; far more bytes than a link lets through in one burst


def check_relay(relay: Callable[..., None]) -> None:
    """Judge exercise 4.2: `relay(tensor, way, chunk)` moves a tensor along the ranks of `way`."""
    par = "5 times as fast as the direct link, and S on each hop"
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


def _judge_values(relay, length: int, chunk: int, way: list[int]) -> None:
    world_size = 4
    results = checking.on_ranks(
        relay_ranks.values, relay, length, chunk, way, world_size=world_size
    )
    sent = checking.rank_data(length, rank=way[0])
    setting = f"{length} elements in chunks of {chunk} along {way}"
    checking.same_values(
        results[way[-1]][0],
        sent,
        what=f"{setting}: the last rank's tensor",
        meaning="a chunk is missing or in the wrong place; the last chunk may be shorter "
        "(tensor.split(chunk) takes care of it)",
    )
    for rank in set(range(world_size)) - set(way):
        checking.same_values(
            results[rank][0],
            results[rank][1],
            what=f"{setting}: rank {rank}, which is not on the way",
            meaning="ranks that are not on the way must return without touching their tensor",
        )


def _judge_bytes(relay) -> str:
    nbytes = 80_000
    reports = checking.on_ranks(relay_ranks.bytes_sent, relay, nbytes, 1000, world_size=3)
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
