import pytest
import torch
import torch.distributed as dist

from labkit import launch
from labkit.comm import algorithms, costs
from labkit.comm.collectives import pattern
from labkit.measure import wire
from labkit.measure.calls import Call
from labkit.measure.rounds import Message, rounds


def program(name, numel, kwargs):
    tensor = pattern(dist.get_rank(), numel)
    with wire.meter() as m:
        getattr(algorithms, name)(tensor, **kwargs)
    return m.report


@pytest.mark.parametrize(
    "name, kwargs",
    [
        ("ring_all_reduce", {}),
        ("tree_broadcast", {}),
        ("tree_reduce", {}),
        ("recursive_doubling_all_reduce", {}),
        ("halving_doubling_all_reduce", {}),
        ("pipelined_broadcast", {"chunks": 5}),
        ("all_reduce_by_exchange", {}),
        ("all_reduce_via_root", {}),
    ],
)
def test_rounds_are_what_the_model_says(name, kwargs):
    n = 4
    found = rounds(launch(program, name, 64, kwargs, world_size=n))
    assert len(found) == getattr(costs, name)(n, **kwargs).rounds
    assert sum(len(messages) for messages in found) > 0


def test_a_ring_keeps_every_link_busy_in_every_round():
    found = rounds(launch(program, "ring_all_reduce", 64, {}, world_size=3))
    for messages in found:
        assert {(m.src, m.dst) for m in messages} == {(0, 1), (1, 2), (2, 0)}


def report(rank, *calls):
    return wire.Report(rank=rank, world_size=2, calls=calls, flows={})


def test_a_receipt_orders_and_is_left_out():
    found = rounds(
        [
            report(0, Call("send", 1, 8), Call("recv", 1, 0), Call("send", 1, 4)),
            report(1, Call("recv", 0, 8), Call("send", 0, 0), Call("recv", 0, 4)),
        ]
    )
    assert found == [[Message(0, 1, 8)], [Message(0, 1, 4)]]


def test_blocking_and_not_is_told_from_the_function_that_was_called():
    def calls():
        x, y, other = torch.ones(1), torch.ones(1), 1 - dist.get_rank()
        with wire.meter() as m:
            algorithms.exchange(x, y, dst=other, src=other)
            dist.send(x, 1) if other else dist.recv(x, 0)
        return [(call.kind, call.blocking) for call in m.report.calls]

    first, second = launch(calls, world_size=2)
    assert first == [("recv", False), ("send", False), ("send", True)]
    assert second[-1] == ("recv", True)


def test_what_does_not_match_is_refused():
    with pytest.raises(ValueError, match=r"wait for a message that nobody sends: {0: \[1\]}"):
        rounds([report(0, Call("recv", 1, 8)), report(1)])
    with pytest.raises(ValueError, match="nobody received"):
        rounds([report(0, Call("send", 1, 8)), report(1)])
    with pytest.raises(ValueError, match="allreduce_, which hides"):
        rounds([report(0, Call("allreduce_")), report(1)])
