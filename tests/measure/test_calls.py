"""The call log: whoever makes a call, however it was imported, and when it was waited for."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as summed
from torch.distributed import irecv as post
from torch.nn.parallel import DistributedDataParallel

from labkit import launch
from labkit.measure import calls, memory
from labkit.measure.calls import ANY_SOURCE, Call, CallLog


def logged(block):
    """Run `block(rank, other)` on two ranks and return both logs."""

    def program():
        dist.barrier()
        with CallLog() as log:
            block(dist.get_rank(), 1 - dist.get_rank())
        dist.barrier()
        return log.calls

    return launch(program, world_size=2)


def by_name(rank, other):
    summed(torch.ones(3, dtype=torch.float64))


def by_thread(rank, other):
    thread = threading.Thread(target=dist.all_reduce, args=(torch.ones(3, dtype=torch.float64),))
    thread.start()
    thread.join()


def by_functional(rank, other):
    import torch.distributed._functional_collectives as functional

    functional.all_reduce(torch.ones(3, dtype=torch.float64), "sum", dist.group.WORLD).sum()


def by_group_method(rank, other):
    options = dist.AllreduceOptions()
    dist.group.WORLD.allreduce([torch.ones(3, dtype=torch.float64)], options).wait()


@pytest.mark.parametrize("block", [by_name, by_thread, by_functional, by_group_method])
def test_an_all_reduce_is_seen_however_it_is_called(block):
    for log in logged(block):
        (call,) = log
        assert (call.kind, call.nbytes, call.dtype) == ("all_reduce", 24, torch.float64)
        assert call.ranks == (0, 1)
        assert call.waited == call.at + 1


def test_collectives_have_torch_names_roots_and_the_largest_buffer():
    def block(rank, other):
        one, two = torch.ones(2), torch.ones(4)
        dist.broadcast(one, 1)
        dist.reduce(one, 1)
        dist.all_gather([torch.ones(2), torch.ones(2)], one)
        dist.all_gather_into_tensor(two, one)
        dist.reduce_scatter_tensor(one, two)
        dist.all_to_all_single(torch.ones(4), two)
        dist.barrier()
        dist.monitored_barrier(timeout=timedelta(seconds=30))

    log = logged(block)[0]
    assert [(call.kind, call.peer, call.nbytes, call.blocking) for call in log] == [
        ("broadcast", 1, 8, True),
        ("reduce", 1, 8, True),
        ("all_gather", -1, 16, True),
        ("all_gather_into_tensor", -1, 16, True),
        ("reduce_scatter_tensor", -1, 16, True),
        ("all_to_all_single", -1, 16, True),
        ("barrier", -1, 0, True),
        ("monitored_barrier", -1, 0, True),
    ]


def test_ddp_is_seen_though_it_calls_from_cpp():
    def program():
        with CallLog() as log:
            model = DistributedDataParallel(torch.nn.Linear(3, 2))
            before = len(log.calls)
            model(torch.ones(1, 3)).sum().backward()
        return [(call.kind, call.nbytes) for call in log.calls[before:]]

    assert launch(program, world_size=2) == [[("all_reduce", 32)]] * 2


def exchange(rank, other):
    x, y = torch.ones(1), torch.ones(2)
    receiving = post(y, other, tag=7)
    sending = dist.isend(x.repeat(2), other, tag=7)
    receiving.wait()
    sending.wait()


def batch(rank, other):
    x, y = torch.ones(2), torch.ones(2)
    operations = [
        dist.P2POp(dist.irecv, y, other, tag=7),
        dist.P2POp(dist.isend, x, other, tag=7),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


@pytest.mark.parametrize("block", [exchange, batch])
def test_posts_and_waits_are_in_order(block):
    for rank, log in enumerate(logged(block)):
        received, sent = log
        assert received == Call(
            "recv", 1 - rank, 8, False, 7, torch.float32, (0, 1), 0, 2, "wait", None
        )
        assert sent == Call("send", 1 - rank, 8, False, 7, torch.float32, (0, 1), 1, 3, "wait")


def test_who_waits_in_the_call_and_from_whom():
    def block(rank, other):
        x = torch.ones(1)
        dist.recv(x) if rank else dist.send(x, 1)
        works = [dist.irecv(x)] if rank else [dist.isend(x, 1)]
        works[0].wait()

    first, second = logged(block)
    assert [(call.peer, call.blocking) for call in first] == [(1, True), (1, False)]
    assert [(call.peer, call.blocking) for call in second] == [(0, True), (0, False)]
    assert [(call.at, call.waited) for call in second] == [(0, 1), (2, 3)]


def test_ways_to_wait_are_told_apart():
    def block(rank, other):
        x = torch.ones(1)
        polled = dist.all_reduce(x, async_op=True)
        while not polled.is_completed():
            pass
        dist.all_reduce(x, async_op=True).get_future().wait()
        dist.all_reduce(x, async_op=True)
        dist.barrier()

    for log in logged(block):
        assert [call.waited_by for call in log] == ["is_completed", "future", None, "wait"]
        assert [call.blocking for call in log] == [False, False, False, True]
        assert log[2].waited is None


def test_works_stay_works():
    def program():
        with CallLog():
            work = dist.all_reduce(torch.ones(1), async_op=True)
            work.wait()
            kinds = type(work) is dist.Work, isinstance(work.get_future(), torch._C.Future)
        return kinds, dist.Work.wait.__module__, work.is_completed()

    (kinds, module, done), _ = launch(program, world_size=2)
    assert kinds == (True, True)
    assert done
    assert module != calls.__name__, "the methods are torch's own again"


def change_what_is_sent(rank, other):
    x, y = torch.ones(8), torch.ones(8)
    receiving, sending = dist.irecv(y, other), dist.isend(x, other)
    receiving.wait()
    x += y
    sending.wait()


def read_before_the_wait(rank, other):
    x, y = torch.ones(8), torch.ones(8)
    receiving, sending = dist.irecv(y, other), dist.isend(x, other)
    total = x + y
    receiving.wait()
    sending.wait()
    return total


def pass_on_before_the_wait(rank, other):
    x, y = torch.ones(8), torch.ones(8)
    works = [dist.irecv(y, other), dist.isend(x, other), dist.isend(y, other)]
    dist.recv(torch.ones(8), other)
    for work in works:
        work.wait()


def other_rows(rank, other):
    x, y = torch.ones(4, 6), torch.ones(4, 6)
    receiving, sending = dist.irecv(y[1], other), dist.isend(x[1], other)
    y[::2] += 1
    x[::2, 3:] += y[3, 3:]
    torch.empty_like(y)
    y[1].view(2, 3).numel()
    x[1].sum()
    receiving.wait()
    sending.wait()
    y += 1


def read_at_the_root(rank, other):
    x = torch.ones(8)
    work = dist.broadcast(x, 0, async_op=True)
    x.sum()
    work.wait()


def test_the_root_of_a_broadcast_may_read_its_buffer():
    assert [log[0].touched for log in logged(read_at_the_root)] == [None, "aten.sum"]


@pytest.mark.parametrize(
    "block, expected",
    [
        (change_what_is_sent, [None, "aten.add_"]),
        (read_before_the_wait, ["aten.add", None]),
        (pass_on_before_the_wait, ["c10d.send", None, None, None]),
        (other_rows, [None, None]),
    ],
)
def test_a_buffer_that_is_touched_before_the_wait(block, expected):
    for log in logged(block):
        assert [call.touched for call in log] == expected


def test_strided_memory_meets_only_where_elements_are():
    x = torch.zeros(4, 6)
    meets = lambda a, b: memory.overlap([a], memory.memories([b]))  # noqa: E731
    assert meets(x[:, 0], x[2])
    assert not meets(x[:, 0], x[:, 1:])
    assert not meets(x[::2], x[1::2])
    assert meets(x.t(), x[3, 5:])
    assert meets(x[:1].expand(3, 6), x[0])
    assert not meets(x[:0], x)


def test_a_receive_from_anyone_is_unknown_until_the_wait():
    def program():
        dist.barrier()
        with CallLog() as log:
            works = (
                [dist.irecv(torch.ones(1))] if dist.get_rank() else [dist.isend(torch.ones(1), 1)]
            )
        for work in works:
            work.wait()
        return log.calls[0].peer

    assert launch(program, world_size=2) == [1, ANY_SOURCE]
