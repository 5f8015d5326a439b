"""Move bytes over a topology: directly, by relay, over every path at once.

All functions are exact for fluids: bytes that flow at the full rate of each link and start on the
next hop as soon as they arrive. What chunks cost on top is `relay_time`.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from course.comm import sharing
from course.lessons.p2p_topology.topology import Topology, Ways, nvlinks

Rate = Callable[[int, int], float]  # the bytes per second of a link: from, to


class Path(NamedTuple):
    """A way from the first GPU to the last, over relays, and the rate at which it is used."""

    gpus: tuple[int, ...]
    rate: float  # bytes per second

    def __str__(self) -> str:
        return f"{' -> '.join(map(str, self.gpus))} at {self.rate / 1e9:.1f} GB/s"


def maximum_flow(topology: Topology, src: int, dst: int) -> list[Path]:
    """Return paths over NVLink that together carry as much as it allows from src to dst.

    Among the flows of greatest rate it takes one that crosses the fewest links (minimum-cost
    maximum flow, each link costing 1), and cuts it into paths, the shortest first.

    Example:
        >>> from course.lessons.p2p_topology.topology import PUZZLE
        >>> round(sum(way.rate for way in maximum_flow(PUZZLE, 0, 2)) / 1e9)
        280

        Reads: over NVLink, GPU 0 can send to GPU 2 with all twelve of its links, 280 GB/s.
    """
    import networkx as nx  # half a second, which ranks that import this module do not need

    network = nx.DiGraph()
    network.add_nodes_from(range(topology.gpus))
    for a, b in itertools.permutations(range(topology.gpus), 2):
        if nvlinks(topology.link(a, b)):
            network.add_edge(a, b, capacity=round(topology.bandwidth(a, b)), weight=1)
    left, paths = nx.DiGraph(), []
    left.add_nodes_from((src, dst))
    for enter, row in nx.max_flow_min_cost(network, src, dst).items():
        left.add_edges_from((enter, leave, {"rate": rate}) for leave, rate in row.items() if rate)
    while nx.has_path(left, src, dst):
        nodes = nx.shortest_path(left, src, dst)
        edges = list(itertools.pairwise(nodes))
        rate = min(left.edges[edge]["rate"] for edge in edges)
        for edge in edges:
            left.edges[edge]["rate"] -= rate
            if not left.edges[edge]["rate"]:
                left.remove_edge(*edge)
        paths.append(Path(tuple(nodes), float(rate)))
    return paths


def finish_times(rate: Rate, ways: Ways, *, nbytes: Sequence[float]) -> list[float]:
    """Return when each of the transfers that start together is done, in seconds.

    Every ordered pair of GPUs has a link of its own, which transfers that meet on it share max-min
    fairly (see `course.comm.sharing`); whenever one ends, the others share anew. TCP flows and
    copies come close to it, not exactly. `nbytes` is what each carries.

    Example:
        >>> from course.lessons.p2p_topology.topology import PUZZLE
        >>> times = finish_times(PUZZLE.bandwidth, [[0, 5], [0, 5, 2]], nbytes=[46.6e9, 46.6e9])
        >>> [round(seconds, 2) for seconds in times]
        [2.0, 2.0]
    """
    crossed = [tuple(itertools.pairwise(way)) for way in ways]
    rates = {hop: rate(*hop) for hops in crossed for hop in hops}
    both = enumerate(zip(nbytes, crossed, strict=True))
    transfers = {number: sharing.Activity(nbytes=n, links=links) for number, (n, links) in both}
    spans = sharing.play(transfers, after={}, rates=rates)
    return [spans[number].end for number in transfers]


def relay_time(rates: Sequence[float], *, nbytes: float, chunk: float, alpha: float = 0.0) -> float:
    """Return the seconds that nbytes take over a chain of links, chunk by chunk.

    A chunk takes t_i = alpha + c/B_i on hop i; the first one crosses all hops, and each of the
    others follows one turn of the slowest hop later, as in a pipeline whose stages are the hops:

        T = sum_i t_i + (S/c - 1) max_i t_i

    B_i, the rate of a hop, is in bytes per second, c in bytes (the last chunk may be smaller), and
    alpha, the fixed cost of a chunk on a hop, in seconds.

    Example:
        >>> relay_time([1e6, 1e6], nbytes=1_000_000, chunk=1_000_000)
        2.0
        >>> relay_time([1e6, 1e6], nbytes=1_000_000, chunk=10_000)
        1.01
    """
    chunk = min(chunk, nbytes)
    turns = [alpha + chunk / rate for rate in rates]
    return sum(turns) + (nbytes / chunk - 1) * max(turns)


def ways_time(
    rate: Rate, ways: Ways, *, nbytes: float, shares: Sequence[float] | None = None, **cut: float
) -> float:
    """Return the seconds until the last byte has arrived, with a part of the bytes on each way.

    Ways that cross the same link share it in proportion to their parts. Equal parts if no shares
    are given. How they are `cut`, into chunks and at which cost, `relay_time` says.
    """
    shares = shares or [1.0] * len(ways)
    parts = [nbytes * share / sum(shares) for share in shares]
    hops = [list(itertools.pairwise(way)) for way in ways]
    load, times = Counter[tuple[int, int]](), []
    for part, crossed in zip(parts, hops, strict=True):
        load.update(dict.fromkeys(crossed, part))
    for part, crossed in zip(parts, hops, strict=True):
        rates = [rate(*hop) * part / load[hop] for hop in crossed]
        times.append(relay_time(rates, nbytes=part, **cut))
    return max(times)
