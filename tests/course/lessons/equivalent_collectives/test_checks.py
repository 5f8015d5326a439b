"""Lesson 06's exercises: right answers in several styles pass, usual mistakes are told by name."""

from functools import partial

import pytest
import torch

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
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "check, answer, reached",
    [
        (check_ring_all_reduce, answers.ring_in_place, "1.5 S and 6 messages on 4 ranks"),
        (check_pipelined_broadcast, answers.prefetching, "10 rounds for 8 chunks on 4 ranks"),
        (check_recursive_doubling, answers.folded, "2 rounds on 4 ranks, 4 rounds on 6"),
        (check_broadcast_in_turn, answers.tree, "2 rounds on 4 ranks, 3 on 8"),
        (check_crossing, lambda *args: torch.tensor(answers.crossing(*args)), "5 of 5"),
    ],
)
def test_right_answers_pass_with_what_they_reached(check, answer, reached, capsys):
    check(answer)
    assert reached in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, words",
    [
        (answers.one_turn, "a turn of the ring is missing"),
        (
            answers.second_turn_off_by_one,
            "the second turn begins with a chunk that lacks shares",
        ),
        (answers.whole_tensor_ring, "neither whole tensors, nor a round more"),
        (answers.returned, "the tensor itself is asked"),
        (answers.adds_while_it_is_sent, "before you write into its buffer"),
    ],
)
def test_wrong_rings(wrong, words):
    assert words in refusal(check_ring_all_reduce, wrong)


def test_a_hang_shows_the_learners_line_and_no_call_of_the_checks():
    text = refusal(check_ring_all_reduce, answers.blocking_circle)
    assert "both send first" in text and "waiting in send" in text
    assert "dist.send(tensor, right)" in text
    assert "barrier" not in text and "all_gather" not in text


@pytest.mark.parametrize(
    "wrong, words",
    [
        (answers.root_serves_all, "a root that serves several"),
        (answers.blocking_chain, "or waits for a send"),
        (answers.back_to_the_root, "does somebody send to the root"),
        (answers.in_one_piece, "cut the tensor into `chunks` pieces"),
        (answers.from_rank_zero, "the chain starts at src"),
        (answers.into_copies, "clone does not"),
    ],
)
def test_wrong_chains(wrong, words):
    assert words in refusal(check_pipelined_broadcast, wrong)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (answers.out_of_place, "nothing was added to them in place"),
        (answers.powers_of_two_only, "n is no power of two"),
        (answers.ring_in_place, "a ring or a tree in disguise"),
        (answers.overwrites, "overwrites this rank's own"),
    ],
)
def test_wrong_doublings(wrong, words):
    assert words in refusal(check_recursive_doubling, wrong)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (answers.both_at_once, "two sends at once share the link"),
        (answers.root_in_turn, "a root that serves all"),
        (answers.root_is_zero, "count ranks from src"),
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
