"""What a link of each class carries, one way, in bytes per second."""

import re
from dataclasses import dataclass

CLASS_NAMES = {
    "X": "the GPU itself",
    "NV": "bonded NVLinks",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, not the CPU",
    "PHB": "PCIe and the CPU's host bridge",
    "NODE": "PCIe and host bridges of one NUMA node",
    "SYS": "PCIe and the link between CPUs",
}

MOST_NVLINKS = 18
"""The most NVLinks that one GPU has had (H100, H200, B200; NVIDIA's data sheets)."""


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Bandwidths by link class. All one way, in bytes per second, as copies achieve them."""

    nvlink: float
    """Of one NVLink; NV4 is four of them."""
    pcie: dict[str, float]
    """Of PIX, PXB, PHB, NODE and SYS."""
    source: str
    """Where the figures come from."""

    def bandwidth(self, link_class: str) -> float:
        """Return what a link of a class carries.

        Raises:
            ValueError: the class is not known (`X` has no link).

        Example:
            >>> round(DEFAULT.bandwidth("NV4") / 1e9)
            93
        """
        if match := re.fullmatch(r"NV(\d+)", link_class):
            return int(match[1]) * self.nvlink
        if link_class in self.pcie:
            return self.pcie[link_class]
        known = ", ".join(["NV1, NV2, ...", *self.pcie])
        raise ValueError(f"no bandwidth for link class {link_class!r}; there is one for {known}.")


def nvlinks(link_class: str) -> int:
    """Return how many NVLinks a class bonds: 4 for NV4, 0 for every PCIe class."""
    return int(link_class[2:]) if link_class.startswith("NV") else 0


_PCIE3 = 15.75e9 * 256 / (256 + 26)  # 8 GT/s, 16 lanes, 128b/130b; 26 bytes around 256 of payload

PUZZLE_RATES = LinkRates(
    nvlink=93.3e9 / 4,
    pcie={"PIX": _PCIE3, "PXB": _PCIE3, "PHB": 10.8e9, "NODE": 9.5e9, "SYS": 7.5e9},
    source="GPU Puzzlers 2023, puzzler 1: NV4 93.3, SYS 7.5, staged through the host 9.5 to 10.8 "
    "GB/s measured; PIX and PXB computed for PCIe 3.0 x16 with 256-byte packets",
)
RTX3090_RATES = LinkRates(
    nvlink=101.7e9 / 2 / 4,
    pcie=dict.fromkeys(("PIX", "PXB", "PHB", "NODE", "SYS"), 8.0e9 / 2),
    source="PyTorch dev forum, memcpy-based P2P: bidirectional 101.7 (NV4) and 7.4 to 8.7 GB/s, "
    "halved",
)
HOPPER_RATES = LinkRates(
    nvlink=376e9 / 18,
    pcie=dict.fromkeys(("PIX", "PXB", "PHB", "NODE", "SYS"), 37e9),
    source="NCCL issue 1264, p2pBandwidthLatencyTest on 8 H100: about 376 GB/s with P2P (NV18), "
    "37 GB/s staged through the host",
)
V100_RATES = LinkRates(
    nvlink=25e9 * 0.93,
    pcie={"PIX": _PCIE3, "PXB": _PCIE3, "PHB": 9.5e9, "NODE": 9.5e9, "SYS": 7.5e9},
    source="NVIDIA data sheet: 25 GB/s for each NVLink one way, of which the puzzle's server "
    "reaches 93 %; PCIe as in the puzzle",
)
DEFAULT = PUZZLE_RATES
