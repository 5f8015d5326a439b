"""Move bytes over a topology: directly, by relay, over every path at once, and in competition.

All functions are exact for fluids: bytes that flow at the full rate of each link and start on the
next hop as soon as they arrive. What chunks cost on top is in `relay_model`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from labkit.comm import sharing
from labkit.lessons.p2p_topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Path:
    """A way from the first GPU to the last, and the rate at which it is used."""

    gpus: tuple[int, ...]
    """The GPUs in order: source, relays, destination."""
    rate: float
    """Bytes per second."""

    @property
    def hops(self) -> tuple[tuple[int, int], ...]:
        """The pairs of GPUs that it crosses."""
        return tuple(zip(self.gpus[:-1], self.gpus[1:], strict=True))

    def __str__(self) -> str:
        return f"{' -> '.join(map(str, self.gpus))} at {self.rate / 1e9:.1f} GB/s"


def path(topology: Topology, *gpus: int) -> Path:
    """Return a path and the rate that it has alone: that of its slowest link.

    Example:
        >>> from labkit.lessons.p2p_topology.presets import PUZZLE
        >>> print(path(PUZZLE, 0, 5, 2))
        0 -> 5 -> 2 at 46.6 GB/s
    """
    hops = itertools.pairwise(gpus)
    return Path(gpus, min(topology.bandwidth(src, dst) for src, dst in hops))


def direct_time(topology: Topology, src: int, dst: int, *, nbytes: int) -> float:
    """Return the seconds of a copy over the pair's own link: S / B."""
    return nbytes / topology.bandwidth(src, dst)


def relays(topology: Topology, src: int, dst: int) -> list[Path]:
    """Return every path with one relay, the fastest first."""
    others = (gpu for gpu in range(topology.gpus) if gpu not in (src, dst))
    found = [path(topology, src, relay, dst) for relay in others]
    return sorted(found, key=lambda way: (-way.rate, way.gpus))


def best_relay(topology: Topology, src: int, dst: int) -> Path:
    """Return the fastest path with one relay.

    Raises:
        ValueError: there is no third GPU.
    """
    if topology.gpus < 3:
        raise ValueError(f"a relay needs a third GPU; the topology has {topology.gpus}.")
    return relays(topology, src, dst)[0]


def maximum_flow(
    topology: Topology, src: int, dst: int, *, nvlink_only: bool = False, longest: int | None = None
) -> list[Path]:
    """Return paths that together carry as much as the topology allows from src to dst.

    Among the flows of greatest rate it takes one that crosses the fewest links (minimum-cost
    maximum flow, each link costing 1), and cuts it into paths, the shortest first.

    Args:
        topology: The links.
        src: Where the bytes are.
        dst: Where they should be.
        nvlink_only: Leave the PCIe pairs out.
        longest: Leave out paths of more than this many hops (the flow may then be smaller).

    Example:
        >>> from labkit.lessons.p2p_topology.presets import PUZZLE
        >>> round(sum(way.rate for way in maximum_flow(PUZZLE, 0, 2, nvlink_only=True)) / 1e9)
        280

        Reads: over NVLink, GPU 0 can send to GPU 2 with all twelve of its links, 280 GB/s.
    """
    network = _network(topology, nvlink_only=nvlink_only)
    paths: list[Path] = []
    if network.degree(src) and network.degree(dst):
        flow = nx.max_flow_min_cost(network, src, dst)
        paths = _cut_into_paths(flow, src, dst)
    return [way for way in paths if longest is None or len(way.hops) <= longest]


def _network(topology: Topology, *, nvlink_only: bool) -> nx.DiGraph:
    """Return a graph in which each resource is an edge that every user of it must cross."""
    network = nx.DiGraph()
    network.add_nodes_from(range(topology.gpus))
    for src, dst in topology.graph(nvlink_only=nvlink_only).edges:
        here = src
        for resource, rate in topology.resources(src, dst).items():
            enter, leave = ("enter", resource), ("leave", resource)
            network.add_edge(here, enter, weight=int(here == src))
            network.add_edge(enter, leave, capacity=round(rate), weight=0)
            here = leave
        network.add_edge(here, dst, weight=0)
    return network


def _cut_into_paths(flow: dict, src: int, dst: int) -> list[Path]:
    left = nx.DiGraph()
    for enter, row in flow.items():
        left.add_edges_from((enter, leave, {"rate": rate}) for leave, rate in row.items() if rate)
    paths = []
    while left.has_node(src) and left.has_node(dst) and nx.has_path(left, src, dst):
        nodes = nx.shortest_path(left, src, dst)
        edges = list(itertools.pairwise(nodes))
        rate = min(left.edges[edge]["rate"] for edge in edges)
        for edge in edges:
            left.edges[edge]["rate"] -= rate
            if not left.edges[edge]["rate"]:
                left.remove_edge(*edge)
        paths.append(Path(tuple(node for node in nodes if isinstance(node, int)), float(rate)))
    return paths


def fair_rates(topology: Topology, ways: Sequence[Sequence[int]]) -> list[float]:
    """Return the rates that competing transfers get if the links are shared max-min fairly.

    See `labkit.comm.sharing.max_min`. TCP flows and copies come close to it, not exactly.

    Args:
        topology: The links.
        ways: For each transfer the GPUs that it visits: `[0, 2]` direct, `[0, 5, 2]` relayed.

    Returns:
        Bytes per second for each transfer.

    Example:
        >>> from labkit.lessons.p2p_topology.presets import PUZZLE
        >>> [round(rate / 1e9) for rate in fair_rates(PUZZLE, [[0, 5], [0, 5, 2]])]
        [23, 23]
    """
    crossed, rates = _crossed(topology, ways)
    shares = sharing.max_min(dict(enumerate(crossed)), rates)
    return [shares[number] for number in range(len(ways))]


def finish_times(
    topology: Topology, ways: Sequence[Sequence[int]], *, nbytes: Sequence[int]
) -> list[float]:
    """Return when each of the transfers that start together is done, in seconds.

    Whenever one ends, the others share anew.
    """
    crossed, rates = _crossed(topology, ways)
    jobs = {
        number: sharing.Job(nbytes=size, links=links)
        for number, (size, links) in enumerate(zip(nbytes, crossed, strict=True))
    }
    spans = sharing.play(jobs, after={}, rates=rates)
    return [spans[number].end for number in jobs]


def _crossed(
    topology: Topology, ways: Sequence[Sequence[int]]
) -> tuple[list[tuple], dict[tuple, float]]:
    """Return what each transfer crosses, links and ports, and the rate of each of those."""
    hops = [[topology.resources(*hop) for hop in itertools.pairwise(way)] for way in ways]
    rates = {name: rate for way in hops for hop in way for name, rate in hop.items()}
    return [tuple(name for hop in way for name in hop) for way in hops], rates
