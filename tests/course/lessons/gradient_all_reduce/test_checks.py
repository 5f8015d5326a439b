"""Right answers in another style than ours, and the usual wrong ones, each refused in its words."""

import itertools
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


WRONG_FIGURES = [
    (checks.check_reading, (2, 20, 37), "the first victim"),
    (checks.check_reading, (1, 83, 37), "the straggler's own timers"),
    (checks.check_reading, (1, 20, 40), "subtract the smallest"),
    (checks.check_reading, "rank 1, 20 and 37 ms", "another type"),
    (checks.check_cap, ("no cap", 80.5), "80.5 ms are left"),
    (checks.check_cap, (3, 124.5), "backward ended at 100 ms"),
    (checks.check_cap, (3_000_000, 24.5), "in MB"),
    (checks.check_turned, (125, 125, 9), "not the classifier's"),
    (checks.check_turned, (45, 80, 9), "still have to move"),
    (checks.check_turned, (45, 125, 89), "now one of the six"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG_FIGURES)
def test_wrong_figures(check, answer, words):
    assert words in refusal(check, lambda: answer)


def exposed(cap):
    """The ms that buckets of a cap leave after backward, each sent when the wire is free."""
    filled, free = [], 0.0
    for (megabytes, ready), following in itertools.zip_longest(checks.LAYERS, checks.LAYERS[1:]):
        filled.append(megabytes)
        if following is None or (cap is not None and sum(filled) + following[0] > cap):
            free = max(free, ready) + 8 + 5 * sum(filled)
            filled.clear()
    return free - 100


@pytest.mark.parametrize("cap", checks.LEFT)
def test_what_each_cap_leaves_follows_from_the_layers(cap):
    assert exposed(cap) == checks.LEFT[cap]


def unpacked_and_divided(gradients, cap):
    plan = buckets.plan(gradients, cap=cap, reverse=True)
    members = [[gradients[place] for place in bucket.members] for bucket in plan]
    flats = [torch.cat([member.flatten() for member in group]) for group in members]
    for work in [dist.all_reduce(flat, async_op=True) for flat in flats]:
        work.wait()
    for flat, group in zip(flats, members, strict=True):
        buckets.unpack(flat / dist.get_world_size(), group)


def hooked(
    start, finish, *, hook=torch.Tensor.register_post_accumulate_grad_hook, works=list, forget=True
):
    """Hooks that `start` something, which `finish` ends; each gets the works, and an object."""

    def attach(model):
        kept, parameters = works(), [*model.parameters()]
        for parameter in parameters:
            hook(parameter, lambda gradient: start(kept, gradient))

        def finish_all():
            finish(kept, parameters)
            if forget:
                kept.clear()

        return finish_all

    return attach


def begin(works, parameter):
    """As it should be."""
    works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))


def begin_and_wait(works, parameter):
    begin(works, parameter)
    works[-1][0].wait()


def begin_and_divide(works, parameter):
    begin(works, parameter)
    parameter.grad /= dist.get_world_size()


def divide_and_begin(works, parameter):
    parameter.grad /= dist.get_world_size()
    begin(works, parameter)


def begin_by_shape(works, parameter):
    works[parameter.shape] = dist.all_reduce(parameter.grad, async_op=True), parameter


def begin_with_the_gradient(works, gradient):
    works.append((dist.all_reduce(gradient, async_op=True), gradient))


def nothing_yet(works, parameter):
    pass


def wait(works, parameters):
    for work, *_ in works.values() if isinstance(works, dict) else works:
        work.wait()


def wait_and_divide(works, parameters):
    wait(works, parameters)
    for parameter in parameters:
        parameter.grad /= dist.get_world_size()


def sleep_and_divide(works, parameters):
    time.sleep(0.02)
    for parameter in parameters:
        parameter.grad /= dist.get_world_size()


def begin_late_and_divide(works, parameters):
    for parameter in parameters:
        begin(works, parameter)
    wait_and_divide(works, parameters)


def copy_and_begin(works, parameter):
    """Right, if slower: a copy travels, divided already, and comes back."""
    copy = parameter.grad / dist.get_world_size()
    works.append((dist.all_reduce(copy, async_op=True), copy, parameter))


def wait_and_copy_back(works, parameters):
    torch.futures.wait_all([work.get_future() for work, *_ in works])
    for _, copy, parameter in works:
        parameter.grad.copy_(copy)


EARLY = {"hook": torch.Tensor.register_hook}


WRONG_OVERLAPS = [
    (hooked(begin_and_wait, wait_and_divide), "wait in finish()"),
    (hooked(nothing_yet, begin_late_and_divide), "not when backward is over"),
    (hooked(begin, sleep_and_divide), "no sleep is long enough"),
    (hooked(begin_by_shape, wait_and_divide, works=dict), "two gradients may have one shape"),
    (hooked(begin_and_divide, wait), "divide before or after"),
    (hooked(begin, wait_and_divide, forget=False), "it grows with every step"),
    (hooked(divide_and_begin, wait, forget=False), "it grows with every step"),
    (hooked(begin, wait), "this is the sum"),
    (hooked(begin, wait_and_divide, **EARLY), "before the gradient is"),
    (hooked(begin_with_the_gradient, wait_and_divide, **EARLY), "backward copies it"),
]


@pytest.mark.parametrize(("attach", "words"), WRONG_OVERLAPS)
def test_wrong_overlaps(attach, words):
    assert words in refusal(checks.check_overlap, attach)


def averaged(gradients, cap, *, start=None, wait=None, divide=True, put=torch.Tensor.copy_):
    """The mean of each gradient by buckets, with one line as somebody may write it."""
    works = []
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = buckets.flatten(members)
        works.append((dist.all_reduce(flat, async_op=True), flat, members))
        if start:
            start(works)
    for work, flat, members in works:
        wait(works) if wait else work.wait()
        if divide:
            flat /= dist.get_world_size()
        for gradient, piece in zip(members, buckets.unflatten(flat, members), strict=True):
            put(gradient, piece)


def wait_for_the_last(works):
    works[-1][0].wait()


def put_nowhere(gradient, piece):
    """As an assignment to a name does, or to a place in a list."""


def replace_data(gradient, piece):
    gradient.data = piece.clone()


def divide_the_last(works):
    """While it moves."""
    works[-1][1].div_(dist.get_world_size())


WRONG_AVERAGES = [
    (partial(averaged, start=wait_for_the_last), "waits for one before"),
    (partial(averaged, wait=wait_for_the_last), "says nothing of the others"),
    (partial(averaged, put=put_nowhere), "copy into the one that is there"),
    (partial(averaged, put=replace_data), "do not replace its data"),
    (partial(averaged, divide=False), "divide by the world size"),
    (partial(averaged, start=divide_the_last, divide=False), "divide before or after"),
]


@pytest.mark.parametrize(("average", "words"), WRONG_AVERAGES)
def test_wrong_averages(average, words):
    message = refusal(checks.check_average, average)
    assert words in message and "finish" not in message, "that is the function of 2.3"


RIGHT = [
    ("2.2", checks.check_cap, lambda: ("3 MB", "24.5 ms")),
    ("2.3", checks.check_overlap, hooked(copy_and_begin, wait_and_copy_back)),
    ("2.4", checks.check_average, unpacked_and_divided),
]


@pytest.mark.parametrize(("number", "check", "answer"), RIGHT)
def test_right_answers(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed: " in capsys.readouterr().out
