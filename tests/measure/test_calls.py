"""The call log: whoever makes a call, however it was imported, and when it was waited for."""

import threading
import weakref
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as summed
from torch.distributed import irecv as post

from labkit import launch
from labkit.measure import calls
from labkit.measure.calls import ANY_SOURCE, Call, CallLog
from tests.marks import slow


def logged(block):
    """Run `block(rank, other)` on two ranks and return both logs."""

    def program():
        dist.barrier()
        with CallLog() as log:
            block(dist.get_rank(), 1 - dist.get_rank())
        dist.barrier()
        return log.calls

    return launch(program, world_size=2)


def by_thread(x):
    thread = threading.Thread(target=dist.all_reduce, args=(x,))
    thread.start()
    thread.join()


def by_functional(x):
    import torch.distributed._functional_collectives as functional

    functional.all_reduce(x, "sum", dist.group.WORLD).sum()


def by_group_method(x):
    dist.group.WORLD.allreduce([x], dist.AllreduceOptions()).wait()


@pytest.mark.parametrize("ways", [(summed, by_thread, by_group_method), slow((by_functional,))])
def test_an_all_reduce_is_seen_however_it_is_called(ways):
    for log in logged(lambda *_: [way(torch.ones(3, dtype=torch.float64)) for way in ways]):
        assert len(log) == len(ways)
        for call in log:
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
    assert all(call.blocking for call in log)
    of_all = ("all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
    assert [(call.kind, call.peer, call.nbytes) for call in log] == [
        *((kind, 1, 8) for kind in ("broadcast", "reduce")),
        *((kind, -1, 16) for kind in of_all),
        *((kind, -1, 0) for kind in ("barrier", "monitored_barrier")),
    ]


def exchange(rank, other):
    x, y = torch.ones(1), torch.ones(2)
    receiving = post(y, other, tag=7)
    sending = dist.isend(x.repeat(2), other, tag=7)
    receiving.wait()
    sending.wait()


def batch(rank, other):
    receiving = dist.P2POp(dist.irecv, torch.ones(2), other, tag=7)
    sending = dist.P2POp(dist.isend, torch.ones(2), other, tag=7)
    for work in dist.batch_isend_irecv([receiving, sending]):
        work.wait()


@pytest.mark.slow
@pytest.mark.parametrize("block", [exchange, batch])
def test_posts_and_waits_are_in_order(block):
    for rank, (received, sent) in enumerate(logged(block)):
        assert received == Call("recv", 1 - rank, 8, False, 7, torch.float32, (0, 1), 0, 2, "wait")
        assert sent == Call("send", 1 - rank, 8, False, 7, torch.float32, (0, 1), 1, 3, "wait")


def test_who_waits_in_the_call_and_from_whom_which_is_unknown_until_the_wait():
    def block(rank, other):
        x = torch.ones(1)
        dist.recv(x) if rank else dist.send(x, 1)
        for _ in range(2):
            works.append(dist.irecv(x) if rank else dist.isend(x, 1))
        works[0].wait()

    works = []
    first, second = logged(block)
    assert [(call.peer, call.blocking) for call in first] == [(1, True), (1, False), (1, False)]
    told = [(call.peer, call.blocking, call.at, call.waited) for call in second]
    assert told == [(0, True, 0, 1), (0, False, 2, 4), (ANY_SOURCE, False, 3, None)]


def test_the_root_in_a_group_has_its_number_in_the_world():
    def program():
        group = dist.new_group([1, 2])
        with CallLog() as log:
            if dist.get_rank():
                dist.broadcast(torch.ones(1), 2, group=group)
        return [(call.peer, call.ranks) for call in log.calls]

    assert launch(program, world_size=3) == [[], [(2, (1, 2))], [(2, (1, 2))]]


def test_a_log_that_has_ended_keeps_no_work():
    def program():
        with CallLog():
            work = dist.all_reduce(torch.ones(1), async_op=True)
        kept = weakref.ref(work)
        work.wait()
        del work
        return kept() is None

    assert launch(program, world_size=1) == [True]


def test_ways_to_wait_are_told_apart():
    def block(rank, other):
        x = torch.ones(1)
        polled = dist.all_reduce(x, async_op=True)
        while not polled.is_completed():
            pass
        dist.all_reduce(x, async_op=True).get_future().wait()
        futures = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in "abc"]
        torch.futures.wait_all(futures[:1])
        torch.futures.collect_all(futures[1:]).wait()
        dist.all_reduce(x, async_op=True)
        dist.barrier()

    for log in logged(block):
        told = [call.waited_by for call in log]
        assert told == ["is_completed", *["future"] * 4, None, "wait"]
        assert [call.blocking for call in log] == [False] * 6 + [True]
        assert log[5].waited is None


def test_works_stay_works():
    def program():
        with CallLog():
            work = dist.all_reduce(torch.ones(1), async_op=True)
            work.wait()
            kinds = type(work) is dist.Work, isinstance(work.get_future(), torch._C.Future)
        return *kinds, work.is_completed(), dist.Work.wait.__module__ != calls.__name__

    assert launch(program, world_size=2) == [(True,) * 4] * 2, "and their methods are torch's again"
