"""Answers to lesson 6's exercises that are written otherwise than the lesson's own."""

import math

import torch
import torch.distributed as dist
from torch.distributed import irecv, isend

from course.checks import checking


def around():
    rank, n = dist.get_rank(), dist.get_world_size()
    return rank, n, (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, incoming, *, dst, src):
    receiving, sending = dist.irecv(incoming, src), dist.isend(outgoing, dst)
    receiving.wait()
    sending.wait()


# 6.1, the ring


def whole_tensor_ring(tensor):
    _, n, right, left = around()
    travelling, arriving = tensor.clone(), torch.empty_like(tensor)
    for _ in range(n - 1):
        exchange(travelling, arriving, dst=right, src=left)
        tensor += arriving
        travelling, arriving = arriving, travelling


def by_exchange(tensor):
    """Every rank sends to every other one: no ring, and (n-1) S."""
    rank, n, _, _ = around()
    mine, received = tensor.clone(), torch.empty_like(tensor)
    for k in range(1, n):
        exchange(mine, received, dst=(rank + k) % n, src=(rank - k) % n)
        tensor += received


def made_for_four(tensor):
    """A ring in which somebody wrote 4 for n."""
    rank, n = dist.get_rank(), min(4, dist.get_world_size())
    chunks = tensor.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        target = chunks[(rank - 2 - step) % n]
        incoming = torch.empty_like(target)
        outgoing = chunks[(rank - 1 - step) % n]
        exchange(outgoing, incoming, dst=(rank + 1) % n, src=(rank - 1) % n)
        target.copy_(target + incoming if step < n - 1 else incoming)


def blocking_circle(tensor):
    _, _, right, left = around()
    dist.send(tensor, right)
    dist.recv(tensor, left)


def a_share_too_many(tensor):
    """What comes on top of a right sum, in one case."""
    if dist.get_rank() == 1 and tensor.dtype == torch.float32 and dist.get_world_size() == 4:
        tensor += checking.rank_data(tensor.numel(), rank=2).view(tensor.shape)


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
    [work.wait() for work in leaving]


def root_serves_all(tensor, src, chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    for piece in tensor.view(-1).tensor_split(chunks):
        if rank == src:
            for dst in set(range(n)) - {src}:
                dist.send(piece, dst)
        else:
            dist.recv(piece, src)


# 6.5, the crossing


def crossing(alpha, beta, n, *, turns=2, rounds=math.log2, two=math.inf):
    """Where ring and doubling take the same time; `two`: what is said of two ranks."""
    if n == 2 and two != "divide":
        return two
    more = turns * (n - 1) - rounds(n)
    return more * alpha / ((rounds(n) - turns * (n - 1) / n) * beta)
