"""Exercise 4.1: predict a copy from what `nvidia-smi topo -m` prints."""

from __future__ import annotations

from collections.abc import Callable

from labkit.course import checking
from labkit.lessons.p2p_topology import presets
from labkit.lessons.p2p_topology.link_rates import LinkRates
from labkit.lessons.p2p_topology.topology import Topology

RATES = LinkRates(
    nvlink=20e9,
    pcie={"PIX": 14e9, "PXB": 13e9, "PHB": 10e9, "NODE": 9e9, "SYS": 6e9},
    source="made up, so that no figure can be looked up",
)
WITH_CARDS = (
    "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tNODE\tPXB\t32-63,96-127\t1\t\tN/A\n"
    "GPU2\tPIX\tNODE\t X \tPHB\t32-63,96-127\t1\t\tN/A\n"
    "NIC0\tSYS\tPXB\tPHB\t X \t\t\t\t\n\n" + presets.LEGEND
)


def check_copy_time(copy_time: Callable[..., float]) -> None:
    """Judge exercise 4.1: `copy_time(text, src, dst, nbytes=, nvlink=, pcie=)` in seconds."""
    with checking.exercise("4.1", par="every pair of three machines, tabs or spaces") as verdict:
        texts = {
            "the puzzle": presets.PUZZLE_TEXT,
            "a machine with network cards": WITH_CARDS,
            "the same, pasted with spaces": WITH_CARDS.replace("\t", "   "),
        }
        count = 0
        for name, text in texts.items():
            topology = Topology.parse(text, RATES)
            for src in range(topology.gpus):
                for dst in range(topology.gpus):
                    if src != dst:
                        _judge_time(copy_time, name, text, topology, src, dst)
                        count += 1
        verdict.reached = f"all {count} pairs"


def _judge_time(copy_time, name: str, text: str, topology: Topology, src: int, dst: int) -> None:
    nbytes = 120_000_000
    expected = nbytes / topology.bandwidth(src, dst)
    got = copy_time(text, src, dst, nbytes=nbytes, nvlink=RATES.nvlink, pcie=RATES.pcie)
    link = topology.link(src, dst)
    checking.close_to(
        got,
        expected,
        within=1e-6,
        what=f"{name}, GPU {src} to GPU {dst} ({link}), {nbytes / 1e6:g} MB",
        unit="s",
        meaning=_why_wrong(got, nbytes, topology, src, dst),
    )


def _why_wrong(got: object, nbytes: int, topology: Topology, src: int, dst: int) -> str:
    def gives(bandwidth: float) -> bool:
        return isinstance(got, int | float) and abs(got * bandwidth / nbytes - 1) < 1e-6

    link = topology.link(src, dst)
    if not isinstance(got, int | float):
        return "the function must return a number of seconds on every path"
    if link.startswith("NV") and len(link) > 3 and gives(RATES.nvlink * int(link[2])):
        return f"{link} was read as {link[:3]}: the number may have two digits"
    if link.startswith("NV") and gives(RATES.nvlink):
        return f"{link} is not one NVLink: it is {link[2:]} of them, side by side"
    for other in (dst - 1, dst + 1):
        if 0 <= other < topology.gpus and other != src and gives(topology.bandwidth(src, other)):
            return "off by one: the first word of a row is the GPU's name, not a link"
    if gives(topology.bandwidth(src, dst) / 1e9) or gives(topology.bandwidth(src, dst) * 1e9):
        return "bytes and gigabytes were mixed: all rates are in bytes per second"
    if gives(topology.bandwidth(src, dst) / 8):
        return "rates are in bytes per second already: no factor of 8"
    return "another link class was read: find the row of src, then the column of dst in the header"
