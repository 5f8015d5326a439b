from dataclasses import replace

import pytest
import torch.distributed as dist

from course.comm.collectives import pattern
from course.comm.rounds import count_rounds
from labkit import launch
from labkit.measure import wire
from labkit.measure.calls import Call


def report(rank, *calls):
    """Blocking calls one after the other, except where a call says when."""
    timed = [
        call if call.at or call.waited else replace(call, at=2 * i, waited=2 * i + 1)
        for i, call in enumerate(calls)
    ]
    return wire.Report(rank=rank, world_size=2, calls=tuple(timed), flows={})


def test_a_receipt_orders_and_is_left_out():
    sender = report(0, Call("send", 1, 8), Call("recv", 1, 0), Call("send", 1, 4))
    receiver = report(1, Call("recv", 0, 8), Call("send", 0, 0), Call("recv", 0, 4))
    assert count_rounds([sender, receiver]) == 2


def chain(waits_for):
    """Broadcast 5 pieces down a chain of ranks."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    pieces = pattern(0, 40).tensor_split(5)
    blocking, leaving = waits_for == "each send", []
    with wire.meter() as m:
        arriving = [dist.irecv(piece, rank - 1) for piece in pieces if rank and not blocking]
        for work in arriving if waits_for == "all pieces" else []:
            work.wait()
        for k, piece in enumerate(pieces):
            if rank and blocking:
                dist.recv(piece, rank - 1)
            elif rank and waits_for == "its piece":
                arriving[k].wait()
            if rank < last:
                leaving.append((dist.send if blocking else dist.isend)(piece, rank + 1))
        for work in filter(None, leaving):
            work.wait()
    return m.report


ROUNDS = [("its piece", 5 + 4 - 2), ("all pieces", 3 * 5), ("each send", 2 * 5 + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("waits_for, expected", ROUNDS)
def test_what_is_waited_for_before_it_is_passed_on_costs_rounds(waits_for, expected):
    assert count_rounds(launch(chain, waits_for, world_size=4)) == expected


UNMATCHED = [
    (Call("recv", 1, 8), "rank 1 sends 0 messages of tag 0 to rank 0, which posts 1"),
    (Call("send", 1, 8), "rank 0 sends 1 messages of tag 0 to rank 1, which posts 0"),
    (Call("all_reduce"), "all_reduce, which hides"),
]


@pytest.mark.parametrize(("call", "words"), UNMATCHED)
def test_what_does_not_match_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        count_rounds([report(0, call), report(1)])
