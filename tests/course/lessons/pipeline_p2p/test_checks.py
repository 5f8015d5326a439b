"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

import pytest
import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p import schedules, simulator
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
from tests.course.lessons.refusals import changed, refusal, solution

NAMES = {**vars(schedules), **vars(simulator), "torch": torch, "dist": dist}
PROGRAM, CONSUME, ORDER = (solution("05", f"ex-5-{number}-answer") for number in (2, 4, 6))


def altered(source, *changes):
    """Return a solution with something changed in it, which ranks can run."""
    names = {name: NAMES[name] for name in NAMES if name in source}
    return changed(source, *changes, **names)


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
        (check_order, altered(ORDER, "].begin", "].end")),
    ],
)
def test_right_answers_pass(check, answer):
    check(answer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("(0, 1)", "(0,)", "k + 2", "k + 1"), "at once: started in one batch"),
        (("(0, 1)", "range(micro_batches)", " + into(k + 2)", ""), "holds up the sends behind it"),
        (("out_of(k) +", "out_of(k + 1) +"), "put the send after the task"),
        (("Batch(tuple(moved))", "moved[0]"), "also a single one"),
        (("rank < stages - 1", "True"), "the last rank sends nothing"),
    ],
)
def test_a_wrong_program(changes, words):
    assert words in refusal(check_inference_program, altered(PROGRAM, *changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("< credits", "< 1"), "with fewer nothing moves while you compute"),
        (("< credits", "< len(wanted)"), "each one more is memory that a sender may fill"),
        ((", tag=tag", ""), "give irecv the source and the tag"),
        (("torch.empty_like(like)", "like"), "two receives share one buffer"),
        (("work.wait()", "pass"), "it belongs to the receive"),
    ],
)
def test_a_wrong_consumer(changes, words):
    assert words in refusal(check_consume, altered(CONSUME, *changes))


BY_HOP = "(t.task.kind == 'B', t.src if t.task.kind == 'F' else -t.src)"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("when[t].begin", "t.task.micro_batch"), "something stands before what it is made of"),
        (("when[t].begin", BY_HOP), "something in front cannot start yet"),
        (("begin)", "begin)[:-1]"), "0 times in the order, not 1"),
        (("sorted(when", "sorted([*when, *when]"), "2 times in the order, not 1"),
        (("return sorted(when, ", "return [t.task for t in when] or list("), "for all ranks; got"),
    ],
)
def test_a_wrong_order(changes, words):
    assert words in refusal(check_order, altered(ORDER, *changes))


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
