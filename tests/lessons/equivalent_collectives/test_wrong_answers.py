"""The usual mistakes of lesson 6's exercises: each is caught, and told by its own name."""

import functools
import math

import pytest
import torch
import torch.distributed as dist

from labkit.comm import algorithms
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.equivalent_collectives import checks


def ring(tensor, *, cut=torch.Tensor.tensor_split, turns=2, add=True, scratch=torch.empty_like):
    """A ring with one thing wrong, depending on the arguments."""
    rank, n = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks, room = cut(tensor, n), scratch(tensor)
    for step in range(n - 1):
        target = chunks[(rank - 2 - step) % n]
        incoming = room[: target.numel()] if add else target
        algorithms.exchange(chunks[(rank - 1 - step) % n], incoming, dst=right, src=left)
        if add:
            target += incoming
    for step in range(n - 1) if turns == 2 else ():
        outgoing, target = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        algorithms.exchange(outgoing, target, dst=right, src=left)


def whole_tensor_ring(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    travelling, arriving = tensor.clone(), torch.empty_like(tensor)
    for _ in range(n - 1):
        algorithms.exchange(travelling, arriving, dst=(rank + 1) % n, src=(rank - 1) % n)
        tensor += arriving
        travelling, arriving = arriving, travelling


def blocking_circle(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.send(tensor, (rank + 1) % n)
    dist.recv(tensor, (rank - 1) % n)


def equal_chunks(tensor, n):
    length = tensor.numel() // n  # forgets the rest
    return [tensor[i * length : (i + 1) * length] for i in range(n)]


def element_by_element(tensor):
    for piece in tensor.tensor_split(2):
        ring(piece)


def hang_briefly(monkeypatch):
    """Make checks give up soon: this answer hangs, and need not do so for long."""
    monkeypatch.setattr(checking, "on_ranks", functools.partial(checking.on_ranks, timeout=4))


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        pytest.param(whole_tensor_ring, "whole tensors go around", id="whole tensors"),
        pytest.param(blocking_circle, "both send first", id="blocking sends in a circle"),
        pytest.param(functools.partial(ring, cut=equal_chunks), "chunks differ in", id="odd sizes"),
        pytest.param(
            functools.partial(ring, add=False), "the receive buffer is the tensor", id="aliasing"
        ),
        pytest.param(
            functools.partial(ring, turns=1), "a turn of the ring is missing", id="half a ring"
        ),
        pytest.param(ring, "a copy of the whole tensor", id="too much memory"),
        pytest.param(
            functools.partial(element_by_element), "more messages than rounds", id="in two halves"
        ),
    ],
)
def test_ring(wrong, meaning, monkeypatch):
    if wrong is blocking_circle:
        hang_briefly(monkeypatch)
    with pytest.raises(CheckFailed) as caught:
        checks.check_ring_all_reduce(wrong)
    assert meaning in caught.value.meaning, str(caught.value)


def root_serves_all(tensor, src, chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    for piece in tensor.tensor_split(chunks):
        if rank == src:
            for dst in set(range(n)) - {src}:
                dist.send(piece, dst)
        else:
            dist.recv(piece, src)


def collects_first(tensor, src, chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, pieces = (rank - src) % n, tensor.tensor_split(chunks)
    for piece in pieces if place else ():
        dist.recv(piece, (rank - 1) % n)
    for piece in pieces if place < n - 1 else ():
        dist.send(piece, (rank + 1) % n)


def one_piece(tensor, src, chunks):
    algorithms.pipelined_broadcast(tensor, src=src, chunks=1)


def always_from_zero(tensor, src, chunks):
    algorithms.pipelined_broadcast(tensor, src=0, chunks=chunks)


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (root_serves_all, "the root, sends to several"),
        (collects_first, "collects all pieces first"),
        (one_piece, "not cut into `chunks` pieces"),
        (always_from_zero, "the chain starts at src"),
    ],
)
def test_pipelined_broadcast(wrong, meaning):
    with pytest.raises(CheckFailed) as caught:
        checks.check_pipelined_broadcast(wrong)
    assert meaning in caught.value.meaning.replace("probably ", ""), str(caught.value)


def powers_of_two_only(tensor, *, skip=False):
    rank, n = dist.get_rank(), dist.get_world_size()
    received, distance = torch.empty_like(tensor), 1
    while distance < n:
        partner = rank ^ distance
        if partner < n or not skip:
            algorithms.exchange(tensor, received, dst=partner, src=partner)
            tensor += received
        distance *= 2


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (powers_of_two_only, "works for powers of two only"),
        (functools.partial(powers_of_two_only, skip=True), "works for powers of two only"),
        (algorithms.ring_all_reduce, "a ring or a tree in disguise"),
    ],
)
def test_recursive_doubling(wrong, meaning, monkeypatch):
    if wrong is powers_of_two_only:
        hang_briefly(monkeypatch)
    with pytest.raises(CheckFailed) as caught:
        checks.check_recursive_doubling(wrong)
    assert meaning in caught.value.meaning, str(caught.value)


def auditor(collective, nbytes, n, seconds, link, *, two=2, switch=True):
    factor = {"all_reduce": two * (n - 1) / n, "broadcast": 1, "reduce": 1}
    busbw = nbytes / seconds * factor.get(collective, (n - 1) / n)
    if busbw <= link:
        return busbw, "possible"
    if switch and nbytes / seconds <= link and collective == "all_reduce":
        return busbw, "needs a switch that adds"
    return busbw, "impossible"


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (functools.partial(auditor, two=1), "2\\(n-1\\)/n for all_reduce"),
        (functools.partial(auditor, switch=False), "a switch that adds lets an all_reduce"),
        (lambda *claim: auditor(*claim)[1], "the return value's shape"),
    ],
)
def test_audit(wrong, meaning):
    with pytest.raises(CheckFailed, match=meaning):
        checks.check_audit(wrong)


def chooser(n, nbytes, alpha, beta, *, fold=True):
    p = 2 ** int(math.log2(n))
    more = 2 if fold and p < n else 0
    price = {
        "ring": (2 * (n - 1), 2 * (n - 1) / n),
        "doubling": (math.log2(p) + more, math.log2(p) + more),
        "halving-doubling": (2 * math.log2(p) + more, 2 * (p - 1) / p + more),
    }
    return min(price, key=lambda name: price[name][0] * alpha + price[name][1] * nbytes * beta)


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (lambda *case: "ring", "rounds decide"),
        (lambda *case: "doubling", "bytes decide"),
        (functools.partial(chooser, fold=False), "no power of two"),
        (lambda *case: "fastest", "the name is not known"),
    ],
)
def test_choose(wrong, meaning):
    with pytest.raises(CheckFailed, match=meaning):
        checks.check_choose(wrong)
