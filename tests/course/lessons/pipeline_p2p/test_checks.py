"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

import pytest
import torch

from course.lessons.pipeline_p2p.checks import (
    check_activations,
    check_consume,
    check_inference_program,
    check_order,
    check_repair,
    check_trace,
    unnamed_trace,
)
from tests.course.lessons.pipeline_p2p import answers
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_trace, lambda: " C: in its row they stand late"),
        (check_inference_program, answers.as_a_generator),
        (check_repair, answers.the_smallest_that_ends),
        (check_repair, lambda: {1, "3"}),
        (check_repair, lambda: (rank for rank in torch.tensor([3, 1, 3]))),
        (check_activations, answers.counted),
        (check_activations, lambda: torch.tensor([8, 4, 7, 1.5], requires_grad=True)),
        (check_consume, answers.into_reused_buffers),
        (check_order, answers.by_begin),
        (check_order, answers.by_end),
    ],
)
def test_right_answers_pass(check, answer):
    check(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.one_after_the_other, "at once: started in one batch"),
        (answers.receives_all_first, "holds up the sends behind it"),
        (answers.sends_first, "put the send after the task"),
        (answers.without_batches, "also a single one"),
        (answers.beyond_the_last_stage, "the last rank sends nothing"),
    ],
)
def test_a_wrong_program(answer, words):
    assert words in refusal(check_inference_program, answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.one_at_a_time, "with fewer nothing moves while you compute"),
        (answers.all_at_once, "each one more is memory that a sender may fill"),
        (answers.without_tags, "give irecv the source and the tag"),
        (answers.into_one_buffer, "two receives share one buffer"),
        (answers.without_a_wait, "it belongs to the receive"),
    ],
)
def test_a_wrong_consumer(answer, words):
    assert words in refusal(check_consume, answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answers.by_micro_batch, "something stands before what it is made of"),
        (answers.all_receives_first, "something in front cannot start yet"),
        (answers.without_the_last, "0 times in the order, not 1"),
        (answers.from_every_rank, "2 times in the order, not 1"),
    ],
)
def test_a_wrong_order(answer, words):
    assert words in refusal(check_order, answer)


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (check_trace, "a", "follow the chain"),
        (check_trace, "b", "it is idle longest"),
        (check_trace, "d", "stand elsewhere"),
        (check_trace, None, "without `return`"),
        (check_repair, range(5), "exactly one of two neighbours receives first"),
        (check_repair, {1, 3, 9}, "there is no such rank"),
        (check_repair, {0, 2, 4}, "may go on sending first"),
        (check_repair, "1, 3", "another type was returned"),
        (check_activations, (8, 3, 7, 2.0), "one more F comes before the first B"),
        (check_activations, (8, 4, 6, 1.0), "that is the warm-up alone"),
        (check_activations, (8, 4, 7, 3), "not GB"),
        (check_activations, (8, 4, 7, 3.5), "not what it needs beyond"),
    ],
)
def test_a_wrong_figure(check, answer, words):
    assert words in refusal(check, lambda: answer)


def test_the_lesson_holds_the_letter():
    assert unnamed_trace().params["ahead"] == [1, 1, 0]
