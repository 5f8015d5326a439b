"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ((2, 20, 37), "the first victim"),
        ((1, 83, 37), "the straggler's own timers"),
        ((1, 20, 40), "subtract the smallest"),
        ((1, 20, None), "this figure is missing"),
        ("rank 1, 20 and 37 ms", "another type"),
    ],
)
def test_wrong_readings(reading, words):
    assert words in refusal(checks.check_reading, lambda: reading)


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((125, 125, 9), "not the classifier's"),
        ((45, 80, 9), "still have to move"),
        ((45, 525, 9), "paid once"),
        ((45, 125, 89), "now one of the six"),
    ],
)
def test_wrong_places_of_the_lateness(figures, words):
    assert words in refusal(checks.check_turned, lambda: figures)


def test_the_best_cap_is_one_alone():
    left = {cap: checks.exposed(cap) for cap in checks.CAPS}
    assert left == {1: 56.5, 2: 32.5, 3: 24.5, 4: 28.5, 8: 40.5, None: 80.5}


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ((4, 28.5), "busy with it for 18 ms after backward"),
        (("no cap", 80.5), "80.5 ms are left"),
        ((3, 124.5), "backward ended at 100 ms"),
        ((3_000_000, 24.5), "in MB"),
        (None, "ends without `return`"),
    ],
)
def test_wrong_caps(pair, words):
    assert words in refusal(checks.check_cap, lambda: pair)


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
    works = []

    def finish():
        works.extend(started(parameter) for parameter in model.parameters())
        averaged(works)

    return finish


def sleeping(model):
    def finish(works):
        time.sleep(0.02)
        works.clear()

    return hooks(model, started, finish)


def never_emptied(model):
    def finish(works):
        averaged(list(works))

    return hooks(model, started, finish)


def before_the_gradient_is_there(model):
    works = []
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: works.append(started(grad)))
    return lambda: averaged(works)


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


def all_started(gradients, cap):
    """All buckets on their way: works, flat buffers, and the gradients in them."""
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = torch.cat([member.flatten() for member in members])
        yield dist.all_reduce(flat, async_op=True), flat, members


def average(gradients, cap):
    for work, flat, members in list(all_started(gradients, cap)):
        work.wait()
        flat /= dist.get_world_size()
        for gradient, piece in zip(members, buckets.unflatten(flat, members), strict=True):
            gradient.copy_(piece)


def unpacked_and_divided(gradients, cap):
    flying = list(all_started(gradients, cap))
    for work, *_ in flying:
        work.wait()
    for _, flat, members in flying:
        buckets.unpack(flat / dist.get_world_size(), members)


def one_at_a_time(gradients, cap):
    for work, flat, members in all_started(gradients, cap):
        work.wait()
        buckets.unpack(flat / dist.get_world_size(), members)


def waiting_for_the_last(gradients, cap):
    flying = list(all_started(gradients, cap))
    flying[-1][0].wait()
    for _, flat, members in flying:
        buckets.unpack(flat / dist.get_world_size(), members)


def into_the_list(gradients, cap):
    for work, flat, members in list(all_started(gradients, cap)):
        work.wait()
        flat /= dist.get_world_size()
        for place, piece in enumerate(buckets.unflatten(flat, members)):
            members[place] = piece


def under_new_memory(gradients, cap):
    for work, flat, members in list(all_started(gradients, cap)):
        work.wait()
        flat /= dist.get_world_size()
        for gradient, piece in zip(members, buckets.unflatten(flat, members), strict=True):
            gradient.data = piece.clone()


def summed(gradients, cap):
    for work, flat, members in list(all_started(gradients, cap)):
        work.wait()
        buckets.unpack(flat, members)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (one_at_a_time, "some bucket waits for one before it"),
        (waiting_for_the_last, "says nothing of the others"),
        (into_the_list, "copy into the one that is there"),
        (under_new_memory, "do not replace its data"),
        (summed, "divide by the world size"),
    ],
)
def test_wrong_averages(answer, words):
    assert words in refusal(checks.check_average, answer)


@pytest.mark.parametrize(
    ("number", "check", "answer"),
    [
        ("2.1", checks.check_reading, lambda: (1, 20, 37.0)),
        ("2.1", checks.check_reading, lambda: [np.int64(1), torch.tensor(20), "37 ms"]),
        ("2.2", checks.check_cap, lambda: (np.int64(3), 24.5)),
        ("2.2", checks.check_cap, lambda: ("3 MB", "24.5 ms")),
        ("2.3", checks.check_overlap, overlapped),
        ("2.3", checks.check_overlap, through_copies),
        ("2.4", checks.check_average, average),
        ("2.4", checks.check_average, unpacked_and_divided),
        ("2.6", checks.check_turned, lambda: (45, 125.0, 9)),
        ("2.6", checks.check_turned, lambda: ["45 ms", 125, np.int64(9)]),
    ],
)
def test_right_answers(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed: " in capsys.readouterr().out
