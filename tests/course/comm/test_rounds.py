from dataclasses import replace
from functools import partial

import pytest
import torch.distributed as dist

from course.comm.collectives import pattern
from course.comm.rounds import count_rounds
from labkit import launch
from labkit.measure import wire
from labkit.measure.calls import Call
from tests.course.lessons.equivalent_collectives import answers


def report(rank, *calls):
    """Blocking calls one after the other, except where a call says when."""
    timed = [
        call if call.at or call.waited else replace(call, at=2 * i, waited=2 * i + 1)
        for i, call in enumerate(calls)
    ]
    return wire.Report(rank=rank, world_size=2, calls=tuple(timed), flows={})


def test_a_receipt_orders_and_is_left_out():
    pieces = [
        report(0, Call("send", 1, 8), Call("recv", 1, 0), Call("send", 1, 4)),
        report(1, Call("recv", 0, 8), Call("send", 0, 0), Call("recv", 0, 4)),
    ]
    assert count_rounds(pieces) == 2


def chain(way):
    """Broadcast 40 numbers in 5 pieces from rank 0 down a chain; some wait for too much."""
    with wire.meter() as m:
        way(pattern(0, 40), 0, 5)
    return m.report


@pytest.mark.slow
@pytest.mark.parametrize(
    "way, expected",
    [
        (answers.prefetching, 5 + 4 - 2),
        (answers.store_and_forward, 3 * 5),
        (partial(answers.chain, send=dist.send), 2 * 5 + 1),
    ],
)
def test_what_is_waited_for_before_it_is_passed_on_costs_rounds(way, expected):
    """The second waits for all pieces, the third for each send before the next receive."""
    assert count_rounds(launch(chain, way, world_size=4)) == expected


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("recv", 1, 8), "rank 1 sends 0 messages of tag 0 to rank 0, which posts 1"),
        (Call("send", 1, 8), "rank 0 sends 1 messages of tag 0 to rank 1, which posts 0"),
        (Call("all_reduce"), "all_reduce, which hides"),
    ],
)
def test_what_does_not_match_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        count_rounds([report(0, call), report(1)])
