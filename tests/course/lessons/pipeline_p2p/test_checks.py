"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p.checks import (
    check_activations,
    check_consume,
    check_inference_program,
    check_repair,
    check_trace,
    unnamed_trace,
)
from course.lessons.pipeline_p2p.schedules import Batch, Task, activation
from tests.course.lessons.pipeline_p2p import answers
from tests.course.lessons.refusals import changed, refusal, solution

pytestmark = pytest.mark.slow

NAMES = {"torch": torch, "dist": dist, "Batch": Batch, "Task": Task, "activation": activation}
program = partial(changed, solution("05_pipeline_p2p", "ex-5-2-answer"), **NAMES)
consume = partial(changed, solution("05_pipeline_p2p", "ex-5-4-answer"), **NAMES)

START = "posted, rest = [], list(wanted)"
NEW, POSTED = "torch.empty_like(like)", "dist.irecv(buffer, src, tag=tag)"
WAIT, USE = "        work.wait()\n", "        use(tag, buffer)\n"
NEXT = "        if rest:\n            post(rest.pop(0))\n"


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_inference_program, answers.as_a_generator),
        (check_repair, lambda: [3, 1, 3]),
        (check_repair, lambda: {1, "3"}),
        (check_repair, lambda: (rank for rank in (1, 3))),
        (check_repair, lambda: torch.tensor([1, 3])),
        (check_activations, lambda: torch.tensor([8, 4, 7, 1.5])),
        (check_consume, answers.by_name_into_reused_buffers),
        # as the lesson's Mailbox: what has arrived makes room for the next, used or not
        (check_consume, consume(USE + NEXT, NEXT + USE)),
        (check_consume, consume("use(tag, buffer)", "use(tag, buffer.clone())")),
    ],
)
def test_right_answers_pass(check, answer):
    check(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            program(
                "steps.append(Batch(tuple(moved)))", "steps += [Batch((one,)) for one in moved]"
            ),
            "at once: started in one batch",
        ),
        (program("(0, 1)", "(0, 1, 2)", "k + 2", "k + 3"), "too early holds up the sends"),
        (program("k < micro_batches", "k < max(micro_batches, 2)"), "never sends it"),
        (
            program("return steps", "return sorted(steps, key=lambda one: isinstance(one, Task))"),
            "put the send after the task",
        ),
        (program("(0, 1)", "(1, 0)"), "in the same order"),
        (program("steps.append(Batch(tuple(moved)))", "steps += moved"), "also a single one"),
        (program("return steps", "return steps[::-1]"), "of its own stage once, in this order"),
    ],
)
def test_a_wrong_program(answer, words):
    assert words in refusal(check_inference_program, answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (consume("while rest and len(posted) < credits", "while rest"), "at most 1 receives under"),
        (
            consume(NEW, "made[tag]", START, f"{START}\n    made = {{t: {NEW} for t in wanted}}"),
            "all buffers were made in advance",
        ),
        (  # where torch does not see it
            consume(
                "use(tag, buffer)",
                "kept.append(buffer.numpy().copy())\n        use(tag, torch.from_numpy(kept[-1]))",
                START,
                f"{START}\n    kept = []",
            ),
            "or none is let go",
        ),
        (  # beside the next one those that are used last
            consume(
                "post(rest.pop(0))\n    while posted:\n",
                "post(rest.pop(-1 if posted else 0))\n    while posted:\n"
                "        posted.sort(key=lambda one: wanted.index(one[0]))\n",
            ),
            "the next 2 were posted",
        ),
        (
            consume("if rest:", "for _ in rest[: 0 if posted else credits]:"),
            "one more after each use",
        ),
        (
            consume(
                POSTED,
                f"works.append({POSTED})",
                WAIT,
                "        while works:\n            works.pop(0).wait()\n",
                START,
                f"{START}\n    works = []",
            ),
            "messages that you do not need yet",
        ),
        (consume(", tag=tag", ""), "tag 0"),
        (consume(NEW, "like"), "two receives share one buffer"),
        (consume(NEW, "torch.empty(like.shape)"), "torch.empty_like(like)"),
        (consume("(buffer, src,", "(buffer,"), "give irecv the source"),
        (consume(WAIT + USE, USE + WAIT), "it belongs to the receive"),
        (consume(NEXT, f"{NEXT}    post(tag)\n"), "every irecv waited for"),
        (consume("list(wanted)", "sorted(wanted)"), "in the order of `wanted`"),
        (consume(WAIT, WAIT + WAIT), "a second one for the same handle"),
        (answers.with_a_barrier, "receive, and nothing else"),
        (answers.made_up, "a receive for it was posted"),
    ],
)
def test_a_wrong_consumer(answer, words):
    assert words in refusal(check_consume, answer)


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (check_trace, "a", "follow the chain"),
        (check_trace, "b", "it is idle longest"),
        (check_trace, "d", "stand elsewhere"),
        (check_repair, range(5), "exactly one must receive first"),
        (check_repair, {1, 3, 9}, "there is no such rank"),
        (check_repair, {"odd"}, "a rank: a number"),
        (check_repair, "1, 3", "another type was returned"),
        (check_repair, {0, 2, 4}, "may go on sending first"),
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
