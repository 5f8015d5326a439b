"""Lesson 6's exercises: right answers in several styles pass, usual mistakes are told by name."""

import math
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.checks.checking import CheckFailed
from course.lessons.equivalent_collectives import checks
from tests.course.lessons.equivalent_collectives import answers
from tests.course.lessons.refusals import changed, solution

pytestmark = pytest.mark.slow

NAMES = {"torch": torch, "dist": dist, "math": math, "answers": answers}
ring, chain, doubling = (
    partial(changed, solution("06_equivalent_collectives", f"ex-6-{k}-answer"), **NAMES)
    for k in (1, 2, 3)
)


def refused(check, answer):
    """Return what the check says to a wrong answer: what was got, and what that usually means."""
    with pytest.raises(CheckFailed) as caught:
        check(answer)
    return f"{caught.value.got} | {caught.value.meaning}"


# 6.1, the ring

CHUNKS, ROOM = "tensor.view(-1).tensor_split(n)", "torch.empty_like(chunks[0])"
FIRST = "chunks = "
POST = """receiving = dist.irecv(incoming, left)
        sending = dist.isend(outgoing, right)
"""
WAIT = """        receiving.wait()
        sending.wait()
"""
TARGET, ADD = "chunks[(rank - 2 - step) % n]", "        target += incoming\n"
INTO = "scratch[: target.numel()]"
SECOND = """    for step in range(n - 1):
        pass_on(chunks[(rank - step) % n], chunks[(rank - 1 - step) % n])
"""
BLOCKING = """if rank > 0:
            dist.send(outgoing, right)
        dist.recv(incoming, left)
        if rank == 0:
            dist.send(outgoing, right)
"""
SECOND_ADDS = """    for step in range(n - 1):
        target = chunks[(rank - 1 - step) % n]
        incoming = scratch[: target.numel()]
        pass_on(chunks[(rank - step) % n], incoming)
        target += incoming
"""


@pytest.mark.exhaustive
def test_a_right_ring_in_another_style_passes(capsys):
    checks.check_ring_all_reduce(ring(POST + WAIT, BLOCKING))
    assert "1.5 S and 6 messages on 4 ranks" in capsys.readouterr().out


RIGHT_RING = ring()
RINGS = {
    "not flattened": (ring(CHUNKS, "tensor.tensor_split(n)"), "a flat view"),
    "by exchange": (answers.by_exchange, "sends to several others"),
    "in float32": (
        ring(
            FIRST,
            f"given, tensor = tensor, tensor.float()\n    {FIRST}",
            SECOND,
            f"{SECOND}    given.copy_(tensor)\n",
        ),
        "went through float32",
    ),
    "whole tensors": (answers.whole_tensor_ring, "whole tensors go around"),
    "odd sizes": (ring("(-1)", "(-1)[: tensor.numel() // n * n]"), "chunks differ in"),
    "aliasing": (ring(INTO, "target", ADD, ""), "the receive buffer is the tensor"),
    "half a ring": (ring(SECOND, ""), "a turn of the ring is missing"),
    "too much memory": (ring(ROOM, "torch.empty_like(tensor.view(-1))"), "copies of the tensor"),
    "float32 scratch": (ring(ROOM, "torch.empty(len(chunks[0]))"), "a buffer with another dtype"),
    "in two halves": (
        lambda tensor: [RIGHT_RING(half) for half in tensor.view(-1).tensor_split(2)] and None,
        "more messages than rounds",
    ),
    "send waited late": (
        ring(
            FIRST,
            f"leaving = []\n    {FIRST}",
            "sending.wait()",
            "leaving.append(sending)",
            SECOND,
            f"{SECOND}    for sending in leaving:\n        sending.wait()\n",
        ),
        "before you write into its buffer",
    ),
    "reads too early": (
        ring(POST + WAIT, f"{POST}        incoming.sum()\n{WAIT}"),
        "has not arrived yet is used",
    ),
    "second turn off by one": (
        ring(SECOND, SECOND.replace("rank", "rank - 1")),
        "the second turn begins with",
    ),
    "receives another chunk": (
        ring(TARGET, "chunks[(rank - 3 - step) % n]"),
        "a rank sends another chunk than",
    ),
    "a round too many": (
        ring(SECOND, SECOND.replace("n - 1)", "n)")),
        "7 messages of a rank: 2(n-1) do",
    ),
    "second turn adds": (ring(SECOND, SECOND_ADDS), "the second turn adds"),
    "returned": (
        ring(
            FIRST, f"tensor = tensor.clone()\n    {FIRST}", SECOND, f"{SECOND}    return tensor\n"
        ),
        "the tensor itself is asked",
    ),
    "made for four": (answers.made_for_four, "is there a 4 where n belongs"),
    "a mean": (
        ring(SECOND, f"{SECOND}    if tensor.dtype == torch.int64:\n        tensor /= n\n"),
        "nothing is divided",
    ),
    "twice": (
        ring(SECOND, f"{SECOND}    answers.a_share_too_many(tensor)\n"),
        "rank 2's share is in the sum twice",
    ),
    "does nothing": (lambda tensor: None, "no send and no receive"),
}


@pytest.mark.parametrize("wrong, meaning", RINGS.values(), ids=RINGS)
def test_ring(wrong, meaning):
    assert meaning in refused(checks.check_ring_all_reduce, wrong)


def test_a_hang_shows_the_learners_line_and_no_call_of_the_checks():
    said = refused(checks.check_ring_all_reduce, answers.blocking_circle)
    assert "both send first" in said
    assert "dist.send(tensor, right)" in said
    assert "waiting in send" in said
    assert "barrier" not in said and "all_gather" not in said


# 6.2, the chain

SPLIT, RECV = "tensor.view(-1).tensor_split(chunks)", "dist.recv(piece, (rank - 1) % n)"
SEND = "passed_on.append(dist.isend(piece, (rank + 1) % n))"
LAST = "        sending.wait()\n"
SPARE = """spare = torch.empty_like(piece)
            dist.recv(spare, (rank - 1) % n)
            piece.copy_(spare)"""


def test_a_right_chain_passes(capsys):
    checks.check_pipelined_broadcast(answers.prefetching)
    assert "10 rounds for 8 chunks on 4 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (answers.root_serves_all, "a root that serves several"),
        (chain(SPLIT, "tensor.tensor_split(chunks)"), "a flat view"),
        (
            chain("        if place < n", f"    for piece in {SPLIT}:\n        if place < n"),
            "it collects all pieces first",
        ),
        (chain(SEND, "dist.send(piece, (rank + 1) % n)"), "or waits for a send"),
        (chain("split(chunks)", "split(1)"), "not cut into `chunks` pieces"),
        (chain("split(chunks)", "split(8)"), "take their number from the argument"),
        (chain("(rank - src)", "rank"), "the chain starts at src"),
        (chain(SPLIT, f"{SPLIT}[:: -1 if place else 1]"), "cut or order differently"),
        (
            chain(
                f"for piece in {SPLIT}",
                f"given, tensor = tensor, tensor.clone()\n    for piece in {SPLIT}",
                LAST,
                f"{LAST}    given.copy_(tensor)\n",
            ),
            "copies of the tensor",
        ),
        (
            chain(RECV, "passed_on.append(dist.irecv(piece, (rank - 1) % n))"),
            "wait for the receive first",
        ),
        (chain("(-1)", "(-1)[: tensor.numel() // chunks * chunks]"), "the end is missing"),
        (chain(".view(-1)", ".clone().view(-1)"), "clone does not"),
        (chain("if place < n - 1", "if True"), "does somebody send to the root"),
        (chain(RECV, SPARE), "received where it belongs"),
        (
            lambda tensor, src, chunks: dist.broadcast(tensor, src),
            "build it from sends and receives",
        ),
    ],
)
def test_pipelined_broadcast(wrong, meaning):
    assert meaning in refused(checks.check_pipelined_broadcast, wrong)


# 6.3, doubling

ADD_LAST = "        tensor += received\n        distance"
SWAP = """receiving = dist.irecv(received, rank ^ distance)
        sending = dist.isend(tensor, rank ^ distance)
        receiving.wait()
        sending.wait()
"""
IN_TURNS = """if rank & distance:
            dist.recv(received, rank ^ distance)
            dist.send(tensor, rank ^ distance)
        else:
            dist.send(tensor, rank ^ distance)
            dist.recv(received, rank ^ distance)
"""


DOUBLINGS = {
    "out of place": (doubling("tensor += received", "tensor = tensor + received"), "tensor += x"),
    "powers of two only": (doubling("2 ** int(math.log2(n))", "n"), "no power of two"),
    "by hand up to seven": (  # right for the numbers of ranks that the statement names
        doubling(
            "if rank >= p:\n",
            "if rank >= p and n > 7:\n        return\n    if rank >= p:\n",
            "if rank + p < n:",
            "if rank + p < n <= 7:",
        ),
        "the shares of ranks [8] are missing",
    ),
    "a ring": (RIGHT_RING, "a ring or a tree in disguise"),
    "in turns": (doubling(SWAP, IN_TURNS), "two exchanges where"),
    "overwrites": (
        doubling(
            "receiving = dist.irecv(received,",
            "mine = tensor.clone()\n        receiving = dist.irecv(tensor,",
            "isend(tensor,",
            "isend(mine,",
            ADD_LAST,
            "        distance",
        ),
        "overwrites this rank's own",
    ),
}


@pytest.mark.parametrize("wrong, meaning", DOUBLINGS.values(), ids=DOUBLINGS)
def test_recursive_doubling(wrong, meaning):
    assert meaning in refused(checks.check_recursive_doubling, wrong)


# 6.4, the verdicts

RIGHT = {key: checks._verdict(*claim) for key, claim in checks.CLAIMS.items()}


def test_right_verdicts_pass_however_they_are_written(capsys):
    checks.check_audit(RIGHT)
    assert "passed" in capsys.readouterr().out
    assert set(RIGHT.values()) == set(checks.VERDICTS)
    checks.check_audit({key: f" {name.capitalize()}. " for key, name in RIGHT.items()})
    checks.check_audit({key: name.replace(" ", "-").upper() for key, name in RIGHT.items()})


@pytest.mark.parametrize(
    "letter, given, meaning",
    [
        ("a", "impossible", "busbw is 367"),
        ("b", "possible", "busbw is 480"),
        ("e", "needs a switch that adds", "only an all_reduce whose busbw"),
        ("f", "impossible", "busbw is 1 GB/s, the link 1"),
        ("a", ..., "not answered yet"),
        ("a", "probable", "no such name"),
        ("g", "possible", "no such letter"),
    ],
)
def test_wrong_verdicts(letter, given, meaning):
    assert meaning in refused(checks.check_audit, RIGHT | {letter: given})


def test_verdicts_keep_the_form_of_their_cell():
    assert "the form of the cell above" in refused(checks.check_audit, ["possible"])


# 6.5, the crossing


def test_a_right_crossing(capsys):
    checks.check_crossing(lambda alpha, beta, n: torch.tensor(answers.crossing(alpha, beta, n)))
    assert "5 of 5" in capsys.readouterr().out


CROSSINGS = {
    "a message's bytes": (lambda a, b, n: answers.crossing(a, b, n) / n, "S is asked"),
    "one turn": (partial(answers.crossing, turns=1), "goes around twice"),
    "half size": (lambda a, b, n: a / b, "of .one. message"),
    "the sign": (lambda a, b, n: -answers.crossing(a, b, n), "the sign"),
    "n rounds": (partial(answers.crossing, rounds=lambda n: n), "rounds, not n"),
    "upside down": (lambda a, b, n: 1 / answers.crossing(a, b, n), "inverse|equate"),
    "not a number": (lambda a, b, n: float("nan"), "there is such a size"),
    "divides by zero": (partial(answers.crossing, two="divide"), "return math.inf"),
    "two ranks cross": (partial(answers.crossing, two=0.0), "two ranks"),
    "kilobytes": (lambda a, b, n: answers.crossing(a, b, n) / 1000, "another unit"),
}


@pytest.mark.parametrize("wrong, meaning", CROSSINGS.values(), ids=CROSSINGS)
def test_crossing(wrong, meaning):
    with pytest.raises(CheckFailed, match=meaning):
        checks.check_crossing(wrong)


def test_the_crossing_is_where_both_take_as_long():
    for alpha, beta, n in checks.SETTINGS:
        link = checks.AlphaBeta(alpha, beta)
        nbytes = checks.crossing_of(link, n)
        ring, doubling = (
            seconds(nbytes, n, link) for seconds in (checks.ring_seconds, checks.doubling_seconds)
        )
        assert ring == pytest.approx(doubling)
        assert checks.ring_seconds(2 * nbytes, n, link) < checks.doubling_seconds(
            2 * nbytes, n, link
        )


def test_the_race_waits_until_all_three_are_written(capsys):
    def unwritten(tensor):
        raise NotImplementedError("exercise 6.1")

    assert checks.race(answers.crossing, unwritten, doubling()) is None
    assert "unwritten is not written yet" in capsys.readouterr().out
