"""Lesson 06's exercises: right answers in several styles pass, usual mistakes are told by name."""

import functools
import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed import irecv, isend

from course.lessons.equivalent_collectives import checks, experiment
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


def exchange(outgoing, incoming, dst, src):
    receiving, sending = irecv(incoming, src), isend(outgoing, dst)
    receiving.wait()
    sending.wait()


def ring(tensor, *, turns=2, exchange=exchange):
    """Add chunks up in a first turn, and pass on the sums in a second."""
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = tensor.view(-1).tensor_split(n)
    for step in range(turns * (n - 1)):
        adds, target = step < n - 1, chunks[(rank - 2 - step) % n]
        incoming = torch.empty_like(target) if adds else target
        exchange(chunks[(rank - 1 - step) % n], incoming, (rank + 1) % n, (rank - 1) % n)
        if adds:
            target += incoming


def double(tensor, n):
    """Exchange everything with the rank at a distance of 1, 2, 4, ... below n."""
    rank, distance = dist.get_rank(), 1
    other = torch.empty_like(tensor)
    while distance < n:
        exchange(tensor, other, rank ^ distance, rank ^ distance)
        tensor.add_(other)
        distance *= 2


def folded(tensor):
    """Hand over before and after; in between double among a power of two."""
    rank, n = dist.get_rank(), dist.get_world_size()
    p = 1 << (n.bit_length() - 1)
    if rank >= p:
        dist.send(tensor, rank - p)
        dist.recv(tensor, rank - p)
        return
    if rank + p < n:
        handed_over = torch.empty_like(tensor)
        dist.recv(handed_over, rank + p)
        tensor.add_(handed_over)
    double(tensor, p)
    if rank + p < n:
        dist.send(tensor, rank + p)


def folded_for_two(tensor):
    """Hand over as above, but of at most two ranks beyond the power of two."""
    rank, n = dist.get_rank(), dist.get_world_size()
    beyond = n - (1 << (n.bit_length() - 1))
    if beyond < 3:
        folded(tensor)
        return
    others = [other for other in range(n - beyond + 2) if other != rank]
    own = tensor.clone()
    if rank < n - beyond + 2:
        for other in others:
            received = torch.empty_like(tensor)
            exchange(own, received, other, other)
            tensor += received


def tree(tensor, src, in_turn=True):
    """Receive from the place without its highest bit, then serve in turn, or all at once."""
    rank, n, works = dist.get_rank(), dist.get_world_size(), []
    place = (rank - src) % n
    have = 1 << place.bit_length()
    if place:
        dist.recv(tensor, (rank - have // 2) % n)
    while place + have < n:
        works.append(isend(tensor, (rank + have) % n))
        if in_turn:
            works.pop().wait()
        have *= 2
    for work in works:
        work.wait()


def crossing(alpha, beta, n, turns=2):
    """Where ring and doubling take the same time; divides by 0 on two ranks."""
    rounds = math.log2(n)
    return (turns * (n - 1) - rounds) * alpha / ((rounds - turns * (n - 1) / n) * beta)


def in_a_tensor(alpha, beta, n):
    return torch.tensor(crossing(alpha, beta, n) if n > 2 else math.inf)


JUDGES = {
    "1": checks.check_ring_all_reduce,
    "2": checks.check_broadcast_in_turn,
    "3": checks.check_recursive_doubling,
    "4": checks.check_audit,
    "5": checks.check_crossing,
}


REACHED = [
    ("1", ring, "1.5 S and 6 messages on 4 ranks"),
    ("2", tree, "2 rounds on 4 ranks, 3 on 5"),
    ("3", folded, "2 rounds on 4 ranks, 4 rounds on 6"),
    ("5", in_a_tensor, "5 of 5"),
]


@pytest.mark.parametrize(("number", "answer", "reached"), REACHED)
def test_right_answers_pass_with_what_they_reached(number, answer, reached, capsys):
    JUDGES[number](answer)
    assert reached in capsys.readouterr().out


def one_turn(tensor):
    """Each rank has the sum of one chunk."""
    ring(tensor, turns=1)


def on_a_copy(tensor):
    ring(tensor.clone())


def exchange_and_touch(outgoing, incoming, dst, src):
    """Write into what is sent before the send is over."""
    receiving, sending = irecv(incoming, src), isend(outgoing, dst)
    receiving.wait()
    outgoing.add_(0)
    sending.wait()


def touching_what_still_leaves(tensor):
    ring(tensor, exchange=exchange_and_touch)


def without_folding(tensor):
    """Takes every n for a power of two."""
    double(tensor, dist.get_world_size())


def chain(tensor, src=0):
    """Each rank passes the tensor on to the next one."""
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % n
    if place:
        dist.recv(tensor, (rank - 1) % n)
    if place < n - 1:
        dist.send(tensor, (rank + 1) % n)


def from_rank_0(tensor, src=0):
    tree(tensor, 0)


def into_a_copy(tensor, src=0):
    tree(tensor.clone(), src)


def to_itself(tensor, src=0):
    """Takes a place, counted from the root, for a rank: from root 2, rank 0 hears itself."""
    rank, n = dist.get_rank(), dist.get_world_size()
    place, have = (rank - src) % n, 1
    while have < n:
        if place < have and place + have < n:
            dist.send(tensor, (rank + have) % n)
        elif have <= place < 2 * have:
            dist.recv(tensor, place - have)
        have *= 2


RIGHT = dict(zip("abcdef", [checks.VERDICTS[k] for k in (0, 1, 2, 2, 2, 0)], strict=True))


WRONG = [
    ("1", one_turn, "Then a turn is missing"),
    ("1", folded, "neither whole tensors, nor a round more"),
    ("1", on_a_copy, "own numbers"),
    ("1", touching_what_still_leaves, "a race"),
    ("2", functools.partial(tree, in_turn=False), "two sends at once share the link"),
    ("2", chain, "a root that serves all, takes n - 1"),
    ("2", from_rank_0, "count ranks from src"),
    ("2", into_a_copy, "clone make another tensor"),
    ("2", to_itself, "the neighbour is this rank itself"),
    ("3", ring, "a ring or a tree in disguise"),
    ("3", without_folding, "Off the powers of two"),
    ("3", folded_for_two, "Off the powers of two"),
    ("4", RIGHT | {"a": "impossible"}, "busbw is 367"),
    ("4", RIGHT | {"e": "needs a switch that adds"}, "only an all_reduce whose busbw"),
    ("4", ["possible"], "the form of the cell above"),
    ("5", lambda a, b, n: crossing(a, b, n) / n, "S is asked"),
    ("5", lambda a, b, n: crossing(a, b, n, turns=1), "goes around twice"),
    ("5", lambda a, b, n: a / b, "of *one* message"),
    ("5", lambda a, b, n: -crossing(a, b, n), "the sign"),
    ("5", crossing, "return math.inf"),
]


@pytest.mark.parametrize(("number", "wrong", "words"), WRONG)
def test_usual_mistakes_are_named(number, wrong, words):
    assert words in refusal(JUDGES[number], wrong)


def test_right_verdicts_pass_however_they_are_written():
    checks.check_audit({key: name.replace(" ", "-").upper() for key, name in RIGHT.items()})


def test_the_race_waits_until_all_three_are_written(capsys):
    def unwritten(tensor):
        raise NotImplementedError("exercise 6.1")

    assert experiment.race(crossing, unwritten, folded) is None
    assert "exercise 6.1: come back when" in capsys.readouterr().out
