"""Lesson 6's exercises: right answers in several styles pass, usual mistakes are told by name."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.checks.checking import CheckFailed
from course.lessons.equivalent_collectives import checks
from tests.course.lessons.equivalent_collectives import answers
from tests.marks import seldom

pytestmark = pytest.mark.slow


def refused(check, answer):
    """Return what the check says to a wrong answer: what was got, and what that usually means."""
    with pytest.raises(CheckFailed) as caught:
        check(answer)
    return f"{caught.value.got} | {caught.value.meaning}"


@pytest.mark.parametrize(
    "answer",
    [
        partial(answers.ring, swap=answers.batched),
        seldom(partial(answers.ring, swap=answers.parity)),
    ],
    ids=["batched", "blocking"],
)
def test_right_rings_pass(answer, capsys):
    checks.check_ring_all_reduce(answer)
    assert "1.5 S and 6 messages on 4 ranks" in capsys.readouterr().out


RINGS = {
    "not flattened": (answers.unflattened_ring, "a flat view"),
    "by exchange": (answers.by_exchange, "sends to several others"),
    "in float32": (lambda t: answers.in_float32(t, answers.ring), "went through float32"),
    "whole tensors": (answers.whole_tensor_ring, "whole tensors go around"),
    "blocking sends in a circle": (answers.blocking_circle, "both send first"),
    "odd sizes": (partial(answers.ring, cut=answers.equal_chunks), "chunks differ in"),
    "aliasing": (partial(answers.ring, add=False), "the receive buffer is the tensor"),
    "half a ring": (partial(answers.ring, turns=1), "a turn of the ring is missing"),
    "too much memory": (
        partial(answers.ring, scratch=lambda flat, chunks: torch.empty_like(flat)),
        "copies of the tensor",
    ),
    "float32 scratch": (
        partial(answers.ring, scratch=lambda flat, chunks: torch.empty(len(chunks[0]))),
        "a buffer with another dtype",
    ),
    "in two halves": (answers.in_two_halves, "more messages than rounds"),
    "send waited late": (answers.send_waited_late, "before you write into its buffer"),
    "reads too early": (answers.reads_too_early, "has not arrived yet is used"),
    "second turn off by one": (partial(answers.ring, later=1), "the second turn begins with"),
    "receives another chunk": (partial(answers.ring, hears=1), "a rank sends another chunk than"),
    "a round too many": (partial(answers.ring, more=1), "7 messages of a rank: 2(n-1) do"),
    "second turn adds": (partial(answers.ring, sums_on=True), "the second turn adds"),
    "returned": (answers.returned, "the tensor itself is asked"),
    "made for four": (answers.made_for_four, "is there a 4 where n belongs"),
    "a mean": (answers.a_mean, "nothing is divided"),
    "twice": (answers.one_share_too_many, "rank 2's share is in the sum twice"),
    "does nothing": (lambda tensor: None, "no send and no receive"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("wrong, meaning", RINGS.values(), ids=RINGS)
def test_ring(wrong, meaning):
    assert meaning in refused(checks.check_ring_all_reduce, wrong)


@pytest.mark.usefixtures("impatient")
def test_a_hang_shows_the_learners_line_and_no_call_of_the_checks():
    said = refused(checks.check_ring_all_reduce, answers.blocking_circle)
    assert "dist.send(tensor, right)" in said
    assert "waiting in send" in said
    assert "barrier" not in said and "all_gather" not in said


def test_a_right_chain_passes(capsys):
    checks.check_pipelined_broadcast(answers.prefetching)
    assert "10 rounds for 8 chunks on 4 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (answers.root_serves_all, "a root that serves several"),
        (partial(answers.chain, flat=lambda tensor: tensor), "a flat view"),
        (answers.store_and_forward, "it collects all pieces first"),
        (partial(answers.chain, send=dist.send), "or waits for a send"),
        (partial(answers.chain, pieces=1), "not cut into `chunks` pieces"),
        (partial(answers.chain, pieces=8), "take their number from the argument"),
        (partial(answers.chain, first=0), "the chain starts at src"),
        (partial(answers.chain, order=-1), "cut or order differently"),
        (answers.into_a_copy, "copies of the tensor"),
        (answers.passes_on_too_early, "wait for the receive first"),
        (answers.forgets_the_rest, "the end is missing"),
        (partial(answers.chain, flat=lambda tensor: tensor.clone().view(-1)), "clone does not"),
        (answers.the_last_sends_to_the_root, "does somebody send to the root"),
        (answers.with_a_spare_piece, "received where it belongs"),
        (
            lambda tensor, src, chunks: dist.broadcast(tensor, src),
            "build it from sends and receives",
        ),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_pipelined_broadcast(wrong, meaning):
    assert meaning in refused(checks.check_pipelined_broadcast, wrong)


@pytest.mark.parametrize(
    "answer",
    [
        seldom(partial(answers.doubling, swap=answers.by_name)),
        partial(answers.doubling, add=lambda tensor, other: tensor.copy_(tensor + other)),
    ],
    ids=["by name", "out of place"],
)
def test_right_doublings_pass(answer, capsys):
    checks.check_recursive_doubling(answer)
    assert "2 rounds on 4 ranks, 4 on 6" in capsys.readouterr().out


DOUBLINGS = {
    "out of place": (answers.out_of_place, "tensor += x adds"),
    "skips partners": (partial(answers.powers_of_two_only, skip=True), "are missing"),
    "powers of two only": (answers.powers_of_two_only, "no power of two"),
    "by hand up to seven": (answers.up_to_seven, "the shares of ranks [8] are missing"),
    "a ring": (answers.ring, "a ring or a tree in disguise"),
    "in turns": (partial(answers.doubling, swap=answers.two_exchanges), "two exchanges where"),
    # Where no send happens to be late, six ranks are refused instead.
    "race through numpy": seldom(answers.numpy_race, "still being sent"),
    "overwrites": (answers.overwrites, "overwrites this rank's own"),
    "adds two times": (partial(answers.doubling, add=answers.doubly), "swap in round k"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("wrong, meaning", DOUBLINGS.values(), ids=DOUBLINGS)
def test_recursive_doubling(wrong, meaning):
    assert meaning in refused(checks.check_recursive_doubling, wrong)


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
        ("d", "needs a switch that adds", "only an all_reduce"),
        ("e", "needs a switch that adds", "only an all_reduce whose busbw"),
        ("f", "impossible", "busbw is 1 GB/s, the link 1"),
        ("a", ..., "not answered yet"),
        ("b", None, "not answered yet"),
        ("a", "probable", "no such name"),
        ("g", "possible", "no such letter"),
    ],
)
def test_wrong_verdicts(letter, given, meaning):
    assert meaning in refused(checks.check_audit, RIGHT | {letter: given})


@pytest.mark.parametrize("given", [None, ["possible"]])
def test_verdicts_keep_the_form_of_their_cell(given):
    assert "the form of the cell above" in refused(checks.check_audit, given)


# 6.5, the crossing


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_right_crossing(kind, capsys):
    checks.check_crossing(lambda alpha, beta, n: kind(answers.crossing(alpha, beta, n)))
    assert "5 of 5" in capsys.readouterr().out


CROSSINGS = {
    "a message's bytes": (lambda a, b, n: answers.crossing(a, b, n) / n, "S is asked"),
    "one turn": (partial(answers.crossing, turns=1), "goes around twice"),
    "half size": (lambda a, b, n: a / b, "of .one. message"),
    "the sign": (lambda a, b, n: -answers.crossing(a, b, n), "the sign"),
    "n rounds": (partial(answers.crossing, rounds=lambda n: n), "rounds, not n"),
    "upside down": (lambda a, b, n: 1 / answers.crossing(a, b, n), "inverse|equate"),
    "never crosses": (lambda a, b, n: float("inf"), "there is such a size"),
    "not a number": (lambda a, b, n: float("nan"), "there is such a size"),
    "divides by zero": (partial(answers.crossing, two="divide"), "return math.inf"),
    "two ranks cross": (partial(answers.crossing, two=0.0), "two ranks"),
    "none on two": (partial(answers.crossing, two=None), "two ranks"),
    "kilobytes": (lambda a, b, n: answers.crossing(a, b, n) / 1000, "another unit"),
    "a text": (lambda a, b, n: "40 kB", "equate|S for alpha"),
    "nothing": (lambda a, b, n: None, "S for alpha|return"),
    "for 4 ranks only": (lambda a, b, n: answers.crossing(a, b, 4), "equate|S is asked"),
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

    assert checks.race(answers.crossing, unwritten, answers.doubling) is None
    assert "unwritten is not written yet" in capsys.readouterr().out
