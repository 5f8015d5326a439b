"""Move bytes over a topology: directly, by relay, over every path at once, in rings, at scale.

All functions are exact for fluids: bytes that flow at the full rate of each link and start on the
next hop as soon as they arrive. What chunks cost on top is `relay_time`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course.comm import costs, sharing
from course.lessons.p2p_topology.topology import Topology, nvlinks


@dataclass(frozen=True, slots=True)
class Path:
    """A way from the first GPU to the last, and the rate at which it is used."""

    gpus: tuple[int, ...]
    """The GPUs in order: source, relays, destination."""
    rate: float
    """Bytes per second."""

    @property
    def hops(self) -> list[tuple[int, int]]:
        """The pairs of GPUs that it crosses."""
        return list(itertools.pairwise(self.gpus))

    def __str__(self) -> str:
        return f"{' -> '.join(map(str, self.gpus))} at {self.rate / 1e9:.1f} GB/s"


def path(topology: Topology, *gpus: int) -> Path:
    """Return a path and the rate that it has alone: that of its slowest link.

    Example:
        >>> from course.lessons.p2p_topology.topology import PUZZLE
        >>> print(path(PUZZLE, 0, 5, 2))
        0 -> 5 -> 2 at 46.6 GB/s
    """
    return Path(gpus, min(topology.bandwidth(*hop) for hop in itertools.pairwise(gpus)))


def relays(topology: Topology, src: int, dst: int) -> list[Path]:
    """Return every path with one relay, the fastest first; none where there is no third GPU."""
    others = (gpu for gpu in range(topology.gpus) if gpu not in (src, dst))
    found = [path(topology, src, relay, dst) for relay in others]
    return sorted(found, key=lambda way: (-way.rate, way.gpus))


def maximum_flow(
    topology: Topology, src: int, dst: int, *, nvlink_only: bool = False
) -> list[Path]:
    """Return paths that together carry as much as the topology allows from src to dst.

    Among the flows of greatest rate it takes one that crosses the fewest links (minimum-cost
    maximum flow, each link costing 1), and cuts it into paths, the shortest first. `nvlink_only`
    leaves the PCIe pairs out.

    Example:
        >>> from course.lessons.p2p_topology.topology import PUZZLE
        >>> round(sum(way.rate for way in maximum_flow(PUZZLE, 0, 2, nvlink_only=True)) / 1e9)
        280

        Reads: over NVLink, GPU 0 can send to GPU 2 with all twelve of its links, 280 GB/s.
    """
    import networkx as nx  # half a second, which ranks that import this module do not need

    network = nx.DiGraph()  # each resource is an edge that every user of it must cross
    network.add_nodes_from(range(topology.gpus))
    for a, b in itertools.permutations(range(topology.gpus), 2):
        if nvlink_only and not nvlinks(topology.link(a, b)):
            continue
        here = a
        for resource, rate in topology.resources(a, b).items():
            enter, leave = ("enter", resource), ("leave", resource)
            network.add_edge(here, enter, weight=int(here == a))
            network.add_edge(enter, leave, capacity=round(rate), weight=0)
            here = leave
        network.add_edge(here, b, weight=0)
    if not network.degree(src) or not network.degree(dst):
        return []
    return _cut_into_paths(nx.max_flow_min_cost(network, src, dst), src, dst)


def _cut_into_paths(flow: dict, src: int, dst: int) -> list[Path]:
    import networkx as nx

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
    """Return the bytes per second of competing transfers, if links are shared max-min fairly.

    See `course.comm.sharing.max_min`. TCP flows and copies come close to it, not exactly. A way is
    the GPUs that a transfer visits: `[0, 2]` direct, `[0, 5, 2]` relayed.

    Example:
        >>> from course.lessons.p2p_topology.topology import PUZZLE
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
    transfers = {
        number: sharing.Activity(nbytes=size, links=links)
        for number, (size, links) in enumerate(zip(nbytes, crossed, strict=True))
    }
    spans = sharing.play(transfers, after={}, rates=rates)
    return [spans[number].end for number in transfers]


def _crossed(
    topology: Topology, ways: Sequence[Sequence[int]]
) -> tuple[list[tuple], dict[tuple, float]]:
    """Return what each transfer crosses, links and ports, and the rate of each of those."""
    hops = [[topology.resources(*hop) for hop in itertools.pairwise(way)] for way in ways]
    rates = {name: rate for way in hops for hop in way for name, rate in hop.items()}
    return [tuple(name for hop in way for name in hop) for way in hops], rates


def relay_time(rates: Sequence[float], *, nbytes: int, chunk: int, alpha: float = 0.0) -> float:
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
    if not chunk > 0:
        raise ValueError(f"chunk={chunk} must be at least 1 byte.")
    chunk = min(chunk, nbytes)
    turns = [alpha + chunk / rate for rate in rates]
    return sum(turns) + (nbytes / chunk - 1) * max(turns)


def best_chunk(rates: Sequence[float], *, nbytes: int, alpha: float) -> float:
    """Return the chunk in bytes that makes `relay_time` smallest.

    With G = the sum of 1/B over all hops but the slowest, the part of T that depends on c is
    c G + S alpha / c, which is smallest at c = sqrt(S alpha / G).

    Raises:
        ValueError: There is a single hop (one chunk is best) or alpha is not above 0 (the smallest
            chunk is best).

    Example:
        >>> round(best_chunk([1e8, 1e8], nbytes=10_000_000, alpha=1e-4))
        316228
    """
    if len(rates) < 2:
        raise ValueError("one hop has nothing to overlap with: send everything in one chunk.")
    if not alpha > 0:
        raise ValueError(f"alpha={alpha}: if chunks cost nothing, the smallest is best.")
    others = sum(1 / rate for rate in rates) - 1 / min(rates)
    return min(math.sqrt(nbytes * alpha / others), float(nbytes))


def best_shares(rates: Sequence[float], delays: Sequence[float], *, nbytes: float) -> list[float]:
    """Divide bytes among ways so that the last byte arrives as early as possible.

    All ways that are used end at the same moment T: way i carries (T - delays[i]) rates[i]. Ways
    are taken in the order of their delays (seconds until a way's first byte arrives: what filling a
    relay costs), until the next one's is beyond T.

    Example:
        >>> best_shares([2e9, 1e9], [0.0, 0.0], nbytes=3e9)
        [2000000000.0, 1000000000.0]
    """
    order = sorted(range(len(rates)), key=lambda way: delays[way])
    for count in range(1, len(order) + 1):
        used = order[:count]
        total = sum(rates[way] for way in used)
        end = (nbytes + sum(rates[way] * delays[way] for way in used)) / total
        if count == len(order) or end <= delays[order[count]]:
            break
    return [max(0.0, end - delays[way]) * rates[way] for way in range(len(rates))]


@dataclass(frozen=True, slots=True)
class Ring:
    """An order in which a collective passes data around all GPUs of a topology."""

    topology: Topology
    order: Sequence[int]

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(self.topology.gpus)):
            raise ValueError(
                f"a ring visits each of the {self.topology.gpus} GPUs once; "
                f"{list(self.order)} does not."
            )

    @property
    def hops(self) -> list[tuple[int, int]]:
        """Its links, the one that closes it last."""
        return list(itertools.pairwise([*self.order, self.order[0]]))

    @property
    def rate(self) -> float:
        """The bytes per second that flow around: those of its slowest link.

        All links are used at once, so links that share a port share its rate. This is the busbw
        that a large all_reduce over the ring approaches.

        Example:
            >>> from course.lessons.p2p_topology.topology import PUZZLE
            >>> Ring(PUZZLE, range(8)).rate / 1e9
            7.5
        """
        return min(fair_rates(self.topology, self.hops))

    @property
    def hottest(self) -> tuple[int, int]:
        """The link that limits it: busy all the time, while the others wait."""
        rates = fair_rates(self.topology, self.hops)
        return self.hops[rates.index(min(rates))]


def best_ring(topology: Topology) -> Ring:
    """Return the ring whose slowest link is fastest, beginning with GPU 0.

    Tries every bandwidth of the topology as a floor, highest first, and looks for a cycle that
    stays above it. Finding one is hard in general and quick for the 16 GPUs of a machine.
    """
    speeds = {rate for row in topology.bandwidths() for rate in row if rate}
    for floor in sorted(speeds, reverse=True):
        cycle = next(_cycles(topology, [0], floor), None)
        if cycle:
            return Ring(topology, cycle)
    return Ring(topology, range(topology.gpus))


def _cycles(topology: Topology, so_far: list[int], floor: float) -> Iterator[list[int]]:
    last = so_far[-1]
    if len(so_far) == topology.gpus:
        if topology.gpus == 1 or topology.bandwidth(last, so_far[0]) >= floor:
            yield so_far
        return
    for gpu in range(topology.gpus):
        if gpu not in so_far and topology.bandwidth(last, gpu) >= floor:
            yield from _cycles(topology, [*so_far, gpu], floor)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts whose GPUs hang on NVSwitches, joined by network cards."""

    hosts: int
    nics: int
    """Network cards of a host."""
    nic_rate: float = 50e9
    """Bytes per second of a card, one way: 400 Gbit/s."""
    gpus_per_host: int = 8
    nvlink_rate: float = 376e9
    """Bytes per second that a GPU sends over its NVLinks (NCCL issue 1264: H100, measured)."""
    alpha_nvlink: float = 2.5e-6
    """Seconds of a step within a host (the puzzle's server: 2.4 to 2.9 us with P2P)."""
    alpha_network: float = 10e-6
    """Seconds of a step between hosts; an assumption, to be replaced by a measurement."""

    @property
    def gpus(self) -> int:
        """World size."""
        return self.hosts * self.gpus_per_host

    @property
    def rate(self) -> float:
        """What the slowest stage carries: a GPU's NVLinks, or all network cards of a host."""
        across = self.nics * self.nic_rate
        return self.nvlink_rate if self.hosts == 1 else min(self.nvlink_rate, across)

    def ring_time(self, nbytes: int) -> float:
        """Return the seconds of a ring all_reduce over all GPUs.

        Each step waits for the slowest link. Each network card carries a ring of its own, so their
        rates add up.
        """
        alpha = self.alpha_nvlink if self.hosts == 1 else self.alpha_network
        return costs.ring_all_reduce(self.gpus).seconds(nbytes, alpha=alpha, beta=1 / self.rate)

    def tree_time(self, nbytes: int) -> float:
        """Return the seconds of a double binary tree over hosts, with a chain inside each.

        Up and down: log2(hosts) steps between hosts and gpus_per_host - 1 within one; two trees, in
        which every host is a leaf once, keep all links busy: 2 S / B (NCCL 2.4; Sanders, Speck and
        Traeff 2009). Chunks are taken as small enough to cost nothing.
        """
        depth = math.ceil(math.log2(self.hosts))
        alpha = depth * self.alpha_network + (self.gpus_per_host - 1) * self.alpha_nvlink
        return 2 * (alpha + nbytes / self.rate)

    def busbw(self, seconds: float, nbytes: int) -> float:
        """Return the bus bandwidth of an all_reduce: S/t times 2(n-1)/n (nccl-tests)."""
        return nbytes / seconds * 2 * (self.gpus - 1) / self.gpus
