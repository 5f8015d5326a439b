import socket
import struct

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.comm.collectives import all_gather_single, reduce_scatter_single
from labkit import launch
from labkit.measure import wire
from tests.marks import slow

S = 2 * 12 * 4096  # divides by 2 x world_size x unit for 2, 3 and 4 ranks

pytestmark = pytest.mark.skipif(
    wire.unavailable() is not None, reason=f"the wire meter: {wire.unavailable()}"
)


def metered(call):
    call()  # opens what connections it needs
    with wire.meter() as m:
        call()
    return m.report


def every_collective():
    n, x = dist.get_world_size(), torch.ones(S // 4)
    y, part = torch.empty_like(x), torch.empty(x.numel() // n)
    calls = {
        "all_reduce": lambda: dist.all_reduce(x),
        "reduce": lambda: dist.reduce(x, 0),
        "broadcast": lambda: dist.broadcast(x, 0),
        "reduce_scatter": lambda: reduce_scatter_single(part, x),
        "all_gather": lambda: all_gather_single(y, part),
        "all_to_all": lambda: dist.all_to_all_single(y, x),
        "barrier": dist.barrier,
    }
    return {name: metered(call) for name, call in calls.items()}


def ring(n, share):
    """Each rank sends `share` of S to one neighbour, and to nobody else."""
    return np.roll(np.eye(n), -1, axis=1) * share * S


@pytest.mark.parametrize("n", [2, slow(4)])
def test_what_gloo_really_sends(n):
    results = launch(every_collective, world_size=n)
    sent = {name: wire.payload([r[name] for r in results]) for name in results[0]}
    np.testing.assert_array_equal(sent["all_reduce"], ring(n, 2 * (n - 1) / n))
    # gloo's reduce_scatter is a whole all_reduce: twice what it needs
    np.testing.assert_array_equal(sent["reduce_scatter"], sent["all_reduce"])
    np.testing.assert_array_equal(sent["all_gather"], ring(n, (n - 1) / n).T)
    np.testing.assert_array_equal(sent["all_to_all"], (1 - np.eye(n)) * S / n)
    assert sent["broadcast"].sum() == (n - 1) * S
    assert sent["broadcast"][0].sum() == np.ceil(np.log2(n)) * S  # an unpipelined binomial tree
    assert sent["reduce"].sum() == sent["broadcast"].sum() * (1 + 1 / n)  # reduce_scatter + gather
    assert not sent["barrier"].any()
    assert all(wire.matrix([r["barrier"] for r in results]).sum(1) > 0)  # headers only


def test_sends_of_any_size_are_exact_to_the_byte():
    def program():
        rank, n = dist.get_rank(), dist.get_world_size()
        x, y = torch.zeros(1001 + rank, dtype=torch.uint8), torch.empty(2000, dtype=torch.uint8)

        def exchange():
            right, left = (rank + 1) % n, (rank - 1) % n
            sending = dist.isend(x, right)
            dist.recv(y[: 1001 + left], left)
            sending.wait()

        return metered(exchange)

    reports = launch(program, world_size=3)
    assert wire.payload(reports).tolist() == [[0, 1001, 0], [0, 0, 1002], [1003, 0, 0]]
    assert wire.matrix(reports)[0].tolist() == [0, 1001 + 2 * 48, 48]
    made = [(call.kind, call.peer, call.nbytes, call.blocking) for call in reports[1].calls]
    assert made == [("send", 2, 1002, False), ("recv", 0, 1001, True)]


@pytest.mark.slow
def test_batches_any_source_and_big_messages():
    def program():
        rank = dist.get_rank()
        big, small = torch.ones(2**21), torch.empty(7)

        def batch():
            other = 1 - rank
            ops = [dist.P2POp(dist.isend, big, other), dist.P2POp(dist.irecv, big.clone(), other)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

        def from_anybody():
            dist.send(small, 1) if rank == 0 else dist.recv(small)

        return metered(batch), metered(from_anybody)

    batch, anybody = zip(*launch(program, world_size=2), strict=True)
    assert wire.payload(batch).tolist() == [[0, 2**23], [2**23, 0]]
    assert wire.payload(anybody).tolist() == [[0, 28], [0, 0]]


@pytest.mark.slow
def test_groups_are_counted_together_by_world_rank():
    def program():
        odd = dist.new_group([1, 3])
        x = torch.ones(S // 4)

        def both():
            for _ in range(2 * (dist.get_rank() % 2)):
                dist.all_reduce(x, group=odd)

        def by_group_rank():
            if dist.get_rank() == 1:
                dist.send(x, group_dst=1, group=odd)
            elif dist.get_rank() == 3:
                dist.recv(x, group_src=0, group=odd)

        return metered(both), metered(by_group_rank)

    both, send = zip(*launch(program, world_size=4), strict=True)
    expected = np.zeros((4, 4))
    expected[1, 3] = expected[3, 1] = 2 * S
    np.testing.assert_array_equal(wire.payload(both), expected)
    assert wire.payload(send)[1].tolist() == [0, 0, 0, S]


REFUSED = {
    "awkward": r"not a multiple of 4096.*take wire\.matrix",
    "early": r"asked to send 4 bytes.*wait for all",
    "opening": "opened during the block",
    "closing": "closed a connection",
}


def test_what_does_not_add_up_is_refused_not_guessed():
    def program():
        x, go, rank = torch.ones(S // 4), torch.ones(1), dist.get_rank()
        awkward = metered(lambda: dist.all_reduce(torch.ones(1001)))
        sending = dist.isend(x, 1) if rank == 0 else None
        with wire.meter() as early:
            if rank == 0:
                dist.send(go, 1, tag=1)  # only now may rank 1 post its receive
                sending.wait()
            else:
                dist.recv(go, 0, tag=1)
                dist.recv(x, 0)
        with wire.meter() as opening:
            group = dist.new_group([0, 1])
            dist.all_reduce(x, group=group)
        with wire.meter() as closing:
            dist.all_reduce(x, group=group)
            dist.destroy_process_group(group)
            del group
        return awkward, early.report, opening.report, closing.report

    runs = dict(zip(REFUSED, zip(*launch(program, world_size=2), strict=True), strict=True))
    assert wire.matrix(runs["opening"])[0, 1] > S, "counted, but not split"
    for name, says in REFUSED.items():
        with pytest.raises(wire.WireMismatch, match=says):
            wire.payload(runs[name])


def test_without_the_kernels_counts_the_calls_are_counted():
    def program():
        wire.unavailable = lambda: "this is a test"
        x = torch.ones(10)
        return metered(lambda: dist.recv(x, 0) if dist.get_rank() else dist.send(x, 1))

    reports = launch(program, world_size=2)
    with pytest.raises(wire.WireUnavailable, match=r"this is a test.*counted\(reports\)"):
        wire.matrix(reports)
    assert wire.counted(reports).tolist() == [[0, 40], [0, 0]]


def test_every_rank_must_report_once_after_the_block():
    report = wire.Report(rank=0, world_size=2, calls=(), flows={})
    with pytest.raises(ValueError, match=r"world_size=2, reports of ranks \[0, 0\]"):
        wire.matrix([report, report])
    with pytest.raises(RuntimeError, match="after its `with` block"):
        _ = wire.Meter().report


class OnALossyLink:
    """A socket whose kernel had to send 300 of its 1,300 bytes again, and received 7."""

    def getsockname(self):
        return "10.0.0.1", 40_000

    def getpeername(self):
        return "10.0.0.2", 50_000

    def getsockopt(self, level, option, length):
        info = bytearray(length)
        struct.pack_into("Q", info, wire._BYTES_RECEIVED, 7)
        struct.pack_into("QQ", info, wire._BYTES_SENT, 1300, 300)
        return bytes(info)


def test_what_had_to_be_sent_again_is_counted_once(monkeypatch):
    monkeypatch.setattr(wire, "_tcp_sockets", lambda: [OnALossyLink()])
    assert list(wire._snapshot().values()) == [wire.Traffic(sent=1000, received=7)]


def test_both_ends_of_a_connection_of_ip_6_agree_on_who_and_how_much():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no ::1 here: {error}")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"x" * 12345)
            server.recv(12345, socket.MSG_WAITALL)
            wire._drain()
            found, port = wire._snapshot(), client.getsockname()[1]
    end = next(end for end in found if end.local[1] == port)
    assert found[end] == wire.Traffic(sent=12345, received=0)
    assert found[end.other_end] == wire.Traffic(sent=0, received=12345)
