"""Topologies of machines that many people have, or have read about.

Only the link classes between GPUs are data here; the text is what `nvidia-smi topo -m` makes of
them, so that a preset and a learner's paste go through the same parser.
"""

from collections.abc import Callable

from labkit.lessons.p2p_topology import link_rates
from labkit.lessons.p2p_topology.topology import Topology


def as_text(rows: list[list[str]], numa: list[int]) -> str:
    """Write link classes in the way that `nvidia-smi topo -m` prints them, tabs and all."""
    names = [f"GPU{gpu}" for gpu in range(len(rows))]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    lines = [header]
    for gpu, row in enumerate(rows):
        cores = f"{16 * numa[gpu]}-{16 * numa[gpu] + 15}"
        cells = [f" {cell} " if cell == "X" else cell for cell in row]
        lines.append("\t".join([names[gpu], *cells, cores, str(numa[gpu])]))
    return "\n".join(lines) + "\n\n" + LEGEND


LEGEND = """Legend:

  X    = the device itself
  SYS  = PCIe and the interconnect between CPUs
  NODE = PCIe and the interconnect between host bridges of one NUMA node
  PHB  = PCIe and one host bridge
  PXB  = several PCIe switches
  PIX  = at most one PCIe switch
  NV#  = a bonded set of # NVLinks
"""


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def _by_rule(gpus: int, rule: Callable[[int, int], str]) -> list[list[str]]:
    return [["X" if src == dst else rule(src, dst) for dst in range(gpus)] for src in range(gpus)]


def _pcie_class(src: int, dst: int) -> str:
    """Return the class of a pair in a tree: two GPUs a switch, two switches a CPU."""
    if src // 2 == dst // 2:
        return "PIX"
    return "NODE" if src // 4 == dst // 4 else "SYS"


PUZZLE_TEXT = as_text(
    _rows("""
        X   NV4 SYS SYS NV2 NV2 SYS NV4
        NV4 X   SYS SYS NV4 NV2 NV2 SYS
        SYS SYS X   NV4 SYS NV4 NV2 NV2
        SYS SYS NV4 X   NV2 SYS NV4 NV2
        NV2 NV4 SYS NV2 X   NV4 SYS SYS
        NV2 NV2 NV4 SYS NV4 X   SYS SYS
        SYS NV2 NV2 NV4 SYS SYS X   NV4
        NV4 SYS NV2 NV2 SYS SYS NV4 X
    """),
    numa=[0, 0, 1, 1, 2, 2, 3, 3],
)

PUZZLE = Topology.parse(PUZZLE_TEXT, link_rates.PUZZLE_RATES)
"""The puzzle's server: a hybrid cube mesh, 12 NVLinks a GPU (GPU Puzzlers 2023, puzzler 1)."""

RTX3090 = Topology.parse(
    as_text(
        _by_rule(8, lambda src, dst: "NV4" if src // 2 == dst // 2 else "SYS"),
        numa=[0, 0, 0, 0, 1, 1, 1, 1],
    ),
    link_rates.RTX3090_RATES,
)
"""Eight RTX 3090 with NVLink bridges between neighbours (lesson 05's server)."""

DGX1 = Topology.parse(
    as_text(
        _rows("""
            X   NV1 NV1 NV2 NV2 SYS SYS SYS
            NV1 X   NV2 NV1 SYS NV2 SYS SYS
            NV1 NV2 X   NV2 SYS SYS NV1 SYS
            NV2 NV1 NV2 X   SYS SYS SYS NV1
            NV2 SYS SYS SYS X   NV1 NV1 NV2
            SYS NV2 SYS SYS NV1 X   NV2 NV1
            SYS SYS NV1 SYS NV1 NV2 X   NV2
            SYS SYS SYS NV1 NV2 NV1 NV2 X
        """),
        numa=[0, 0, 0, 0, 1, 1, 1, 1],
    ),
    link_rates.V100_RATES,
)
"""DGX-1 with V100: a hybrid cube mesh, 6 NVLinks a GPU (NVIDIA's DGX-1 white paper)."""

NVSWITCH = Topology.parse(
    as_text(_by_rule(8, lambda src, dst: "NV18"), numa=[0, 0, 0, 0, 1, 1, 1, 1]),
    link_rates.HOPPER_RATES,
)
"""Eight H100 around NVSwitches: every pair shows all 18 links, and all pairs share them."""

PCIE_TREE = Topology.parse(
    as_text(_by_rule(8, _pcie_class), numa=[0, 0, 0, 0, 1, 1, 1, 1]), link_rates.PUZZLE_RATES
)
"""Eight GPUs without NVLink: two to a PCIe switch, two switches to a CPU, two CPUs."""

PRESETS: dict[str, Topology] = {
    "the puzzle's hybrid cube mesh": PUZZLE,
    "8x RTX 3090, bridged": RTX3090,
    "DGX-1 (V100)": DGX1,
    "8x H100, NVSwitch": NVSWITCH,
    "PCIe tree": PCIE_TREE,
}
