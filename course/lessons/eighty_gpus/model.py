"""What cards allow: rings over rails, all_to_all, and NCCL's own tuner."""

import math
from dataclasses import dataclass

PROTOCOLS = ("LL", "LL128", "Simple")

_BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_NVLINK = {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
_NETWORK = {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}
_NVLS_TREE = (25.0, 20.9)
"""Microseconds by algorithm and protocol: once per call, per step over NVLink, over a network."""
_LL_MOST = {"one host": (141.0, 45.0, 35.0), "Intel": (39.0, 39.0, 20.4)}
_CHANNEL_MOST = {
    "ring LL128": (36.7, 36.7, 36.7),
    "tree": (38.7, 41.4, 36.0),
    "tree LL128": (36.7, 36.7, 29.0),
    "nvls tree": (0.0, 57.7, 45.5),
}
"""GB/s that NCCL thinks possible on Hopper, for one, two and more hosts."""
_TREE_DIPS = (
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9),
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9),
)  # fmt: skip
"""By protocol and power of two from 64 bytes on: what a tree reaches of its bandwidth."""


def ring_seconds(nbytes: float, *, servers: int, cards: int, rings: int, card: float) -> float:
    """Return the time of a ring all_reduce over all ranks, cut over several rings.

    Each ring carries its share of S through one card of every server, so the rings share nothing:
    2(n-1)/n S / (rings x card). Latencies and the links inside a server are left out. A server has
    `cards` ranks, and as many cards of `card` bytes per second each way.
    """
    n = servers * cards
    return 2 * (n - 1) / n * nbytes / (rings * card)


def two_level_seconds(
    nbytes: float, *, servers: int, cards: int, card: float, inside: float
) -> float:
    """Return the time of reduce_scatter inside, all_reduce across, all_gather inside.

    `card` and `inside`: bytes per second of a card, each way, and of a link inside a server.
    """
    within = 2 * (cards - 1) / cards * nbytes / inside
    return within + 2 * (servers - 1) / servers * nbytes / cards / card


def all_to_all_seconds(nbytes: float, *, servers: int, cards: int, card: float) -> float:
    """Return the time of an all_to_all over servers with a card for each rank.

    (n - cards)/n S of each rank must leave its server, by one card or another: together the ranks
    of a server bring `cards` such shares, and it has `cards` cards.
    """
    n = servers * cards
    return (n - cards) / n * nbytes / card


@dataclass(frozen=True, slots=True)
class Tuner:
    """NCCL's estimate of a collective on H100s: latency + bytes / bandwidth, by the tuner's rules.

    Source: src/graph/tuning.cc of NVIDIA/nccl, commit 5067397 (`ncclTopoTuneModel`,
    `ncclTopoGetAlgoTime`). Ring, tree and, between hosts, NVLSTree are here. Assumed: hosts with
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
        if algorithm == "ring" and protocol == "Simple" and self.hosts > 1 and steps > n:
            latency *= 1.4  # "plateau effect of ring"
        return latency + nbytes / (1000 * bandwidth)

    def choices(self) -> list[tuple[str, str]]:
        """Return the algorithms and protocols that NCCL weighs between such hosts."""
        found = [(a, p) for a in ("ring", "tree") for p in PROTOCOLS]
        nvls = self.hosts > 1 and self.gpus_per_host > 1
        return [*found, ("nvls tree", "Simple")] if nvls else found

    def best(self, nbytes: int) -> tuple[str, str]:
        """Return the algorithm and protocol that NCCL would think fastest for an all_reduce."""
        return min(self.choices(), key=lambda choice: self.microseconds(nbytes, *choice))

    def _bus_bandwidth(self, algorithm: str, protocol: str) -> float:
        at, b = min(self.hosts, 3) - 1, self.bandwidth
        ll_most = _LL_MOST["one host" if self.hosts == 1 else "Intel"][at]
        if algorithm == "ring":
            most = self.channels * _CHANNEL_MOST["ring LL128"][at]
            return {"LL": min(ll_most, b / 2), "LL128": min(0.92 * b, most)}.get(protocol, b)
        if algorithm == "tree":
            b = min(0.92 * b, self.channels * _CHANNEL_MOST["tree"][at])
            share = 7 / 9 if self.hosts == 1 else 120 / 128
            most = self.channels * _CHANNEL_MOST["tree LL128"][at]
            return {"LL": min(b / 3.8, ll_most), "LL128": min(share * b, most)}.get(protocol, b)
        b *= 2 if self.hosts == 2 else 1
        return min(b, self.channels * _CHANNEL_MOST["nvls tree"][at])

    def _latency(self, algorithm: str, p: int, steps: int) -> float:
        hops = int(math.log2(self.hosts))
        if algorithm == "nvls tree":
            return _NVLS_TREE[0] + 2 * hops * _NVLS_TREE[1]
        inside = _NVLINK[algorithm][p]
        across = _NETWORK["tree" if self.gpus_per_host == 1 else algorithm][p]
        if algorithm == "tree":
            return _BASE["tree"][p] + 2 * ((self.gpus_per_host - 1) * inside + hops * across)
        if self.hosts == 1:
            return _BASE["ring"][p] + steps * inside
        overhead = 3.0 if PROTOCOLS[p] == "Simple" else 1.0
        between = steps // (self.hosts * self.gpus_per_host - 1) * (self.hosts - 1)
        return _BASE["ring"][p] + (steps - between) * max(inside, overhead) + between * across
