"""How much memory tensors took, and who used a buffer that was under way."""

import torch
import torch.distributed as dist

from course.checks import memory
from labkit import launch

KIB = 1024


def test_the_peak_is_what_was_alive_at_once():
    x = torch.ones(KIB)
    with memory.Allocated() as usage:
        y = x * 2
        y = y + 1  # the product lives until the name moves on
        del y
        z = torch.empty(10 * KIB, dtype=torch.uint8)
    assert usage.peak == 10 * KIB
    assert usage.now == 10 * KIB
    del z
    assert usage.now == 0


def test_views_and_in_place_work_are_free_and_a_storage_counts_once_while_any_view_lives():
    x = torch.ones(KIB)
    with memory.Allocated() as usage:
        for part in x.tensor_split(7):
            part.add_(part.view(-1)[: part.numel()])
        x[::2].mul_(3)
        assert usage.peak == 0
        view = torch.ones(KIB)[:1]
        for _ in range(5):
            view = view.view(1)
    assert usage.peak == usage.now == 4 * KIB
    del view
    assert usage.now == 0


def pass_on_before_the_wait(x, y, other):
    sending = dist.isend(y[1], other)
    dist.recv(torch.ones(6), other)
    sending.wait()


def other_rows(x, y, other):
    y[::2] += 1
    x[::2, 3:] += y[3, 3:]
    torch.empty_like(y)
    y[1].view(2, 3).numel()
    x[1].sum()


TOUCHED = {  # of the receive and of the send, then of the calls that were made meanwhile
    (lambda x, y, _: x.add_(1)): [None, "aten.add_"],
    (lambda x, y, _: x + y): ["aten.add", None],
    pass_on_before_the_wait: ["c10d.send", None, None, None],
    other_rows: [None, None],
}


def touched():
    other, seen = 1 - dist.get_rank(), []
    for meanwhile in TOUCHED:
        x, y = torch.ones(4, 6), torch.ones(4, 6)
        with memory.BufferLog() as log:
            works = [dist.irecv(y[1], other), dist.isend(x[1], other)]
            meanwhile(x, y, other)
            for work in works:
                work.wait()
        seen.append([call.touched for call in log.calls])
    with memory.BufferLog() as log:
        work = dist.broadcast(x, 0, async_op=True)
        x.sum()
        work.wait()
    return [*seen, [call.touched for call in log.calls]]


def test_a_buffer_that_is_touched_before_the_wait_and_the_root_of_a_broadcast_may_read_its_own():
    root, receiver = launch(touched, world_size=2)
    assert root == [*TOUCHED.values(), [None]]
    assert receiver == [*TOUCHED.values(), ["aten.sum"]]


def test_strided_memory_meets_only_where_elements_are():
    x = torch.zeros(4, 6)
    meets = lambda a, b: memory.overlap([a], memory.memories([b]))  # noqa: E731
    assert meets(x[:, 0], x[2])
    assert not meets(x[:, 0], x[:, 1:])
    assert not meets(x[::2], x[1::2])
    assert meets(x.t(), x[3, 5:])
    assert meets(x[:1].expand(3, 6), x[0])
    assert not meets(x[:0], x)
