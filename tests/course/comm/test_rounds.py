from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from course.comm import algorithms
from course.comm.collectives import pattern
from course.comm.rounds import Message, rounds
from labkit import launch
from labkit.measure import wire
from labkit.measure.calls import Call


def ring(numel):
    with wire.meter() as m:
        algorithms.ring_all_reduce(pattern(dist.get_rank(), numel))
    return m.report


def test_a_ring_keeps_every_link_busy_in_every_round():
    found = rounds(launch(ring, 64, world_size=3))
    assert len(found) == 2 * 2
    for messages in found:
        assert {(m.src, m.dst) for m in messages} == {(0, 1), (1, 2), (2, 0)}


def report(rank, *calls):
    """Blocking calls one after the other, except where a call says when."""
    timed = [
        call if call.at or call.waited else replace(call, at=2 * i, waited=2 * i + 1)
        for i, call in enumerate(calls)
    ]
    return wire.Report(rank=rank, world_size=2, calls=tuple(timed), flows={})


def test_a_receipt_orders_and_is_left_out():
    found = rounds(
        [
            report(0, Call("send", 1, 8), Call("recv", 1, 0), Call("send", 1, 4)),
            report(1, Call("recv", 0, 8), Call("send", 0, 0), Call("recv", 0, 4)),
        ]
    )
    assert found == [[Message(0, 1, 8)], [Message(0, 1, 4)]]


def chain(numel, chunks, style):
    """Broadcast from rank 0 down a chain, in one of several ways; some wait for too much."""
    rank, n = dist.get_rank(), dist.get_world_size()
    pieces = pattern(0, numel).tensor_split(chunks)
    buffers = [torch.empty_like(piece) for piece in pieces] if rank else pieces
    with wire.meter() as m:
        if style == "store and forward":
            works = [dist.irecv(b, rank - 1) for b in buffers] if rank else []
            for work in works:
                work.wait()
            works = [dist.isend(b, rank + 1) for b in buffers] if rank < n - 1 else []
            for work in works:
                work.wait()
        elif style == "posted ahead":
            works = [dist.irecv(b, rank - 1) for b in buffers] if rank else [None] * chunks
            sending = []
            for work, buffer in zip(works, buffers, strict=True):
                if work:
                    work.wait()
                if rank < n - 1:
                    sending.append(dist.isend(buffer, rank + 1))
            for work in sending:
                work.wait()
        else:
            for buffer in buffers:
                if rank:
                    dist.recv(buffer, rank - 1)
                if rank < n - 1:
                    dist.send(buffer, rank + 1)
    return m.report


@pytest.mark.parametrize(
    "style, expected",
    [("posted ahead", 5 + 4 - 2), ("store and forward", 3 * 5), ("blocking", 2 * 5 + 1)],
)
def test_what_is_waited_for_before_it_is_passed_on_costs_rounds(style, expected):
    """The second waits for all pieces, the third for each send before the next receive."""
    assert len(rounds(launch(chain, 40, 5, style, world_size=4))) == expected


def test_what_does_not_match_is_refused():
    with pytest.raises(ValueError, match=r"wait for a message that nobody sends: {0: 1}"):
        rounds([report(0, Call("recv", 1, 8)), report(1)])
    with pytest.raises(ValueError, match="nobody received what rank 0 sent to rank 1"):
        rounds([report(0, Call("send", 1, 8, at=1)), report(1)])
    with pytest.raises(ValueError, match="rank 0 posted a receive for which rank 1 sent nothing"):
        rounds([report(0, Call("recv", 1, 8, at=1)), report(1)])
    with pytest.raises(ValueError, match="all_reduce, which hides"):
        rounds([report(0, Call("all_reduce")), report(1)])
