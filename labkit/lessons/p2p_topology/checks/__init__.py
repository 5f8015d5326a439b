"""Checks of lesson 04: reading a topology, relaying in chunks, the best chunk, the best ring."""

from labkit.lessons.p2p_topology.checks.chunks import check_best_chunk
from labkit.lessons.p2p_topology.checks.reading import RATES, check_copy_time
from labkit.lessons.p2p_topology.checks.relaying import check_relay
from labkit.lessons.p2p_topology.checks.ring import check_ring

__all__ = ["RATES", "check_best_chunk", "check_copy_time", "check_relay", "check_ring"]
