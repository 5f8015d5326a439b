"""NCCL's own model: what its tuner thinks that an all_reduce takes."""

import math
from dataclasses import dataclass

PROTOCOLS = ("LL", "LL128", "Simple")

_BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_NVLINK = {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
_NETWORK = {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}
_NVLS_TREE = (25.0, 20.9)
"""Microseconds by algorithm and protocol: once per call, per step over NVLink, over a network."""
_LL_MOST = 20.4
_CHANNEL_MOST = {"ring LL128": 36.7, "tree": 36.0, "tree LL128": 29.0, "nvls tree": 45.5}
"""GB/s that NCCL thinks possible on Hopper between three hosts or more: in all, by channel."""
_TREE_DIPS = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7,
     0.7, 0.8, 0.9, 0.9),
)  # fmt: skip
"""By protocol and power of two from 64 bytes on: what a tree reaches of its bandwidth."""


@dataclass(frozen=True, slots=True)
class Tuner:
    """NCCL's estimate of a collective on H100s: latency + bytes / bandwidth, by the tuner's rules.

    Source: src/graph/tuning.cc of NVIDIA/nccl, commit 5067397 (`ncclTopoTuneModel`,
    `ncclTopoGetAlgoTime`). Ring, tree and NVLSTree between three hosts or more are here. Assumed:
    Intel CPUs, a network that adds no latency of its own, NVLink that does not limit NVLSTree.
    """

    hosts: int
    gpus_per_host: int
    bandwidth: float
    """GB/s of all channels together. NCCL finds it by searching the machine; we must assume it."""
    channels: int

    def microseconds(self, nbytes: int, algorithm: str, protocol: str) -> float:
        """Return NCCL's estimate for an all_reduce of S bytes."""
        n, p = self.hosts * self.gpus_per_host, PROTOCOLS.index(protocol)
        steps = 2 * (n - 1)
        bandwidth = self._bus_bandwidth(algorithm, protocol)
        bandwidth *= 0.5 if algorithm == "tree" else n / steps
        latency = self._latency(algorithm, p, steps)
        if algorithm == "tree":
            dips, size = _TREE_DIPS[p], int(math.log2(nbytes >> 6))
            bandwidth *= dips[size] if 0 <= size < len(dips) else 1.0
        if algorithm == "ring" and protocol == "Simple":
            latency *= 1.4  # "plateau effect of ring"
        return latency + nbytes / (1000 * bandwidth)

    def choices(self) -> list[tuple[str, str]]:
        """Return the algorithms and protocols that NCCL weighs between such hosts."""
        pairs = [(a, p) for a in ("ring", "tree") for p in PROTOCOLS]
        return [*pairs, ("nvls tree", "Simple")] if self.gpus_per_host > 1 else pairs

    def _bus_bandwidth(self, algorithm: str, protocol: str) -> float:
        b, most = self.bandwidth, {name: self.channels * r for name, r in _CHANNEL_MOST.items()}
        if algorithm == "ring":
            low = {"LL": min(_LL_MOST, b / 2), "LL128": min(0.92 * b, most["ring LL128"])}
            return low.get(protocol, b)
        if algorithm == "tree":
            b = min(0.92 * b, most["tree"])
            fast = min(120 / 128 * b, most["tree LL128"])
            return {"LL": min(b / 3.8, _LL_MOST), "LL128": fast}.get(protocol, b)
        return min(b, most["nvls tree"])

    def _latency(self, algorithm: str, p: int, steps: int) -> float:
        hops = int(math.log2(self.hosts))
        if algorithm == "nvls tree":
            return _NVLS_TREE[0] + 2 * hops * _NVLS_TREE[1]
        inside = _NVLINK[algorithm][p]
        across = _NETWORK["tree" if self.gpus_per_host == 1 else algorithm][p]
        if algorithm == "tree":
            return _BASE["tree"][p] + 2 * ((self.gpus_per_host - 1) * inside + hops * across)
        overhead = 3.0 if PROTOCOLS[p] == "Simple" else 1.0
        between = 2 * (self.hosts - 1)
        return _BASE["ring"][p] + (steps - between) * max(inside, overhead) + between * across
