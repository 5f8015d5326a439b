"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import changed, refusal, solution

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (checks.check_reading, (2, 20, 37), "the first victim"),
        (checks.check_reading, (1, 83, 37), "the straggler's own timers"),
        (checks.check_reading, (1, 20, 40), "subtract the smallest"),
        (checks.check_reading, "rank 1, 20 and 37 ms", "another type"),
        (checks.check_cap, ("no cap", 80.5), "80.5 ms are left"),
        (checks.check_cap, (3, 124.5), "backward ended at 100 ms"),
        (checks.check_cap, (3_000_000, 24.5), "in MB"),
        (checks.check_cap, None, "ends without `return`"),
        (checks.check_turned, (125, 125, 9), "not the classifier's"),
        (checks.check_turned, (45, 80, 9), "still have to move"),
        (checks.check_turned, (45, 125, 89), "now one of the six"),
    ],
)
def test_wrong_figures(check, answer, words):
    assert words in refusal(check, lambda: answer)


def ours(exercise, *changes):
    return changed(solution("02", exercise), *changes, checks=checks, dist=dist, buckets=buckets)


@pytest.mark.parametrize("cap", checks.LEFT)
def test_what_each_cap_leaves_is_what_our_answer_computes(cap):
    only = ours("ex-2-2-answer", "[1, 2, 3, 4, 8, None]", f"[{cap}]")
    assert only() == (cap, checks.LEFT[cap])


# Exercise 2.3


def hooks(model, start, finish):
    """What all answers share: a list of works, hooks that add to it, and a function at the end."""
    works = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda ready: works.append(start(ready)))
    return lambda: finish(works)


def started(parameter):
    return dist.all_reduce(parameter.grad, async_op=True), parameter


def averaged(works):
    while works:
        work, parameter = works.pop()
        work.wait()
        parameter.grad /= dist.get_world_size()


def overlapped(model):
    return hooks(model, started, averaged)


def through_copies(model):
    """A copy travels, divided already, and comes back: slower, and right."""

    def start(parameter):
        copy = parameter.grad / dist.get_world_size()
        return dist.all_reduce(copy, async_op=True), copy, parameter

    def finish(works):
        torch.futures.wait_all([work.get_future() for work, *_ in works])
        for _, copy, parameter in works:
            parameter.grad.copy_(copy)
        works.clear()

    return hooks(model, start, finish)


def waiting_in_the_hook(model):
    def start(parameter):
        work, _ = started(parameter)
        work.wait()
        return work, parameter

    return hooks(model, start, averaged)


def after_backward(model):
    return lambda: averaged([started(parameter) for parameter in model.parameters()])


def sleeping(model):
    def finish(works):
        time.sleep(0.02)
        works.clear()

    return hooks(model, started, finish)


def never_emptied(model):
    return hooks(model, started, lambda works: averaged(list(works)))


def before_the_gradient_is_there(model):
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: started(grad))
    return lambda: None


@pytest.mark.parametrize(
    ("attach", "words"),
    [
        (waiting_in_the_hook, "wait in finish()"),
        (after_backward, "not when backward is over"),
        (sleeping, "no sleep is long enough"),
        (never_emptied, "forget the works of the step before"),
        (before_the_gradient_is_there, "runs before the gradient is in .grad"),
    ],
)
def test_wrong_overlaps(attach, words):
    assert words in refusal(checks.check_overlap, attach)


# Exercise 2.4


def unpacked_and_divided(gradients, cap):
    plan = buckets.plan(gradients, cap=cap, reverse=True)
    members = [[gradients[place] for place in bucket.members] for bucket in plan]
    flats = [torch.cat([member.flatten() for member in group]) for group in members]
    for work in [dist.all_reduce(flat, async_op=True) for flat in flats]:
        work.wait()
    for flat, group in zip(flats, members, strict=True):
        buckets.unpack(flat / dist.get_world_size(), group)


@pytest.mark.parametrize(
    ("line", "wrong", "words"),
    [
        (
            ", flat, members))",
            ", flat, members))\n        works[-1][0].wait()",
            "waits for one before",
        ),
        ("work.wait()", "works[-1][0].wait()", "says nothing of the others"),
        ("gradient.copy_(piece)", "gradient = piece", "copy the sum into the one that is there"),
        ("gradient.copy_(piece)", "gradient.data = piece.clone()", "do not replace its data"),
        ("flat /= dist.get_world_size()", "", "divide by the world size"),
    ],
)
def test_wrong_averages(line, wrong, words):
    assert words in refusal(checks.check_average, ours("ex-2-4-answer", line, wrong))


@pytest.mark.parametrize(
    ("number", "check", "answer"),
    [
        ("2.1", checks.check_reading, lambda: (1, 20, 37.0)),
        ("2.1", checks.check_reading, lambda: [np.int64(1), torch.tensor(20), "37 ms"]),
        ("2.2", checks.check_cap, lambda: (np.int64(3), 24.5)),
        ("2.2", checks.check_cap, lambda: ("3 MB", "24.5 ms")),
        ("2.3", checks.check_overlap, overlapped),
        ("2.3", checks.check_overlap, through_copies),
        ("2.4", checks.check_average, ours("ex-2-4-answer")),
        ("2.4", checks.check_average, unpacked_and_divided),
        ("2.6", checks.check_turned, lambda: (45, 125.0, 9)),
        ("2.6", checks.check_turned, lambda: ["45 ms", 125, np.int64(9)]),
    ],
)
def test_right_answers(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed: " in capsys.readouterr().out
