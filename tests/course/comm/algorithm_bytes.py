"""Which rank sends how much to which, exactly, for every algorithm in `course.comm.algorithms`.

Each function returns int64 of shape (n, n), row = sender, column = receiver, in *elements*, so that
a tensor that does not divide evenly is right to the last one, too. The wire meter is the judge.
"""

import numpy as np


def shares(numel: int, n: int) -> np.ndarray:
    """Return the lengths of n chunks: the first numel % n are one longer (as tensor_split)."""
    return numel // n + (np.arange(n) < numel % n)


def ring_reduce_scatter(n: int, numel: int) -> np.ndarray:
    """Each rank sends every chunk but its own to its right-hand neighbour."""
    return _to_neighbour(numel - shares(numel, n), n)


def ring_all_gather(n: int, numel: int) -> np.ndarray:
    """Each rank sends every chunk but its neighbour's, which starts there."""
    return _to_neighbour(numel - np.roll(shares(numel, n), -1), n)


def ring_all_reduce(n: int, numel: int) -> np.ndarray:
    """Both turns of the ring."""
    return ring_reduce_scatter(n, numel) + ring_all_gather(n, numel)


def hierarchical_all_reduce(hosts: int, ranks_per_host: int, numel: int) -> np.ndarray:
    """Rings within hosts over S, rings across hosts over each rank's part."""
    m = ranks_per_host
    sent = np.zeros((hosts * m, hosts * m), dtype=np.int64)
    for host in range(hosts):
        inside = slice(host * m, host * m + m)
        sent[inside, inside] += ring_all_reduce(m, numel)
    for local in range(m):
        sent[local::m, local::m] += ring_all_reduce(hosts, numel // m)
    return sent


def _to_neighbour(amounts: np.ndarray, n: int) -> np.ndarray:
    """Return a matrix in which rank r sends amounts[r] to rank r + 1."""
    sent = np.zeros((n, n), dtype=np.int64)
    if n > 1:
        sent[np.arange(n), (np.arange(n) + 1) % n] = amounts
    return sent
