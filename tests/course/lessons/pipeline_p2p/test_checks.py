"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

import pytest

from course.lessons.pipeline_p2p import checks
from course.lessons.pipeline_p2p.checks import (
    check_consume,
    check_inference_program,
    check_repair,
    check_trace,
)
from tests.course.lessons.pipeline_p2p import answers
from tests.course.lessons.refusals import said

RIGHT = [
    (check_inference_program, answers.forward_program),
    (check_inference_program, answers.as_a_tuple),
    (check_inference_program, answers.by_an_iterator),
    (check_repair, answers.only_the_middle),
    (check_consume, answers.one_after_each_use),
    (check_consume, answers.by_name_into_reused_buffers),
    (check_consume, answers.in_batches_of_one),
    (check_consume, answers.by_asking),
    (check_consume, answers.the_next_before_each_use),
]
WRONG = [
    (check_inference_program, answers.in_program_order, "right before the task that needs it"),
    (check_inference_program, answers.two_ahead_apart, "started in one batch they run at once"),
    (check_inference_program, answers.one_ahead_together, "receive one task earlier still"),
    (check_inference_program, answers.three_ahead, "a receive stands 3 tasks ahead"),
    (check_inference_program, answers.two_receives_always, "never sends it"),
    (check_inference_program, answers.sends_too_early, "put it after the task"),
    (check_inference_program, answers.forgets_to_send, "never sends it"),
    (check_inference_program, answers.receives_backwards, "in the same order"),
    (check_inference_program, answers.bare_transfers, "also a single one: Batch((a,))"),
    (check_inference_program, answers.computes_backwards, "of its own stage once, in order"),
    (check_inference_program, answers.never_ends, "does not end"),
    (check_inference_program, lambda *a, **k: [], "computes each micro-batch"),
    (check_inference_program, lambda *a, **k: None, "without `return`"),
    (check_repair, answers.not_at_all, "one must receive first"),
    (check_repair, answers.only_the_first, "one must receive first"),
    (check_repair, answers.both_ends, "may go on sending first"),
    (check_repair, answers.in_batches, "blocking calls only"),
    (check_repair, answers.all_receives_last, "the task needs its input"),
    (check_repair, answers.all_sends_first, "it is not there"),
    (check_repair, answers.without_the_backward, "only the order of sends and receives"),
    (check_repair, answers.never_ends, "does not end"),
    (check_repair, lambda ranks: None, "without `return`"),
    (check_consume, answers.one_by_one, "post `credits` of them first"),
    (check_consume, answers.all_at_once, "at most 1 receives under way"),
    (check_consume, answers.all_buffers_in_advance, "all buffers were made in advance"),
    (check_consume, answers.posts_the_last_first, "the next 2 are posted"),
    (check_consume, answers.drains_first, "run empty before you post again"),
    (check_consume, answers.waits_for_all_first, "messages that you do not need yet"),
    (check_consume, answers.without_tags, "each message has its own tag"),
    (check_consume, answers.arbitrary_tags, "each message has its own tag"),
    (check_consume, answers.one_buffer, "two receives share one buffer"),
    (check_consume, answers.another_type, "torch.empty_like(like)"),
    (check_consume, answers.from_anybody, "give irecv the source"),
    (check_consume, answers.from_rank_0, "give irecv the source"),
    (check_consume, answers.without_waiting, "belongs to the receive"),
    (check_consume, answers.in_order_of_tags, "in the order of `wanted`"),
    (check_consume, answers.with_a_barrier, "the other ranks do not make this call"),
    (check_consume, answers.in_threads, "in the order of `wanted`"),
    (check_consume, answers.never_ends, "it waits for ever"),
]


def name(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("check", "answer"), RIGHT, ids=name)
def test_right_answers_pass(check, answer):
    check(answer)


@pytest.mark.parametrize(("check", "answer", "words"), WRONG, ids=name)
def test_a_mistake_is_named(check, answer, words, monkeypatch):
    monkeypatch.setattr(checks, "PATIENCE", 2.0)  # what hangs need not do so for long
    assert words in said(check, answer)


def test_a_batch_without_a_tuple_says_what_it_takes():
    with pytest.raises(TypeError, match="Batch takes a tuple of transfers"):
        check_inference_program(answers.without_batch_tuple)


@pytest.mark.parametrize("name", ["F1 1→2", "F2 1->2"])
def test_the_trace_names_who_posts_late(name):
    check_trace((2, name))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((0, "B2 1→0"), "that one waits, too"),
        ((1, "F2 1→2"), "that one waits, too"),
        ((2, "B2 1→0"), "it must go to the late rank"),
        ((2, "F9 1→2"), "it must go to the late rank"),
        (2, "another type was returned"),
        (None, "without `return`"),
    ],
)
def test_the_trace_refuses_the_victims(answer, words):
    assert words in said(check_trace, answer)
