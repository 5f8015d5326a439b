"""Which GPU can reach which, how, and how fast: the machine as a weighted graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from course.published import load

Ways = Sequence[Sequence[int]]
"""For each of several transfers the GPUs that it visits, from the first to the last."""


def nvlinks(link: str) -> int:
    """Return how many NVLinks a class bonds: 4 for NV4, 0 for every PCIe class."""
    return int(link[2:]) if link.startswith("NV") else 0


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
    numa: tuple[int, ...]  # each GPU's NUMA node
    rates: Mapping[str, float]
    """Bytes per second, one way, of one NVLink (`NV1`) and of each PCIe class."""
    measured: tuple[tuple[float, ...], ...] | None = None
    """Bytes per second for each ordered pair, in place of the rates by class."""

    @classmethod
    def parse(cls, text: str, rates: Mapping[str, float]) -> "Topology":
        """Read the rows of the GPUs from what `nvidia-smi topo -m` printed."""
        rows = [line.split() for line in text.splitlines() if line.startswith("GPU")]
        classes = tuple(tuple(row[1 : 1 + len(rows)]) for row in rows)
        return cls(classes, tuple(int(row[-1]) for row in rows), rates)

    def with_measured(self, gigabytes_per_second: Sequence[float]) -> "Topology":
        """Return the same links with the bandwidths that `p2pBandwidthLatencyTest` measured.

        They are in GB/s, from the first GPU to each, then from the second, ...
        """
        rates = [1e9 * rate for rate in gigabytes_per_second]
        starts = range(0, len(rates), self.gpus)
        return replace(self, measured=tuple(tuple(rates[i : i + self.gpus]) for i in starts))

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.numa)

    def link(self, src: int, dst: int) -> str:
        """Return the link class of a pair: `NV4`, `SYS`, ..."""
        return self.classes[src][dst]

    def bandwidth(self, src: int, dst: int) -> float:
        """Return what a copy from src to dst gets with nobody else about, in bytes per second."""
        if self.measured is not None:
            return self.measured[src][dst]
        link = self.link(src, dst)
        return nvlinks(link) * self.rates["NV1"] or self.rates[link]


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


PUZZLE = Topology.parse(PUZZLE_TEXT, {"NV1": 93.3e9 / 4, "SYS": 7.5e9})
"""The puzzle's server: a hybrid cube mesh, 12 NVLinks a GPU, and the rates that it achieves (GPU
Puzzlers 2023, puzzler 1: NV4 93.3, SYS 7.5 GB/s)."""


MACHINE = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV3     PHB     NV8     SYS     0-31            0
GPU1    NV3      X      NV3     SYS     PXB     0-31            0
GPU2    PHB     NV3      X      NV2     PHB     0-31            0
GPU3    NV8     SYS     NV2      X      SYS     32-63           1
NIC0    SYS     PXB     PHB     SYS      X
"""
"""The machine of exercise 4.1: made up, so that it cannot be looked up."""

ORDER = (3, 6, 0, 5, 2, 1, 7, 4)  # which GPU of the published matrix stands at each place


def print_matrix() -> None:
    """Print a published matrix with its GPUs in another order, for exercise 4.4."""
    server = PUZZLE.with_measured(load("p2p_topology")["p2p_off"].value)
    print("GB/s, from row to column (PUBLISHED, GPUs renamed)")
    print("   " + "".join(f"{j:7}" for j in range(8)))
    for i, a in enumerate(ORDER):
        cells = ("      -" if a == b else f"{server.bandwidth(a, b) / 1e9:7.2f}" for b in ORDER)
        print(f"{i:2} " + "".join(cells))
