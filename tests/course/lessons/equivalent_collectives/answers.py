"""Answers to lesson 6's exercises, right and wrong. Ranks import this module: it is light."""

import math

import torch
import torch.distributed as dist
from torch.distributed import irecv, isend, recv, send

from course.checks import checking


def exchange(outgoing, incoming, *, dst, src):
    receiving, sending = dist.irecv(incoming, src), dist.isend(outgoing, dst)
    receiving.wait()
    sending.wait()


def around():
    rank, n = dist.get_rank(), dist.get_world_size()
    return rank, n, (rank + 1) % n, (rank - 1) % n


# 6.1, the ring


def ring(tensor, *, cut=torch.Tensor.tensor_split, turns=2, add=True, swap=exchange, later=0,
         hears=0, more=0, sums_on=False,
         scratch=lambda flat, chunks: torch.empty_like(chunks[0])):  # fmt: skip
    """A ring, with one thing wrong or one thing done in another style."""
    rank, n, right, left = around()
    flat = tensor.view(-1)
    chunks = cut(flat, n)
    room = scratch(flat, chunks)
    for step in range(n - 1):
        target = chunks[(rank - 2 - step - hears) % n]
        incoming = room[: target.numel()] if add else target
        swap(chunks[(rank - 1 - step) % n], incoming, dst=right, src=left)
        if add:
            target += incoming
    for step in range(n - 1 + more) if turns == 2 else ():
        outgoing, target = (chunks[(rank - step - later - k) % n] for k in (0, 1))
        incoming = room[: target.numel()] if sums_on else target
        swap(outgoing, incoming, dst=right, src=left)
        if sums_on:
            target += incoming


def batched(outgoing, incoming, *, dst, src):
    operations = [dist.P2POp(dist.irecv, incoming, src), dist.P2POp(dist.isend, outgoing, dst)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def by_name(outgoing, incoming, *, dst, src):
    """Functions imported by name, the send first, waited for in another order, in a generator."""
    works = [isend(outgoing, dst), irecv(incoming, src)]
    assert all(work.wait() for work in reversed(works))


def parity(outgoing, incoming, *, dst, src):
    """Blocking calls only: rank 0 receives first, all others send first."""
    calls = [lambda: send(outgoing, dst), lambda: recv(incoming, src)]
    for call in calls[::-1] if dist.get_rank() == 0 else calls:
        call()


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


def equal_chunks(tensor, n):
    length = tensor.numel() // n  # forgets the rest
    return [tensor[i * length : (i + 1) * length] for i in range(n)]


def in_two_halves(tensor):
    for piece in tensor.view(-1).tensor_split(2):
        ring(piece)


def send_waited_late(tensor):
    rank, n, right, left = around()
    chunks, sending = tensor.view(-1).tensor_split(n), []
    for step in range(2 * (n - 1)):
        target = chunks[(rank - 2 - step) % n]
        incoming = torch.empty_like(target)
        sending.append(dist.isend(chunks[(rank - 1 - step) % n], right))
        dist.recv(incoming, left)
        target.copy_(target + incoming if step < n - 1 else incoming)
    for work in sending:
        work.wait()


def reads_too_early(tensor):
    rank, n, right, left = around()
    chunks = tensor.view(-1).tensor_split(n)
    incoming = torch.empty_like(chunks[0])
    receiving = dist.irecv(incoming, left)
    sending = dist.isend(chunks[rank], right)
    chunks[0].add_(incoming[: chunks[0].numel()])
    receiving.wait(), sending.wait()


def one_share_too_many(tensor):
    ring(tensor)
    if dist.get_rank() == 1 and tensor.dtype == torch.float32 and dist.get_world_size() == 4:
        tensor += checking.rank_data(tensor.numel(), rank=2).view(tensor.shape)


def returned(tensor):
    """Returns the sum, and leaves the tensor as it was."""
    whole = tensor.clone()
    ring(whole)
    return whole


def made_for_four(tensor):
    """A ring in which somebody wrote 4 for n."""
    rank, n = dist.get_rank(), 4 if dist.get_world_size() >= 4 else dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks = tensor.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        target = chunks[(rank - 2 - step) % n]
        incoming = torch.empty_like(target)
        exchange(chunks[(rank - 1 - step) % n], incoming, dst=right, src=left)
        target.copy_(target + incoming if step < n - 1 else incoming)


def a_mean(tensor):
    """Divides by the number of ranks, where it is a sum of whole numbers."""
    ring(tensor)
    if tensor.dtype == torch.int64:
        tensor /= dist.get_world_size()


# 6.2, the chain


def the_last_sends_to_the_root(tensor, src, chunks):
    """A chain that closes: the last rank passes on to the root, which receives nothing."""
    rank, _, right, left = around()
    works = []
    for piece in tensor.view(-1).tensor_split(chunks):
        if rank != src:
            dist.recv(piece, left)
        works.append(dist.isend(piece, right))
    for work in works:
        work.wait()


def with_a_spare_piece(tensor, src, chunks):
    """Receives into a piece of its own, and copies."""
    rank, n, right, left = around()
    works = []
    for piece in tensor.view(-1).tensor_split(chunks):
        if (rank - src) % n > 0:
            spare = torch.empty_like(piece)
            dist.recv(spare, left)
            piece.copy_(spare)
        if (rank - src) % n < n - 1:
            works.append(dist.isend(piece, right))
    for work in works:
        work.wait()


def chain(tensor, src, chunks, *, first=None, pieces=None, order=1, send=isend, flat=torch.flatten):
    """A pipelined broadcast, with one thing wrong or in another style."""
    rank, n, right, left = around()
    place, sending = (rank - (src if first is None else first)) % n, []
    split = flat(tensor).tensor_split(pieces or chunks)
    for piece in split[::order] if place else split:
        if place > 0:
            dist.recv(piece, left)
        if place < n - 1:
            sending.append(send(piece, right))
    for work in filter(None, sending):
        work.wait()


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


def store_and_forward(tensor, src, chunks):
    rank, n, right, left = around()
    place, pieces = (rank - src) % n, tensor.view(-1).tensor_split(chunks)
    arriving = [dist.irecv(piece, left) for piece in pieces if place]
    for work in arriving:
        work.wait()
    leaving = [dist.isend(piece, right) for piece in pieces if place < n - 1]
    for work in leaving:
        work.wait()


def into_a_copy(tensor, src, chunks):
    copy = tensor.clone()
    chain(copy, src, chunks)
    tensor.copy_(copy)


def passes_on_too_early(tensor, src, chunks):
    rank, n, right, left = around()
    place, works = (rank - src) % n, []
    for piece in tensor.view(-1).tensor_split(chunks):
        works += [dist.irecv(piece, left)] if place else []
        works += [dist.isend(piece, right)] if place < n - 1 else []
    for work in works:
        work.wait()


def forgets_the_rest(tensor, src, chunks):
    flat = tensor.view(-1)
    chain(flat[: len(flat) // chunks * chunks], src, chunks)


# 6.3, doubling


def doubling(tensor, *, swap=exchange, add=torch.Tensor.add_):
    """Recursive doubling; the last ranks fold onto the first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    p = 1 << (n.bit_length() - 1)
    if rank >= p:
        send(tensor, rank - p)
        recv(tensor, rank - p)
        return
    received, distance = torch.empty_like(tensor), 1
    if rank + p < n:
        recv(received, rank + p)
        tensor += received
    while distance < p:
        swap(tensor, received, dst=rank ^ distance, src=rank ^ distance)
        add(tensor, received)
        distance *= 2
    if rank + p < n:
        send(tensor, rank + p)


def doubly(tensor, other):
    """An addition that is made again."""
    return tensor.add_(other, alpha=2)


def powers_of_two_only(tensor, *, skip=False):
    rank, n = dist.get_rank(), dist.get_world_size()
    received, distance = torch.empty_like(tensor), 1
    while distance < n:
        partner = rank ^ distance
        if partner < n or not skip:
            exchange(tensor, received, dst=partner, src=partner)
            tensor += received
        distance *= 2


def numpy_race(tensor):
    """Adds through numpy while its send may not have started: only large tensors show it."""
    rank, n = dist.get_rank(), dist.get_world_size()
    sending = []
    for k in range(int(math.log2(n))):
        received, partner = torch.empty_like(tensor), rank ^ 2**k
        sending.append(dist.isend(tensor, partner))
        dist.recv(received, partner)
        mine = tensor.numpy()
        mine += received.numpy()
    for work in sending:
        work.wait()


def overwrites(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    for k in range(int(math.log2(n))):
        mine = tensor.clone()
        exchange(mine, tensor, dst=rank ^ 2**k, src=rank ^ 2**k)


def two_exchanges(tensor, received, *, dst, src=None):
    """One after the other, where both ways at once will do."""
    first = dist.get_rank() < dst
    mine = tensor.clone()
    (dist.send if first else dist.recv)(mine if first else received, dst)
    (dist.recv if first else dist.send)(received if first else mine, dst)


def out_of_place(tensor):
    """Adds into a new tensor, which nobody sees."""
    rank, n = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(tensor)
    for k in range(int(math.log2(n))):
        exchange(tensor, received, dst=rank ^ 2**k, src=rank ^ 2**k)
        tensor = tensor + received


def by_exchange(tensor):
    """Every rank sends to every other one: no ring, and (n-1) S."""
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, received = tensor.clone(), torch.empty_like(tensor)
    for k in range(1, n):
        exchange(mine, received, dst=(rank + k) % n, src=(rank - k) % n)
        tensor += received


def in_float32(tensor, swap):
    """Adds in float32, whatever the type."""
    kept = tensor.dtype
    narrow = tensor.float()
    swap(narrow)
    tensor.copy_(narrow.to(kept))


def unflattened_ring(tensor):
    ring(tensor, cut=lambda flat, n: tensor.tensor_split(n))


def up_to_seven(tensor):
    """Right for the numbers of ranks that the statement names, and wrong for others."""
    if dist.get_world_size() <= 7:
        doubling(tensor)
    else:
        powers_of_two_only(tensor, skip=True)


# 6.5, the crossing


def crossing(alpha, beta, n, *, turns=2, rounds=math.log2, two=math.inf):
    """Where ring and doubling take the same time; `two`: what is said of two ranks."""
    if n == 2 and two != "divide":
        return two
    more = turns * (n - 1) - rounds(n)
    return more * alpha / ((rounds(n) - turns * (n - 1) / n) * beta)
