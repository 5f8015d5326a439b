"""Which rank sends how much to which, exactly, for every algorithm in `course.comm.algorithms`.

Each function returns int64 of shape (n, n), row = sender, column = receiver, in *elements*, so that
a tensor that does not divide evenly is right to the last one, too. The wire meter is the judge.
"""

import numpy as np


def shares(numel: int, n: int) -> np.ndarray:
    """Return the lengths of n chunks: the first numel % n are one longer (as tensor_split)."""
    return numel // n + (np.arange(n) < numel % n)


def all_reduce_by_exchange(n: int, numel: int) -> np.ndarray:
    """S from each to each."""
    return numel * (1 - np.eye(n, dtype=np.int64))


def ring_reduce_scatter(n: int, numel: int) -> np.ndarray:
    """Each rank sends every chunk but its own to its right-hand neighbour."""
    return _to_neighbour(numel - shares(numel, n), n)


def ring_all_gather(n: int, numel: int) -> np.ndarray:
    """Each rank sends every chunk but its neighbour's, which starts there."""
    return _to_neighbour(numel - np.roll(shares(numel, n), -1), n)


def ring_all_reduce(n: int, numel: int) -> np.ndarray:
    """Both turns of the ring."""
    return ring_reduce_scatter(n, numel) + ring_all_gather(n, numel)


def tree_broadcast(n: int, numel: int, *, src: int = 0) -> np.ndarray:
    """S along each edge of the binomial tree: the parent is the place without its lowest bit."""
    sent = np.zeros((n, n), dtype=np.int64)
    for place in range(1, n):
        parent = place & (place - 1)
        sent[(parent + src) % n, (place + src) % n] = numel
    return sent


def tree_reduce(n: int, numel: int, *, dst: int = 0) -> np.ndarray:
    """The broadcast's edges, the other way."""
    return tree_broadcast(n, numel, src=dst).T


def tree_all_reduce(n: int, numel: int) -> np.ndarray:
    """S up and S down each edge of the tree."""
    return tree_reduce(n, numel) + tree_broadcast(n, numel)


def pipelined_broadcast(n: int, numel: int, *, src: int = 0) -> np.ndarray:
    """S along each link of the chain, however it is cut."""
    sent = np.zeros((n, n), dtype=np.int64)
    for place in range(n - 1):
        sent[(place + src) % n, (place + 1 + src) % n] = numel
    return sent


def recursive_doubling_all_reduce(n: int, numel: int) -> np.ndarray:
    """S to each partner at distance 1, 2, 4, ..., plus the fold."""
    p, rank_of, sent = _folded(n, numel)
    for me in range(p):
        for k in range(p.bit_length() - 1):
            sent[rank_of(me), rank_of(me ^ 1 << k)] += numel
    return sent


def halving_doubling_all_reduce(n: int, numel: int) -> np.ndarray:
    """To each partner the half that it keeps, and on the way back the half that one kept."""
    p, rank_of, sent = _folded(n, numel)
    for me in range(p):
        mine, distance = numel, p // 2
        while distance:
            low, high = shares(mine, 2)
            mine, theirs = (high, low) if me & distance else (low, high)
            sent[rank_of(me), rank_of(me ^ distance)] += theirs + mine
            distance //= 2
    return sent


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


def _folded(n: int, numel: int):
    """Return p, the map from its numbers to ranks, and what folding n ranks onto p sends."""
    p = 1 << n.bit_length() - 1
    folded = n - p
    sent = np.zeros((n, n), dtype=np.int64)
    for even in range(0, 2 * folded, 2):
        sent[even, even + 1] = sent[even + 1, even] = numel
    return p, lambda me: 2 * me + 1 if me < folded else me + folded, sent
