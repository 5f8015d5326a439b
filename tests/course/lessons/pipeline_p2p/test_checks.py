"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

import pytest
import torch

from course.lessons.pipeline_p2p.checks import (
    check_activations,
    check_consume,
    check_inference_program,
    check_repair,
    check_trace,
    unnamed_trace,
)
from tests.course.lessons.pipeline_p2p import answers
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow

RIGHT = [
    (check_inference_program, answers.forward_program),
    (check_inference_program, answers.as_a_generator),
    (check_repair, lambda: [3, 1]),
    (check_repair, lambda: [3, 1, 3]),
    (check_repair, lambda: {1, "3"}),
    (check_repair, lambda: frozenset({1, 3})),
    (check_repair, lambda: (rank for rank in (1, 3))),
    (check_repair, lambda: torch.tensor([1, 3])),
    (check_activations, lambda: (8, 4, 7, 1.5)),
    (check_activations, lambda: torch.tensor([8, 4, 7, 1.5])),
    (check_consume, answers.one_after_each_use),
    (check_consume, answers.by_name_into_reused_buffers),
    (check_consume, answers.the_next_before_each_use),
    (check_consume, answers.by_clone),
]
WRONG = [
    (check_inference_program, answers.in_program_order, "right before its task moves nothing"),
    (check_inference_program, answers.two_ahead_apart, "at once: started in one batch"),
    (check_inference_program, answers.three_ahead, "too early holds up the sends"),
    (check_inference_program, answers.two_receives_always, "never sends it"),
    (check_inference_program, answers.sends_too_early, "put the send after the task"),
    (check_inference_program, answers.forgets_to_send, "never sends it"),
    (check_inference_program, answers.receives_backwards, "in the same order"),
    (check_inference_program, answers.bare_transfers, "also a single one: Batch((a,))"),
    (check_inference_program, answers.computes_backwards, "of its own stage once, in this order"),
    pytest.param(
        check_inference_program, answers.never_ends, "does not end", marks=pytest.mark.exhaustive
    ),
    (check_inference_program, lambda *a, **k: [], "computes each task"),
    (check_inference_program, lambda *a, **k: None, "without `return`"),
    (check_repair, set, "exactly one must receive first"),
    (check_repair, lambda: {1}, "exactly one must receive first"),
    (check_repair, lambda: {1, 3, 9}, "there is no such rank"),
    (check_repair, lambda: {"odd"}, "a rank: a number"),
    (check_repair, lambda: range(5), "exactly one must receive first"),
    (check_repair, lambda: {1: True, 3: True}, "another type was returned"),
    (check_repair, lambda: "1, 3", "another type was returned"),
    (check_repair, lambda: [0, 1, 2, 3, 4], "exactly one must receive first"),
    (check_repair, lambda: {0, 2, 4}, "may go on sending first"),
    (check_repair, lambda: None, "without `return`"),
    (check_consume, answers.one_by_one, "post `credits` of them before the first wait"),
    (check_consume, answers.all_at_once, "at most 1 receives under way"),
    (check_consume, answers.all_buffers_in_advance, "all buffers were made in advance"),
    (check_consume, answers.copies_that_stay, "or none is let go"),
    (check_consume, answers.posts_the_last_first, "the next 2 were posted"),
    (check_consume, answers.drains_first, "one more after each use"),
    (check_consume, answers.waits_for_all_first, "messages that you do not need yet"),
    (check_consume, answers.without_tags, "tag 0"),
    (check_consume, answers.arbitrary_tags, "each with a tag of `wanted`"),
    (check_consume, answers.one_buffer, "two receives share one buffer"),
    (check_consume, answers.another_type, "torch.empty_like(like)"),
    (check_consume, answers.from_anybody, "give irecv the source"),
    (check_consume, answers.from_rank_0, "recv, rank 0"),
    (check_consume, answers.without_waiting, "it belongs to the receive"),
    (check_consume, answers.one_left_over, "every irecv waited for"),
    (check_consume, answers.in_order_of_tags, "in the order of `wanted`"),
    (check_consume, answers.with_a_barrier, "receive, and nothing else"),
    (check_consume, answers.never_ends, "in never_ends: time.sleep(0.01)"),
    (check_consume, answers.waits_twice, "a second one for the same handle"),
    (check_consume, answers.made_up, "a receive for it was posted"),
    (check_activations, lambda: (8, 3, 7, 2.0), "one more F comes before the first B"),
    (check_activations, lambda: (8, 4, 6, 1.0), "that is the warm-up alone"),
    (check_activations, lambda: (8, 4, 7, 3), "not GB"),
    (check_activations, lambda: (8, 4, 7, 3.5), "not what it needs beyond"),
    (check_activations, lambda: (8, 4, 7), "4 figures are asked"),
    (check_activations, lambda: None, "without `return`"),
]


def name(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("check", "answer"), RIGHT, ids=name)
def test_right_answers_pass(check, answer):
    check(answer)


@pytest.mark.parametrize(("check", "answer", "words"), WRONG, ids=name)
@pytest.mark.usefixtures("impatient")
def test_a_mistake_is_named(check, answer, words):
    assert words in refusal(check, answer)


@pytest.mark.parametrize("vote", ["c", "C)", ("c", "its receives stand before their tasks")])
def test_the_trace_names_who_posts_late(vote):
    check_trace(lambda: vote)


@pytest.mark.parametrize(
    ("vote", "words"),
    [
        ("a", "follow the chain"),
        ("b", "it is idle longest"),
        ("d", "stand elsewhere"),
        ("rank 2", "answer with one letter"),
        (2, "answer with one letter"),
        (None, "without `return`"),
    ],
)
def test_the_trace_refuses_the_victims(vote, words):
    assert words in refusal(check_trace, lambda: vote)


def test_the_lesson_holds_the_letter():
    late = unnamed_trace().params["ahead"]
    assert late == [1, 1, 0]
