"""Which GPU can reach which, how, and how fast: the machine as a weighted graph."""

from dataclasses import dataclass, replace

from course.lessons.p2p_topology.topology_text import read_bandwidths, read_topology

CLASS_NAMES = {
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, not the CPU",
    "PHB": "PCIe and the CPU's host bridge",
    "NODE": "PCIe and host bridges of one NUMA node",
    "SYS": "PCIe and the link between CPUs",
}
"""The PCIe classes, the fastest first, and what a copy between two such GPUs crosses."""


def nvlinks(link: str) -> int:
    """Return how many NVLinks a class bonds: 4 for NV4, 0 for every PCIe class."""
    return int(link[2:]) if link.startswith("NV") else 0


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Bandwidths by link class: one way, in bytes per second, as copies achieve them."""

    nvlink: float
    """Of one NVLink; NV4 is four of them."""
    pcie: dict[str, float]
    """Of PIX, PXB, PHB, NODE and SYS."""
    source: str
    """Where the figures come from."""

    def bandwidth(self, link: str) -> float:
        """Return what a link of a class carries.

        Raises:
            ValueError: The class is not known (`X` has no link).
        """
        if nvlinks(link):
            return nvlinks(link) * self.nvlink
        if link in self.pcie:
            return self.pcie[link]
        known = ", ".join(["NV1, NV2, ...", *self.pcie])
        raise ValueError(f"no bandwidth for link class {link!r}; there is one for {known}.")


_PCIE3 = 15.75e9 * 256 / (256 + 26)  # 8 GT/s, 16 lanes, 128b/130b; 26 bytes around 256 of payload

PUZZLE_RATES = LinkRates(
    nvlink=93.3e9 / 4,
    pcie={"PIX": _PCIE3, "PXB": _PCIE3, "PHB": 10.8e9, "NODE": 9.5e9, "SYS": 7.5e9},
    source="GPU Puzzlers 2023, puzzler 1: NV4 93.3, SYS 7.5, staged through the host 9.5 to 10.8 "
    "GB/s measured; PIX and PXB computed for PCIe 3.0 x16 with 256-byte packets",
)


@dataclass(frozen=True, slots=True)
class Topology:
    """The links between the GPUs of one machine.

    Example:
        >>> PUZZLE.link(0, 1), round(PUZZLE.bandwidth(0, 1) / 1e9)
        ('NV4', 93)

        Reads: GPUs 0 and 1 are joined by four NVLinks, together 93 GB/s each way.
    """

    classes: tuple[tuple[str, ...], ...]
    """`classes[i][j]`: the link class of the pair: `NV4`, `SYS`, ..., `X` on the diagonal."""
    numa: tuple[int | None, ...]
    """Each GPU's NUMA node."""
    rates: LinkRates = PUZZLE_RATES
    measured: tuple[tuple[float, ...], ...] | None = None
    """Bytes per second for each ordered pair, in place of the rates by class."""

    @classmethod
    def parse(cls, text: str, rates: LinkRates = PUZZLE_RATES) -> "Topology":
        """Read what `nvidia-smi topo -m` prints.

        Raises:
            TopologyTextError: At the first thing that is not understood, with its line.
        """
        return cls(*read_topology(text), rates)

    def with_measured(self, text: str) -> "Topology":
        """Return the same links with the bandwidths that `p2pBandwidthLatencyTest` measured.

        Raises:
            TopologyTextError: The text is not a matrix.
            ValueError: It is one of another number of GPUs.
        """
        matrix = read_bandwidths(text)
        if len(matrix) != self.gpus:
            raise ValueError(
                f"the matrix is {len(matrix)} x {len(matrix)}; the topology has {self.gpus} GPUs."
            )
        return replace(self, measured=tuple(map(tuple, matrix)))

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.numa)

    def link(self, src: int, dst: int) -> str:
        """Return the link class of a pair: `NV4`, `SYS`, ..."""
        return self.classes[src][dst]

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


PUZZLE_TEXT = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    CPU Affinity    NUMA Affinity
GPU0     X      NV4     SYS     SYS     NV2     NV2     SYS     NV4     0-23,96-119     0
GPU1    NV4      X      SYS     SYS     NV4     NV2     NV2     SYS     0-23,96-119     0
GPU2    SYS     SYS      X      NV4     SYS     NV4     NV2     NV2     24-47,120-143   1
GPU3    SYS     SYS     NV4      X      NV2     SYS     NV4     NV2     24-47,120-143   1
GPU4    NV2     NV4     SYS     NV2      X      NV4     SYS     SYS     48-71,144-167   2
GPU5    NV2     NV2     NV4     SYS     NV4      X      SYS     SYS     48-71,144-167   2
GPU6    SYS     NV2     NV2     NV4     SYS     SYS      X      NV4     72-95,168-191   3
GPU7    NV4     SYS     NV2     NV2     SYS     SYS     NV4      X      72-95,168-191   3
"""  # noqa: E501 - as printed
"""What the puzzle's server printed, but for the legend (GPU Puzzlers, comms_images)."""


PUZZLE = Topology.parse(PUZZLE_TEXT)
"""The puzzle's server: a hybrid cube mesh, 12 NVLinks a GPU (GPU Puzzlers 2023, puzzler 1)."""
