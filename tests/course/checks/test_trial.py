"""A trial gathers what the ranks really did, and refuses what may not be done by hand."""

import torch
import torch.distributed as dist
from pytest import mark, raises

from course.checks.trial import WIDE, Case, sent, trials
from labkit.measure import wire
from tests.course.lessons.refusals import refusal

pytestmark = mark.slow


def pass_on(tensor, times=1):
    """Send the tensor to the right, and add what comes from the left."""
    rank, n = dist.get_rank(), dist.get_world_size()
    scratch = torch.empty_like(tensor)
    for _ in range(times if n > 1 else 0):
        works = [dist.irecv(scratch, (rank - 1) % n), dist.isend(tensor, (rank + 1) % n)]
        for work in works:
            work.wait()
        tensor += scratch


def test_it_gathers_values_calls_bytes_and_memory():
    cases = [Case(2, (1000,)), Case(3, (2, 50), torch.int64, {"times": 2}), Case(1, ())]
    tried = list(trials(pass_on, cases, by_hand=True))
    assert [case for case, _ in tried] == cases
    (pair, ranks), (three, ranks_of_three), (_, alone) = tried
    assert all(torch.equal(ran.given[0], pair.total()) for ran in ranks)
    assert all(len(ran.messages) == 1 for ran in ranks)
    assert [ran.peak for ran in ranks] == [pair.nbytes] * 2
    assert sent(ranks_of_three).sum() == 6 * three.nbytes or wire.unavailable()
    assert [call.kind for call in ranks_of_three[0].calls] == ["recv", "send"] * 2
    assert not alone[0].calls and alone[0].given[0].shape == ()


def pops_and_moves(pair, tensors, scale):
    """Empty a list, and give a tensor other memory on rank 1."""
    pair.pop(0)
    if dist.get_rank():
        tensors[0].set_(torch.ones(803))
    dist.all_reduce(torch.ones(1))


def test_other_arguments_come_from_make_and_what_becomes_of_them_is_noted():
    make = lambda case, rank: ([rank, "x"], [case.data(rank)])  # noqa: E731
    ((_, ranks),) = trials(pops_and_moves, [Case(2, options={"scale": 10}, make=make)])
    assert [ran.given[0] for ran in ranks] == [[0, "x"], [1, "x"]]
    assert [ran.stays for ran in ranks] == [True, False]
    assert ranks[0].calls[0].kind == "all_reduce", "nothing is refused without by_hand"


def test_wide_data_are_exact_but_not_in_float32():
    for dtype in (torch.int64, torch.float64):
        case = Case(3, (500,), dtype)
        assert torch.equal(case.total() // WIDE * WIDE, case.total())
        parts = torch.stack([case.data(rank).float() for rank in range(3)])
        assert not torch.equal(parts.sum(0).to(dtype), case.total())
    assert Case(3).data(0).abs().max() < 100


def reads_early(tensor):
    other = 1 - dist.get_rank()
    receiving, sending = dist.irecv(torch.empty_like(tensor), other), dist.isend(tensor, other)
    tensor += 1
    receiving.wait(), sending.wait()


def wrong_type(tensor):
    peer = 1 - dist.get_rank()
    dist.recv(torch.empty(3), peer) if peer else dist.send(tensor.double(), peer)


def waits_twice(tensor):
    work = dist.irecv(tensor, 0) if dist.get_rank() else dist.isend(tensor, 1)
    while dist.get_rank() and not work.is_completed():
        pass
    work.wait()
    if dist.get_rank() == 0:
        work.wait()


def drops_a_handle(tensor):
    dist.recv(tensor, 0) if dist.get_rank() else dist.isend(tensor, 1)


MANNERS = {
    waits_twice: "gloo's second wait() for a handle never returns",
    drops_a_handle: "an isend to rank 1 that nobody waits for",
    reads_early: "wait for the send, too",
    wrong_type: "cut or order differently",
    (lambda tensor: None): "no send and no receive",
    dist.all_reduce: "a call of dist.all_reduce",
}


@mark.parametrize(("way", "says"), MANNERS.items())
def test_by_hand_is_held(way, says):
    cases = [Case(2, (3,)), Case(2, (2, 3))]
    assert says in refusal(lambda: list(trials(way, cases, by_hand=True)))


def fails_in_two_dimensions(tensor):
    if tensor.dim() > 1:
        raise IndexError("flat, please")


def test_an_exception_comes_through_and_names_the_case():
    with raises(IndexError) as caught:
        list(trials(fails_in_two_dimensions, [Case(2, (3,)), Case(2, (2, 3))]))
    assert "in the case: n=2, shape (2, 3)" in " ".join(caught.value.__notes__)
