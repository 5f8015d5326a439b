"""Collectives over a topology: which ring, which tree, and which of their links is the hottest."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labkit.lessons.p2p_topology.flows import fair_rates
from labkit.lessons.p2p_topology.topology import Topology


def ring_rate(topology: Topology, order: Sequence[int]) -> float:
    """Return the bytes per second that flow around a ring: those of its slowest link.

    All links of a ring are used at once, so links that share a port share its rate. This is the
    busbw that a large all_reduce over the ring approaches.

    Raises:
        ValueError: the order does not visit every GPU once.

    Example:
        >>> from labkit.lessons.p2p_topology.presets import PUZZLE
        >>> ring_rate(PUZZLE, range(8)) / 1e9
        7.5
    """
    return min(fair_rates(topology, ring_hops(topology, order)))


def ring_hops(topology: Topology, order: Sequence[int]) -> list[tuple[int, int]]:
    """Return the links of a ring, the one that closes it last.

    Raises:
        ValueError: the order does not visit every GPU once.
    """
    if sorted(order) != list(range(topology.gpus)):
        raise ValueError(
            f"a ring visits each of the {topology.gpus} GPUs once; {list(order)} does not."
        )
    return [(src, order[(i + 1) % len(order)]) for i, src in enumerate(order)]


def hottest(topology: Topology, order: Sequence[int]) -> tuple[int, int]:
    """Return the link of a ring that limits it: busy all the time, while the others wait."""
    hops = ring_hops(topology, order)
    rates = fair_rates(topology, hops)
    return hops[rates.index(min(rates))]


def best_ring(topology: Topology) -> list[int]:
    """Return an order of the GPUs whose ring is fastest, beginning with GPU 0.

    Tries every bandwidth of the topology as a floor, highest first, and looks for a cycle that
    stays above it. Finding one is hard in general and quick for the 16 GPUs of a machine.
    """
    speeds = {rate for row in topology.bandwidths() for rate in row if rate}
    for floor in sorted(speeds, reverse=True):
        cycle = next(_cycles(topology, [0], floor), None)
        if cycle:
            return cycle
    return list(range(topology.gpus))


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
        return (
            self.nvlink_rate
            if self.hosts == 1
            else min(self.nvlink_rate, self.nics * self.nic_rate)
        )

    @property
    def hottest(self) -> str:
        """Which stage that is."""
        return "NVLink" if self.rate == self.nvlink_rate else "network cards"

    def ring_time(self, nbytes: int) -> float:
        """Return the seconds of a ring all_reduce over all GPUs.

        2(n-1) steps of S/n bytes; each waits for the slowest link (Patarasuk and Yuan 2009). Each
        network card carries a ring of its own, so their rates add up.
        """
        n = self.gpus
        alpha = self.alpha_nvlink if self.hosts == 1 else self.alpha_network
        return 2 * (n - 1) * (alpha + nbytes / n / self.rate)

    def tree_time(self, nbytes: int) -> float:
        """Return the seconds of a double binary tree over hosts, with a chain inside each.

        Up and down: log2(hosts) steps between hosts and gpus_per_host - 1 within one; two trees, in
        which every host is a leaf once, keep all links busy: 2 S / B (NCCL 2.4; Sanders, Speck and
        Traeff 2009). Chunks are taken as small enough to cost nothing.
        """
        depth = math.ceil(math.log2(self.hosts)) if self.hosts > 1 else 0
        alpha = depth * self.alpha_network + (self.gpus_per_host - 1) * self.alpha_nvlink
        return 2 * (alpha + nbytes / self.rate)

    def busbw(self, seconds: float, nbytes: int) -> float:
        """Return the bus bandwidth of an all_reduce: S/t times 2(n-1)/n (nccl-tests)."""
        return nbytes / seconds * 2 * (self.gpus - 1) / self.gpus
