"""Exercise 4.4: the ring that avoids slow links."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.p2p_topology import presets, rings
from labkit.lessons.p2p_topology.checks.reading import RATES
from labkit.lessons.p2p_topology.topology import Topology


def check_ring(ring: Callable[[list[list[str]]], Sequence[int]]) -> None:
    """Judge exercise 4.4: `ring(links)` returns an order of the GPUs that avoids slow links."""
    with checking.exercise("4.4", par="the fastest ring there is, on 12 machines") as verdict:
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
