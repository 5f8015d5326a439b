"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

import pytest

from course.lessons.pipeline_p2p import checks
from course.lessons.pipeline_p2p.checks import (
    check_consume,
    check_exposed,
    check_find_cycle,
    check_inference_program,
)
from tests.course.lessons.pipeline_p2p import answers
from tests.course.lessons.refusals import said

RIGHT = [
    (check_find_cycle, answers.by_recursion),
    (check_find_cycle, answers.by_colours),
    (check_find_cycle, answers.by_peeling),
    (check_find_cycle, answers.by_graphlib),
    (check_inference_program, answers.forward_program),
    (check_inference_program, answers.as_a_tuple),
    (check_inference_program, answers.by_an_iterator),
    (check_exposed, answers.by_cuts),
    (check_exposed, answers.by_counting),
    (check_exposed, answers.by_difference_of_unions),
    (check_consume, answers.one_after_each_use),
    (check_consume, answers.by_name_into_reused_buffers),
    (check_consume, answers.in_batches_of_one),
    (check_consume, answers.by_asking),
]
WRONG = [
    (check_find_cycle, answers.only_pairs, "longer than two"),
    (check_find_cycle, answers.twice_is_a_cycle, "meeting a node twice is not yet a cycle"),
    (check_find_cycle, answers.with_the_way_in, "the way *into* the cycle"),
    (check_find_cycle, answers.every_path, "paths double with every rung"),
    (check_find_cycle, answers.forgets_between_starts, "what is harmless stays harmless"),
    (check_find_cycle, answers.forgets_on_a_copy, "remember, over all starts"),
    pytest.param(
        check_find_cycle, answers.of_networkx, "remember, over all starts", marks=pytest.mark.slow
    ),
    (check_find_cycle, answers.backwards, "the order is from who waits"),
    (check_find_cycle, answers.closed, "name each node of the cycle once"),
    (check_find_cycle, answers.from_the_first, "every node a possible start"),
    (check_find_cycle, answers.of_labkit, "which the exercise asks you to write"),
    (check_find_cycle, lambda after: None, "without `return`"),
    (check_inference_program, answers.in_program_order, "right before the task that needs it"),
    (check_inference_program, answers.two_ahead_apart, "started in one batch they run at once"),
    (check_inference_program, answers.one_ahead_together, "receive one task earlier still"),
    (check_inference_program, answers.two_receives_always, "never sends it"),
    (check_inference_program, answers.sends_too_early, "put it after the task"),
    (check_inference_program, answers.forgets_to_send, "never sends it"),
    (check_inference_program, answers.receives_backwards, "in the same order"),
    (check_inference_program, answers.bare_transfers, "also a single one: Batch((a,))"),
    (check_inference_program, answers.computes_backwards, "of its own stage once, in order"),
    (check_inference_program, answers.never_ends, "does not end"),
    (check_inference_program, lambda *a, **k: [], "computes each micro-batch"),
    (check_inference_program, lambda *a, **k: None, "without `return`"),
    (check_exposed, answers.all_transfer_time, "is not exposed"),
    (check_exposed, answers.union_only, "is not exposed"),
    (check_exposed, answers.without_union, "take their union"),
    (check_exposed, answers.both_directions, "what it sends travels without it"),
    (check_exposed, answers.to_the_millisecond, "do not round"),
    (check_exposed, answers.hidden_by_anybody, "only the rank's own tasks"),
    (check_exposed, answers.the_hidden_part, "that is the hidden part"),
    (check_exposed, answers.the_other_way_round, "the other way round"),
    (check_exposed, answers.in_words, "another type was returned"),
    (check_exposed, answers.never_ends, "a loop does not end"),
    (check_exposed, lambda seen, rank: None, "without `return`"),
    (check_consume, answers.one_by_one, "post `credits` of them first"),
    (check_consume, answers.all_at_once, "at most 1 buffers posted"),
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
