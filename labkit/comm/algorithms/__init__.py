"""Collectives written by hand from send and receive, to be read: one module per family.

Each takes a contiguous one-dimensional tensor of the same length on every rank, sums, and moves
exactly the bytes that `labkit.comm.costs` says.
"""

from labkit.comm.algorithms.doubling import (
    halving_doubling_all_reduce,
    recursive_doubling_all_reduce,
)
from labkit.comm.algorithms.exchange import exchange
from labkit.comm.algorithms.hierarchical import hierarchical_all_reduce
from labkit.comm.algorithms.naive import all_reduce_by_exchange, all_reduce_via_root
from labkit.comm.algorithms.pipelined import pipelined_broadcast
from labkit.comm.algorithms.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from labkit.comm.algorithms.trees import tree_all_reduce, tree_broadcast, tree_reduce

__all__ = [
    "all_reduce_by_exchange",
    "all_reduce_via_root",
    "exchange",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "pipelined_broadcast",
    "recursive_doubling_all_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_reduce",
]
