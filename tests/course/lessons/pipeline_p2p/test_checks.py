"""The checks of lesson 05: right answers in every style pass, each usual mistake is named."""

from functools import partial
from itertools import combinations

import pytest
import torch
import torch.distributed as dist
from torch.distributed import irecv

from course.checks import checking
from course.lessons.pipeline_p2p import checks, schedules, simulator
from tests.course.lessons.refusals import altered, refusal

NAMES = {name: at for name, at in {**vars(schedules), **vars(simulator)}.items() if name[0] != "_"}
BY_HOP = "(t.task.kind == 'B', t.src if t.task.kind == 'F' else -t.src)"

pytestmark = pytest.mark.slow


ours = partial(altered, **NAMES, torch=torch, dist=dist)


def the_smallest_that_ends():
    programs = checks.hanging_programs()
    for count in range(len(programs)):
        for chosen in combinations(range(len(programs)), count):
            mended = checks.receiving_first(programs, chosen)
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


def into_reused_buffers(wanted, use, *, src, like, credits):
    """Take irecv by name; fill a buffer again once it has been used."""
    free = [torch.empty_like(like) for _ in range(credits)]
    works, unposted = {}, list(wanted)
    for tag in wanted:
        while free and unposted:
            following = unposted.pop(0)
            buffer = free.pop()
            works[following] = (irecv(buffer, src, tag=following), buffer)
        work, buffer = works.pop(tag)
        work.wait()
        use(tag, buffer)
        free.append(buffer)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.check_trace, lambda: " C: in its row they stand late"),
        (checks.check_inference_program, ours("5-2", "return steps", "yield from steps")),
        (checks.check_repair, the_smallest_that_ends),
        (checks.check_repair, lambda: {1, "3"}),
        (checks.check_repair, lambda: (rank for rank in torch.tensor([3, 1, 3]))),
        (checks.check_activations, counted),
        (checks.check_activations, lambda: torch.tensor([8, 4, 7, 1.5], requires_grad=True)),
        (checks.check_activations, lambda: ((8, 4, 7), 1.5)),
        (checks.check_activations, lambda: {"GPipe": 8, "1F1B": 4, "eager 1F1B": 7, "GB": 1.5}),
        (checks.check_consume, into_reused_buffers),
        (checks.check_order, ours("5-6", "].begin", "].end")),
    ],
)
def test_right_answers_pass(check, answer):
    check(answer)


WRONG = {
    (checks.check_inference_program, "5-2"): [
        (("(0, 1)", "(0,)", "k + 2", "k + 1"), "at once: started in one batch"),
        (("out_of(k) +", "out_of(k + 1) +"), "put the send after the task"),
        (("Batch(tuple(moved))", "moved[0]"), "also a single one"),
        (("rank < stages - 1", "True"), "the last rank sends nothing"),
    ],
    (checks.check_consume, "5-4"): [
        (("< credits", "< 1"), "with fewer nothing moves while you compute"),
        ((", tag=tag", ""), "each with its source and its tag"),
        (("torch.empty_like(like)", "like"), "two receives share one buffer"),
        (("work.wait()", "pass"), "or you use one before its wait"),
    ],
    (checks.check_order, "5-6"): [
        (("when[t].begin", "t.task.micro_batch"), "something stands before what it is made of"),
        (("when[t].begin", BY_HOP), "something in front cannot start yet"),
        (("begin)", "begin)[:-1]"), "0 times in the order, not 1"),
        (("return sorted(when, ", "return [t.task for t in when] or list("), "for all ranks"),
    ],
}


@pytest.mark.parametrize(
    ("check", "exercise", "changes", "words"),
    [(*judged, *case) for judged, cases in WRONG.items() for case in cases],
)
def test_a_wrong_function(check, exercise, changes, words):
    assert words in refusal(check, ours(exercise, *changes))


def receives_named_as_its_own_sends(rank, *, stages, micro_batches):
    steps = []
    for k in range(micro_batches):
        if rank > 0:
            steps.append(schedules.Batch((schedules.activation(rank, k),)))
        steps.append(schedules.Task("F", rank, k))
    return steps


def no_receive_at_all(rank, *, stages, micro_batches):
    steps = []
    for k in range(micro_batches):
        steps.append(schedules.Task("F", rank, k))
        if rank < stages - 1:
            steps.append(schedules.Batch((schedules.activation(rank, k),)))
    return steps


def forward(rank, *, stages, micro_batches, task=lambda rank, k: schedules.Task("F", rank, k)):
    """Programs that compute what `task` says, and move one input and one output at a time."""
    steps = []
    for k in range(micro_batches):
        if rank > 0:
            steps.append(schedules.Batch((schedules.activation(rank - 1, k),)))
        steps.append(task(rank, k))
        if rank < stages - 1:
            steps.append(schedules.Batch((schedules.activation(rank, k),)))
    return steps


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (lambda rank, k: schedules.Task("F", k, rank), "then the stage, then the micro-batch"),
        (lambda rank, k: schedules.Task("F", rank + 1, k), "its own stage only"),
        (lambda rank, k: schedules.Task("F", rank, 0), "each micro-batch once"),
    ],
)
def test_a_task_that_is_not_the_ranks_is_shown_with_its_stage(task, words):
    told = refusal(checks.check_inference_program, partial(forward, task=task))
    assert words in told and "Task('F', " in told


def asks_whether_it_has_arrived(wanted, use, *, src, like, credits):
    """Never ends: gloo's receives say False until their wait has returned."""
    for tag in wanted:
        buffer = torch.empty_like(like)
        work = dist.irecv(buffer, src, tag=tag)
        while not work.is_completed():
            pass
        use(tag, buffer)


def test_a_hang_shows_the_learners_lines_alone(monkeypatch):
    monkeypatch.setattr(checking, "patience", lambda seconds: 2.0)
    told = refusal(checks.check_consume, asks_whether_it_has_arrived)
    assert "False until its wait() has returned" in told and "in asks_whether" in told
    assert "site-packages" not in told and "/checks.py" not in told


@pytest.mark.parametrize("program", [receives_named_as_its_own_sends, no_receive_at_all])
def test_a_receive_that_is_missing_is_not_called_late(program):
    told = refusal(checks.check_inference_program, program)
    assert "F0 0→1, which F0 needs" in told and "activation(0, k)" in told
    assert "post the receive earlier" not in told


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (checks.check_trace, "a", "follow the chain"),
        (checks.check_trace, None, "without `return`"),
        (checks.check_repair, range(5), "exactly one of two neighbours receives first"),
        (checks.check_repair, {1, 3, 9}, "there is no such rank"),
        (checks.check_repair, {0, 2, 4}, "may go on sending first"),
        (checks.check_repair, "1, 3", "another type was returned"),
        (checks.check_activations, (8, 3, 7, 2.0), "one more F comes before the first B"),
        (checks.check_activations, (8, 4, 7, 3), "not GB"),
        (checks.check_activations, (8, 4, 7, 3.5), "not what it needs beyond"),
    ],
)
def test_a_wrong_figure(check, answer, words):
    assert words in refusal(check, lambda: answer)


def test_the_lesson_holds_the_letter():
    assert checks.unnamed_trace().params["ahead"] == [1, 1, 0]
