"""Answers to lesson 06's exercises: right ones in another style, wrong ones that share no line.

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


def ring(tensor):
    rank, n, right, left = around()
    chunks = tensor.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        adds, target = step < n - 1, chunks[(rank - 2 - step) % n]
        incoming = torch.empty_like(target) if adds else target
        exchange(chunks[(rank - 1 - step) % n], incoming, dst=right, src=left)
        if adds:
            target += incoming


def whole_tensor_ring(tensor):
    _, n, right, left = around()
    travelling, arriving = tensor.clone(), torch.empty_like(tensor)
    for _ in range(n - 1):
        exchange(travelling, arriving, dst=right, src=left)
        tensor += arriving
        travelling, arriving = arriving, travelling


def blocking_circle(tensor):
    _, _, right, left = around()
    dist.send(tensor, right)
    dist.recv(tensor, left)


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


def root_serves_all(tensor, src, chunks=1):
    rank, n, _, _ = around()
    for piece in tensor.view(-1).tensor_split(chunks):
        if rank != src:
            dist.recv(piece, src)
        for dst in range(n) if rank == src else ():
            if dst != src:
                dist.send(piece, dst)


# 6.3, doubling


def folded(tensor):
    """Hand over before and after; in between double among a power of two."""
    rank, n, _, _ = around()
    p, distance = 1 << (n.bit_length() - 1), 1
    other = torch.zeros_like(tensor)
    if rank >= p:
        dist.send(tensor, rank - p)
        dist.recv(tensor, rank - p)
        return
    if rank + p < n:
        dist.recv(other, rank + p)
    tensor.add_(other)
    while distance < p:
        exchange(tensor, other, dst=rank ^ distance, src=rank ^ distance)
        tensor.add_(other)
        distance *= 2
    if rank + p < n:
        dist.send(tensor, rank + p)


# 6.6, a broadcast in turn


def tree(tensor, src, in_turn=True):
    """Receive from the place without its highest bit, then serve in turn, or all at once."""
    rank, n, _, _ = around()
    place, have, works = (rank - src) % n, 1, []
    if place:
        have = 1 << (place.bit_length() - 1)
        dist.recv(tensor, (rank - have) % n)
        have *= 2
    while place + have < n:
        works.append(dist.isend(tensor, (rank + have) % n))
        if in_turn:
            works.pop().wait()
        have *= 2
    for work in works:
        work.wait()


# 6.5, the crossing


def crossing(alpha, beta, n, *, turns=2, two=math.inf):
    """Where ring and doubling take the same time; `two`: what is said of two ranks."""
    if n == 2 and two != "divide":
        return two
    rounds = math.log2(n)
    return (turns * (n - 1) - rounds) * alpha / ((rounds - turns * (n - 1) / n) * beta)
