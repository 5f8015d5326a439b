"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

from functools import partial
from itertools import combinations

import pytest
import torch

from course.checks import checking
from course.lessons.pipeline_p2p import checks, experiment, schedules, simulator
from tests.course.lessons.pipeline_p2p import answers
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


def the_smallest_that_ends():
    programs = schedules.hanging_programs()
    for count in range(len(programs)):
        for chosen in combinations(range(len(programs)), count):
            mended = schedules.receiving_first(programs, chosen)
            if not simulator.find_deadlock(mended, channel=schedules.Channel.BLOCKING):
                return chosen
    return None


def counted():
    most = []
    for build in schedules.SCHEDULES.values():
        kept = peak = 0
        for task in build(stages=4, micro_batches=8)[0]:
            kept += 1 if task.kind == "F" else -1
            peak = max(peak, kept)
        most.append(peak)
    return [*most, (most[2] - most[1]) * 0.5]


RIGHT = [
    (checks.check_trace, lambda: " C: in its row they stand late"),
    (checks.check_inference_program, answers.yields_its_steps),
    (checks.check_repair, the_smallest_that_ends),
    (checks.check_repair, lambda: (rank for rank in torch.tensor([3, 1, 3]))),
    (checks.check_activations, counted),
    (checks.check_activations, lambda: ((8, 4, 7), 1.5)),
    (checks.check_consume, answers.consume),
    (checks.check_consume, answers.into_reused_buffers),
    (checks.check_order, answers.by_end),
]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer):
    check(answer)


inference, consume = checks.check_inference_program, checks.check_consume
order = checks.check_order
WRONG = [
    (inference, answers.receives_right_before_the_task, "at once: started in one batch"),
    (inference, answers.sends_before_the_task, "put the send after the task"),
    (inference, answers.puts_transfers_into_no_batch, "also a single one"),
    (inference, answers.sends_from_the_last_rank_too, "the last rank sends nothing"),
    (consume, answers.posts_one_receive_at_a_time, "with fewer nothing moves while you compute"),
    (consume, answers.receives_without_a_tag, "each with its source and its tag"),
    (consume, answers.receives_into_one_buffer, "two receives share one buffer"),
    (consume, answers.never_waits, "or you use one before its wait"),
    (order, answers.by_micro_batch, "something stands before what it is made of"),
    (order, answers.one_hop_after_the_other, "something in front cannot start yet"),
    (order, answers.leaves_the_last_one_out, "0 times in the order, not 1"),
    (order, answers.orders_tasks, "for all ranks"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_a_wrong_function(check, answer, words):
    assert words in refusal(check, answer)


WRONG_TASKS = [
    (lambda rank, k: schedules.Task("F", k, rank), "then the stage, then the micro-batch"),
    (lambda rank, k: schedules.Task("F", rank + 1, k), "its own stage only"),
    (lambda rank, k: schedules.Task("F", rank, 0), "each micro-batch once"),
]


@pytest.mark.parametrize(("task", "words"), WRONG_TASKS)
def test_a_task_that_is_not_the_ranks_is_shown_with_its_stage(task, words):
    message = refusal(checks.check_inference_program, partial(answers.forward, task=task))
    assert words in message and "Task('F', " in message


def test_a_hang_shows_the_learners_lines_alone(monkeypatch):
    monkeypatch.setattr(checking, "patience", lambda seconds: 2.0)
    message = refusal(checks.check_consume, answers.asks_whether_it_has_arrived)
    assert "False until its wait() has returned" in message and "in asks_whether" in message
    assert "site-packages" not in message and "/checks.py" not in message


def test_a_receive_that_is_missing_is_not_called_late():
    message = refusal(checks.check_inference_program, answers.receives_named_as_its_own_sends)
    assert "F0 0→1, which F0 needs" in message and "activation(0, k)" in message
    assert "post the receive earlier" not in message


WRONG_FIGURES = [
    (checks.check_trace, "a", "follow the chain"),
    (checks.check_trace, None, "without `return`"),
    (checks.check_repair, range(5), "exactly one of two neighbours receives first"),
    (checks.check_repair, {1, 3, 9}, "there is no such rank"),
    (checks.check_repair, {0, 2, 4}, "may go on sending first"),
    (checks.check_repair, "1, 3", "another type was returned"),
    (checks.check_activations, (8, 3, 7, 2.0), "one more F comes before the first B"),
    (checks.check_activations, (8, 4, 7, 3), "not GB"),
    (checks.check_activations, (8, 4, 7, 3.5), "not what it needs beyond"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG_FIGURES)
def test_a_wrong_figure(check, answer, words):
    assert words in refusal(check, lambda: answer)


def test_the_lesson_holds_the_letter():
    assert experiment.unnamed_trace().params["ahead"] == [1, 1, 0]
