"""Which GPU can reach which, how, and how fast: the machine as a weighted graph."""

import subprocess
from dataclasses import dataclass, replace

import networkx as nx

from labkit.lessons.p2p_topology import link_rates
from labkit.lessons.p2p_topology.link_rates import LinkRates, nvlinks
from labkit.lessons.p2p_topology.topology_text import Table, read_bandwidths, read_topology


@dataclass(frozen=True, slots=True)
class Topology:
    """The links between the GPUs of one machine.

    A pair of GPUs has one link class. Point-to-point NVLinks belong to their pair alone; PCIe
    transfers leave and enter a GPU by one port that all of them share; so do NVLinks that go to a
    switch (`switched`).

    Example:
        >>> from labkit.lessons.p2p_topology.presets import PUZZLE
        >>> PUZZLE.link(0, 1), round(PUZZLE.bandwidth(0, 1) / 1e9)
        ('NV4', 93)

        Reads: GPUs 0 and 1 are joined by four NVLinks, together 93 GB/s each way.
    """

    table: Table
    rates: LinkRates = link_rates.DEFAULT
    measured: tuple[tuple[float, ...], ...] | None = None
    """Bytes per second for each ordered pair, in place of the rates by class."""
    private: bool = False
    """Whether every ordered pair has a link that it shares with nobody, as on a fabric."""

    @classmethod
    def parse(cls, text: str, rates: LinkRates = link_rates.DEFAULT) -> "Topology":
        """Read what `nvidia-smi topo -m` prints.

        Raises:
            TopologyTextError: at the first thing that is not understood, with line and column.
        """
        return cls(read_topology(text), rates)

    @classmethod
    def here(cls) -> "Topology":
        """Ask this machine.

        Raises:
            RuntimeError: there is no `nvidia-smi`, or it fails.
        """
        command = ["nvidia-smi", "topo", "-m"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(
                f"{' '.join(command)} did not answer ({error}). "
                "On a machine without NVIDIA GPUs, use a preset or paste a table."
            ) from error
        return cls.parse(done.stdout)

    def with_measured(self, text: str) -> "Topology":
        """Return the same links with the bandwidths that `p2pBandwidthLatencyTest` measured.

        Raises:
            TopologyTextError: the text is not a matrix.
            ValueError: it is one of another number of GPUs.
        """
        matrix = read_bandwidths(text)
        if len(matrix) != self.gpus:
            raise ValueError(
                f"the matrix is {len(matrix)} x {len(matrix)}; the topology has {self.gpus} GPUs."
            )
        return replace(self, measured=tuple(map(tuple, matrix)))

    def as_fabric(self) -> "Topology":
        """Return the same bandwidths with no shared ports: what `Fabric.from_topology` builds."""
        return replace(self, private=True)

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.table.gpus)

    @property
    def switched(self) -> bool:
        """Whether the NVLinks go to switches.

        Then every pair shows all links of a GPU, and the row's sum is more than a GPU can have.
        """
        return max(self.nvlinks_of(gpu) for gpu in range(self.gpus)) > link_rates.MOST_NVLINKS

    def link(self, src: int, dst: int) -> str:
        """Return the link class of a pair: `NV4`, `SYS`, ..."""
        return self.table.classes[src][dst]

    def nvlinks_of(self, gpu: int) -> int:
        """Return how many NVLinks a GPU's row adds up to."""
        return sum(nvlinks(self.link(gpu, peer)) for peer in range(self.gpus))

    def bandwidth(self, src: int, dst: int) -> float:
        """Return what a copy from src to dst gets with nobody else about, in bytes per second."""
        if src == dst:
            raise ValueError(f"GPU {src} has no link to itself.")
        if self.measured is not None:
            return self.measured[src][dst]
        return self.rates.bandwidth(self.link(src, dst))

    def bandwidths(self) -> list[list[float]]:
        """Return all bandwidths, in bytes per second; the diagonal is 0."""
        everyone = range(self.gpus)
        return [
            [0.0 if src == dst else self.bandwidth(src, dst) for dst in everyone]
            for src in everyone
        ]

    def graph(self, *, nvlink_only: bool = False) -> nx.DiGraph:
        """Return a node for each GPU and an edge for each ordered pair.

        Edges carry `link` (the class) and `bandwidth` (bytes per second).

        Args:
            nvlink_only: Leave out the PCIe pairs.
        """
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.gpus))
        for src in range(self.gpus):
            for dst in range(self.gpus):
                if src != dst and (not nvlink_only or nvlinks(self.link(src, dst))):
                    graph.add_edge(
                        src, dst, link=self.link(src, dst), bandwidth=self.bandwidth(src, dst)
                    )
        return graph

    def resources(self, src: int, dst: int) -> dict[tuple, float]:
        """Return what a transfer from src to dst occupies, in order, and how much each carries.

        A pair's own NVLinks: one resource. Anything else: the sender's port, the way between, and
        the receiver's port, where the ports are shared with other transfers of the same kind.
        """
        between = {("link", src, dst): self.bandwidth(src, dst)}
        by_nvlink = nvlinks(self.link(src, dst)) > 0
        if self.private or (by_nvlink and not self.switched):
            return between
        kind = "NVSwitch" if by_nvlink else "PCIe"
        return {
            (kind, "out", src): self._port(src, by_nvlink),
            **between,
            (kind, "in", dst): self._port(dst, by_nvlink),
        }

    def _port(self, gpu: int, by_nvlink: bool) -> float:
        peers = (peer for peer in range(self.gpus) if peer != gpu)
        same_kind = [peer for peer in peers if (nvlinks(self.link(gpu, peer)) > 0) == by_nvlink]
        return max(max(self.bandwidth(gpu, peer), self.bandwidth(peer, gpu)) for peer in same_kind)
