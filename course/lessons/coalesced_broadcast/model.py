"""Predict the broadcast of many tensors in buckets: latency, copies and wire, one after the other.

Three machines work in a row on each bucket, as in a factory: the source packs it, the wire carries
it, the receiver unpacks it. Each works on one bucket at a time, in order, so while one bucket is on
the wire the next can be packed. One bucket for all leaves no next one: packing, wire and unpacking
add up. One bucket per tensor pays the wire's latency every time. The best is in between.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Coalescing:
    """What a broadcast costs on one machine.

    Broadcasting one bucket of b bytes occupies the wire for alpha + b beta seconds; packing b bytes
    takes overhead + b copy, with ``overhead`` for each tensor.
    """

    alpha: float
    """Seconds per call."""
    beta: float
    """Seconds per byte on the wire."""
    copy: float
    """Seconds per byte to pack; unpacking costs the same."""
    overhead: float = 0.0
    """Seconds per tensor to pack; unpacking costs the same."""
    fresh: float = 0.0
    """Seconds per byte more for memory that the kernel hands out anew, page by page."""
    reused: int = 32 * 2**20
    """Bytes up to which the allocator hands out memory that it had before; above, it asks the
    kernel (glibc's largest mmap threshold is 32 MiB)."""

    def seconds(self, buckets: Iterable[Sequence[int]], *, kept: bool = False) -> float:
        """Predict the broadcast of buckets, each given as the bytes of its tensors.

        A bucket of one tensor needs no packing: it is sent from where it lies. The source touches
        fresh memory when it packs, the receiver when the bytes come in, unless buffers are `kept`
        from an earlier broadcast.
        """
        pack, wire, unpack = [], [], []
        for tensors in buckets:
            nbytes = sum(tensors)
            alone = len(tensors) == 1
            faults = 0.0 if alone or kept or nbytes <= self.reused else self.fresh * nbytes
            copying = 0.0 if alone else self.overhead * len(tensors) + self.copy * nbytes
            pack.append(copying + faults)
            wire.append(self.alpha + self.beta * nbytes + faults)
            unpack.append(copying)
        return flow([pack, wire, unpack])


def peak_bytes(buckets: Sequence[Sequence[int]]) -> int:
    """Return the most bytes that flat buffers take at a time, with two buckets on their way.

    Buckets are the bytes of their tensors; a lone tensor needs no buffer.
    """
    packed = [sum(tensors) if len(tensors) > 1 else 0 for tensors in buckets]
    return max(map(sum, pairwise([*packed, 0])), default=0)


def flow(stages: Sequence[Sequence[float]]) -> float:
    """Return when the last item leaves a row of machines: machine k takes stages[k][i] for item i.

    Items keep their order; a machine works on one item at a time.

    >>> flow([[1, 1, 1], [2, 2, 2]])
    7
    """
    finished = [0] * len(stages[0])
    for machine in stages:
        free = 0
        for item, seconds in enumerate(machine):
            free = max(free, finished[item]) + seconds
            finished[item] = free
    return finished[-1] if finished else 0
