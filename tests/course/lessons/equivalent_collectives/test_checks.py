"""Lesson 06's exercises: right answers in several styles pass, usual mistakes are told by name."""

import math
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.lessons.equivalent_collectives import checks
from course.lessons.equivalent_collectives.checks import (
    check_audit,
    check_broadcast_in_turn,
    check_crossing,
    check_pipelined_broadcast,
    check_recursive_doubling,
    check_ring_all_reduce,
)
from tests.course.lessons.equivalent_collectives import answers
from tests.course.lessons.refusals import changed, refusal, solution

pytestmark = pytest.mark.slow


def altered(number, *changes):
    """Return the solution of an exercise with something changed in it."""
    names = {"dist": dist, "torch": torch, "math": math}
    return changed(solution("06", f"ex-6-{number}-answer"), *changes, **names)


@pytest.mark.parametrize(
    "check, answer, reached",
    [
        (check_ring_all_reduce, answers.ring, "1.5 S and 6 messages on 4 ranks"),
        (check_pipelined_broadcast, answers.prefetching, "10 rounds for 8 chunks on 4 ranks"),
        (check_recursive_doubling, answers.folded, "2 rounds on 4 ranks, 4 rounds on 6"),
        (check_broadcast_in_turn, answers.tree, "2 rounds on 4 ranks, 3 on 8"),
        (check_crossing, lambda *args: torch.tensor(answers.crossing(*args)), "5 of 5"),
    ],
)
def test_right_answers_pass_with_what_they_reached(check, answer, reached, capsys):
    check(answer)
    assert reached in capsys.readouterr().out


COPY = "tensor = tensor.clone(); "
SECOND_TURN = "pass_on(chunks[(rank - step) % n], chunks[(rank - 1 - step) % n])"
OFF_BY_ONE = SECOND_TURN.replace("1 - step", "2 - step").replace("(rank - step", "(rank - 1 - step")


@pytest.mark.parametrize(
    "wrong, words",
    [
        (altered(1, SECOND_TURN, "pass"), "a turn of the ring is missing"),
        (altered(1, SECOND_TURN, OFF_BY_ONE), "begins with a chunk that lacks shares"),
        (answers.whole_tensor_ring, "neither whole tensors, nor a round more"),
        (
            altered(
                1, "chunks = t", "tensor = tensor.clone(); chunks = t", "### END", "return tensor #"
            ),
            "the tensor itself is asked",
        ),
        (altered(1, "sending.wait()", "outgoing.add_(0); sending.wait()"), "before you write into"),
    ],
)
def test_wrong_rings(wrong, words):
    assert words in refusal(check_ring_all_reduce, wrong)


def test_a_hang_shows_the_learners_line_and_no_call_of_the_checks():
    text = refusal(check_ring_all_reduce, answers.blocking_circle)
    assert "both send first" in text and "waiting in send" in text
    assert "dist.send(tensor, right)" in text
    assert "barrier" not in text and "all_gather" not in text


ISEND = ("passed_on.append(dist.isend(piece, (rank + 1) % n))", "dist.send(piece, (rank + 1) % n)")


@pytest.mark.parametrize(
    "wrong, words",
    [
        (answers.root_serves_all, "a root that serves several"),
        (altered(2, *ISEND), "or waits for a send"),
        (altered(2, *ISEND, "if place < n - 1", "if n > 1"), "does somebody send to the root"),
        (
            altered(2, "tensor_split(chunks)", "tensor_split(1)"),
            "cut the tensor into `chunks` pieces",
        ),
        (altered(2, "(rank - src) % n", "rank"), "the chain starts at src"),
        (altered(2, "tensor.view", "tensor.clone().view"), "clone does not"),
    ],
)
def test_wrong_chains(wrong, words):
    assert words in refusal(check_pipelined_broadcast, wrong)


COPIED = "own = tensor.clone(); receiving = dist.irecv(tensor"
INTO_IT = ("receiving = dist.irecv(received", COPIED, "isend(tensor", "isend(own")


@pytest.mark.parametrize(
    "wrong, words",
    [
        (
            altered(3, "p = 2", "tensor = tensor.clone(); p = 2"),
            "nothing was added to them in place",
        ),
        (altered(3, "2 ** int(math.log2(n))", "n"), "n is no power of two"),
        (answers.ring, "a ring or a tree in disguise"),
        (altered(3, *INTO_IT, "tensor += received", ""), "overwrites this rank's own"),
    ],
)
def test_wrong_doublings(wrong, words):
    assert words in refusal(check_recursive_doubling, wrong)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (partial(answers.tree, in_turn=False), "two sends at once share the link"),
        (answers.root_serves_all, "a root that serves all"),
        (altered(6, "(rank - src) % n", "rank"), "count ranks from src"),
    ],
)
def test_wrong_broadcasts_in_turn(wrong, words):
    assert words in refusal(check_broadcast_in_turn, wrong)


RIGHT = dict(zip("abcdef", [checks.VERDICTS[k] for k in (0, 1, 2, 2, 2, 0)], strict=True))


def test_right_verdicts_pass_however_they_are_written():
    check_audit(RIGHT)
    check_audit({key: f" {name.capitalize()}. " for key, name in RIGHT.items()})
    check_audit({key: name.replace(" ", "-").upper() for key, name in RIGHT.items()})


@pytest.mark.parametrize(
    "verdicts, words",
    [
        (RIGHT | {"a": "impossible"}, "busbw is 367"),
        (RIGHT | {"b": "possible"}, "busbw is 480"),
        (RIGHT | {"e": "needs a switch that adds"}, "only an all_reduce whose busbw"),
        (RIGHT | {"f": ...}, "f: one of possible"),
        (["possible"], "the form of the cell above"),
    ],
)
def test_wrong_verdicts(verdicts, words):
    assert words in refusal(check_audit, verdicts)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda a, b, n: answers.crossing(a, b, n) / n, "S is asked"),
        (partial(answers.crossing, turns=1), "goes around twice"),
        (lambda a, b, n: a / b, "of *one* message"),
        (lambda a, b, n: -answers.crossing(a, b, n), "the sign"),
        (partial(answers.crossing, two="divide"), "return math.inf"),
        (lambda a, b, n: None, "this figure is missing"),
    ],
)
def test_wrong_crossings(wrong, words):
    assert words in refusal(check_crossing, wrong)


def test_the_race_waits_until_all_three_are_written(capsys):
    def unwritten(tensor):
        raise NotImplementedError("exercise 6.1")

    assert checks.race(answers.crossing, unwritten, answers.folded) is None
    assert "exercise 6.1: come back when" in capsys.readouterr().out
