"""Answers to lesson 06's exercises, right ones in another style and wrong ones.

Ranks import this module: it is light.
"""

import math

import torch
import torch.distributed as dist
from torch.distributed import irecv, isend


def around():
    rank, n = dist.get_rank(), dist.get_world_size()
    return rank, n, (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, incoming, *, dst, src):
    receiving, sending = dist.irecv(incoming, src), dist.isend(outgoing, dst)
    receiving.wait()
    sending.wait()


# 6.1, the ring


def ring(tensor, rounds=2, first=0):
    """Go round so many times, the second time from chunk `rank + first`."""
    rank, n, right, left = around()
    chunks = tensor.view(-1).tensor_split(n)
    for step in range(n - 1):
        target = chunks[(rank - 2 - step) % n]
        incoming = torch.empty_like(target)
        exchange(chunks[(rank - 1 - step) % n], incoming, dst=right, src=left)
        target += incoming
    for step in range(n - 1 if rounds == 2 else 0):
        outgoing, incoming = (chunks[(rank + first - k - step) % n] for k in (0, 1))
        exchange(outgoing, incoming, dst=right, src=left)


def ring_in_place(tensor):
    return ring(tensor)


def one_turn(tensor):
    ring(tensor, rounds=1)


def second_turn_off_by_one(tensor):
    ring(tensor, first=-1)


def whole_tensor_ring(tensor):
    _, n, right, left = around()
    travelling, arriving = tensor.clone(), torch.empty_like(tensor)
    for _ in range(n - 1):
        exchange(travelling, arriving, dst=right, src=left)
        tensor += arriving
        travelling, arriving = arriving, travelling


def returned(tensor):
    result = tensor.clone()
    ring(result)
    return result


def blocking_circle(tensor):
    _, _, right, left = around()
    dist.send(tensor, right)
    dist.recv(tensor, left)


def adds_while_it_is_sent(tensor):
    _, n, right, left = around()
    for _ in range(n - 1):
        received, sending = torch.empty_like(tensor), dist.isend(tensor, right)
        dist.recv(received, left)
        tensor += received
        sending.wait()


# 6.2, the chain


def prefetching(tensor, src=0, chunks=8):
    """Every receive posted at once; each piece leaves when it is there."""
    rank, n, right, left = around()
    place, pieces = (rank - src) % n, tensor.view(-1).tensor_split(chunks)
    arriving = [irecv(piece, left) for piece in pieces if place]
    leaving = []
    for k, piece in enumerate(pieces):
        if place:
            arriving[k].wait()
        if place < n - 1:
            leaving.append(isend(piece, right))
    for work in leaving:
        work.wait()


def root_serves_all(tensor, src, chunks):
    rank, n, _, _ = around()
    for piece in tensor.view(-1).tensor_split(chunks):
        if rank != src:
            dist.recv(piece, src)
        for dst in range(n) if rank == src else ():
            if dst != src:
                dist.send(piece, dst)


def blocking_chain(tensor, src, chunks, last=True):
    rank, _, right, left = around()
    for piece in tensor.view(-1).tensor_split(chunks):
        if rank != src:
            dist.recv(piece, left)
        if right != src or not last:
            dist.send(piece, right)


def back_to_the_root(tensor, src, chunks):
    blocking_chain(tensor, src, chunks, last=False)


def in_one_piece(tensor, src, chunks):
    blocking_chain(tensor, src, chunks=1)


def from_rank_zero(tensor, src, chunks):
    prefetching(tensor, src=0, chunks=chunks)


def into_copies(tensor, src, chunks):
    prefetching(tensor.clone(), src=src, chunks=chunks)


# 6.3, doubling


def doubling(tensor, p):
    """Double among p ranks."""
    rank, distance, received = dist.get_rank(), 1, torch.empty_like(tensor)
    while distance < p:
        exchange(tensor, received, dst=rank ^ distance, src=rank ^ distance)
        tensor += received
        distance *= 2


def folded(tensor):
    rank, n, _, _ = around()
    p = 1 << (n.bit_length() - 1)
    other = torch.zeros_like(tensor)
    if rank >= p:
        dist.send(tensor, rank - p)
        dist.recv(tensor, rank - p)
    else:
        if rank + p < n:
            dist.recv(other, rank + p)
        doubling(tensor.add_(other), p)
        if rank + p < n:
            dist.send(tensor, rank + p)


def powers_of_two_only(tensor):
    doubling(tensor, dist.get_world_size())


def out_of_place(tensor):
    powers_of_two_only(tensor.clone())


def overwrites(tensor):
    rank, distance = dist.get_rank(), 1
    while distance < dist.get_world_size():
        exchange(tensor.clone(), tensor, dst=rank ^ distance, src=rank ^ distance)
        distance *= 2


# 6.6, a broadcast in turn


def tree(tensor, src):
    """Receive from the place without its highest bit, then serve in turn."""
    rank, n, _, _ = around()
    place, have = (rank - src) % n, 1
    if place:
        have = 1 << (place.bit_length() - 1)
        dist.recv(tensor, (rank - have) % n)
        have *= 2
    while place + have < n:
        dist.isend(tensor, (rank + have) % n).wait()
        have *= 2


def both_at_once(tensor, src):
    rank, n, _, _ = around()
    place, have, works = (rank - src) % n, 1, []
    if place:
        have = 1 << (place.bit_length() - 1)
        dist.recv(tensor, (rank - have) % n)
        have *= 2
    while place + have < n:
        works.append(dist.isend(tensor, (rank + have) % n))
        have *= 2
    for work in works:
        work.wait()


def root_in_turn(tensor, src):
    root_serves_all(tensor, src, chunks=1)


def root_is_zero(tensor, src):
    tree(tensor, 0)


# 6.5, the crossing


def crossing(alpha, beta, n, *, turns=2, two=math.inf):
    """Where ring and doubling take the same time; `two`: what is said of two ranks."""
    if n == 2 and two != "divide":
        return two
    rounds = math.log2(n)
    return (turns * (n - 1) - rounds) * alpha / ((rounds - turns * (n - 1) / n) * beta)
