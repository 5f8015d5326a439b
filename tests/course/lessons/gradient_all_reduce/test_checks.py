"""Right answers in several styles, and the usual wrong ones, each caught with its own message."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce

from course.comm import buckets
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = pytest.mark.slow


def caught(check, answer, words):
    assert words in refusal(check, answer)


# Exercises 2.1, 2.2 and 2.5


def test_a_right_reading_passes(capsys):
    checks.check_reading(lambda: (1, 20, 37.0))
    checks.check_reading(lambda: [np.int64(1), torch.tensor(20), 37])
    printed = capsys.readouterr().out
    assert printed.count("2.1 passed") == 2


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ((2, 20, 37), "the first victim"),
        ((3, 20, 37), "weigh each call"),
        ((0, 20, 37), "the smallest timer"),
        ((1, 82, 37), "no rank is last in every call"),
        ((1, 83, 37), "the straggler's own timers"),
        ((1, 93.0, 37), "averaging over ranks"),
        ((1, 21, 37), "moving begins when the last rank arrives"),
        ((1, 20, 51), "the next to last decides"),
        ((1, 20, 79), "what all ranks cost together"),
        ((1, 20, 40), "subtract the smallest"),
        ((1, 0.020, 0.037), "in another unit"),
        ((1e300, 20, 37), "the smallest timer"),
        ((1, 20, None), "this figure is missing"),
        (None, "ends without `return`"),
    ],
)
def test_wrong_readings(reading, words):
    caught(checks.check_reading, lambda: reading, words)


@pytest.mark.parametrize("cap", [3, 3.0, "3", np.int64(3), "3 MB"])
def test_the_best_cap_passes(cap, capsys):
    checks.check_cap(lambda: (cap, 20.5))
    assert "2.2 passed" in capsys.readouterr().out


def test_the_best_cap_is_one_alone():
    left = {cap: checks.exposed(cap) for cap in checks.CAPS}
    assert left == {1: 56.5, 2: 32.5, 3: 20.5, 4: 28.5, 8: 40.5, None: 80.5}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, 56.5), "nine times"),
        ((2, 32.5), "follow the wire to the end"),
        ((4, 28.5), "busy with it for 18 ms after backward"),
        ((8, 40.5), "what leaves last can hide least"),
        ((None, 80.5), "nothing is hidden"),
        (("None", 80.5), "nothing is hidden"),
        ((3, 4.5), "not always busy"),
        ((3, 12.5), "alpha is missing"),
        ((3, None), "this figure is missing"),
        ((3, 120.5), "backward ended at 100 ms"),
        ((3, 104.5), "what backward hides does not count"),
        ((3_000_000, 20.5), "in MB"),
        (3, "tuple"),
        (None, "ends without `return`"),
    ],
)
def test_wrong_caps(answer, words):
    caught(checks.check_cap, lambda: answer, words)


# Exercise 2.3


def in_background(parameter):
    return dist.all_reduce(parameter.grad, async_op=True)


def imported_by_name(parameter):
    return all_reduce(parameter.grad, async_op=True)


def divided_before(parameter):
    parameter.grad /= dist.get_world_size()
    return all_reduce(parameter.grad, async_op=True)


def waiting(works):
    for work, _ in works:
        work.wait()


def waiting_for_futures(works):
    torch.futures.wait_all([work.get_future() for work, _ in works])


def asking(works):
    for work, _ in works:
        while not work.is_completed():
            time.sleep(0.001)
        work.wait()


def attached(start=in_background, *, wait=waiting, divide=True, forget=True, give_back=True):
    def attach(model):
        works = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda parameter: works.append((start(parameter), parameter))
            )

        def finish():
            wait(works)
            for _, parameter in works:
                if divide:
                    parameter.grad /= dist.get_world_size() if divide is True else divide
            if forget:
                works.clear()

        return finish if give_back else None

    return attach


def attached_with_futures(model):
    """Each future divides when its sum is there, and finish waits for what comes of it."""
    futures = []

    def hook(parameter):
        future = all_reduce(parameter.grad, async_op=True).get_future()

        def divide(_):
            parameter.grad /= dist.get_world_size()

        futures.append(future.then(divide))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        while futures:
            futures.pop().wait()

    return finish


def through_copies(model):
    """A copy travels, and comes back: slower, and right."""
    works = []

    def hook(parameter):
        copy = parameter.grad.clone()
        works.append((dist.all_reduce(copy, async_op=True), copy, parameter))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for work, copy, parameter in works:
            work.wait()
            parameter.grad.copy_(copy / dist.get_world_size())
        works.clear()

    return finish


@pytest.mark.parametrize(
    "answer",
    [
        attached(),
        seldom(attached(imported_by_name, wait=waiting_for_futures)),
        attached(divided_before, wait=asking, divide=False),
        through_copies,
        seldom(attached_with_futures),
    ],
)
def test_right_overlaps(answer, capsys):
    checks.check_overlap(answer)
    assert "2.3 passed" in capsys.readouterr().out


def at_once(parameter):
    dist.all_reduce(parameter.grad)


def after_backward(model):
    def finish():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, async_op=True).wait()
            parameter.grad /= dist.get_world_size()

    return finish


def too_early(model):
    """Hooks that run before the gradient is in .grad."""
    for parameter in model.parameters():
        parameter.register_hook(lambda _, p=parameter: dist.all_reduce(p.grad, async_op=True))
    return lambda: None


def without_gradients(model):
    """Right, until the gradients are thrown away."""
    finish = attached()(model)

    def and_forget():
        finish()
        for parameter in model.parameters():
            parameter.grad = None

    return and_forget


def divided_at_once(parameter):
    work = in_background(parameter)
    parameter.grad /= dist.get_world_size()
    return work


def with_a_barrier(works):
    dist.barrier()
    waiting(works)


def dividing_at_each_wait(model):
    """Waits and divides in one loop, and never empties the list."""
    works = []

    def hook(parameter):
        works.append((in_background(parameter), parameter))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for work, parameter in works:
            work.wait()
            parameter.grad /= dist.get_world_size()

    return finish


def with_a_list_of_its_own(model):
    """The closure mistake: `finish` assigns the name that `attach` made."""
    works = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda parameter: works.append((in_background(parameter), parameter))
        )

    def finish():
        for work, parameter in works:  # noqa: F823 - the mistake
            work.wait()
            parameter.grad /= dist.get_world_size()
        works = []  # noqa: F841 - the mistake

    return finish


def four_at_a_time(model):
    """The hooks only queue; every fourth starts what is queued."""
    queue, works = [], []

    def hook(parameter):
        queue.append(parameter)
        if len(queue) + len(works) in (4, 6):
            works.extend((in_background(parameter), parameter) for parameter in queue)
            queue.clear()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        while works:
            work, parameter = works.pop()
            work.wait()
            parameter.grad /= dist.get_world_size()

    return finish


def polling(model):
    """Each hook asks whether earlier works are done, and divides where they are."""
    works, done = [], []

    def hook(parameter):
        works.append((in_background(parameter), parameter))
        time.sleep(0.05)
        done.extend(pair for pair in works if pair not in done and pair[0].is_completed())

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for work, parameter in works:
            work.wait()
            parameter.grad /= dist.get_world_size()
        works.clear()

    return finish


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (attached(divide=2), "the sum was divided by 2: divide by the world size"),
        (attached(divide=4), "the sum was divided by 4: divide by the world size"),
        (with_a_list_of_its_own, "declare it `nonlocal`"),
        (four_at_a_time, "Each hook starts its own"),
        (polling, "found done by is_completed()"),
        (dividing_at_each_wait, "forget last step's works"),
        (attached(divide=False), "divide by the world size"),
        (attached(at_once, wait=lambda works: None), "waits, be it for the work before"),
        (attached(divided_before, divide=False, forget=False), "waits for works of earlier steps"),
        (after_backward, "not when backward is over"),
        (attached(wait=lambda works: works[-1][0].wait()), "says nothing of the others"),
        (attached(wait=lambda works: time.sleep(0.1)), "no sleep is long enough"),
        (
            attached(lambda p: dist.all_reduce(p.grad.clone(), async_op=True), divide=False),
            "the sum is in another tensor",
        ),
        (
            attached(lambda p: dist.all_reduce(p.grad.clone(), async_op=True)),
            "the sum is in another tensor",
        ),
        (
            attached(lambda p: dist.all_reduce(p.grad, dist.ReduceOp.MAX, async_op=True)),
            "an all_reduce can do other things",
        ),
        (attached(divided_at_once, divide=False), "a gradient belongs to the library"),
        (attached(forget=False), "forget last step's works"),
        (attached(give_back=False), "`return finish` is missing"),
        (
            attached(lambda p: (in_background(p), in_background(p))[1], divide=False),
            "the all_reduce of its own parameter, whole, in float32, and once",
        ),
        (attached(wait=with_a_barrier), "nothing else has to be sent"),
        (lambda model: lambda: None, "no all_reduce was made"),
        (too_early, "runs before the gradient is in .grad"),
        (without_gradients, "leave the mean there"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_wrong_overlaps(answer, words):
    caught(checks.check_overlap, answer, words)


# Exercise 2.4


def averaging(*, wait="all", copy=True, divide=True, cap=None, barrier=False):
    def average(gradients, given):
        works = []
        for bucket in buckets.plan(gradients, cap=given if cap is None else cap, reverse=True):
            members = [gradients[place] for place in bucket.members]
            flat = torch.cat([member.flatten() for member in members])
            works.append((dist.all_reduce(flat, async_op=True), flat, members))
        if barrier:
            dist.barrier()
        for work, _, _ in {"all": works, "last": works[-1:], "none": []}[wait]:
            work.wait()
        for _, flat, members in works:
            flat /= dist.get_world_size() if divide is True else divide or 1
            for gradient, piece in zip(members, buckets.unflatten(flat, members), strict=True):
                if copy:
                    gradient.copy_(piece)

    return average


def into_the_list(gradients, cap):
    for place, gradient in enumerate(gradients):
        dist.all_reduce(gradient)
        gradients[place] = gradient / dist.get_world_size()


def with_new_memory(gradients, cap):
    averaging()(gradients, cap)
    for gradient in gradients:
        gradient.data = gradient.clone()


def cut_in_another_order(gradients, cap):
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = buckets.flatten(members)
        dist.all_reduce(flat)
        buckets.unpack(flat / dist.get_world_size(), members[::-1])


def one_after_the_other(gradients, cap):
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = buckets.flatten(members)
        dist.all_reduce(flat)
        buckets.unpack(flat / dist.get_world_size(), members)


def reshaped(gradients, cap):
    works = []
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = buckets.flatten(members)
        works.append((dist.all_reduce(flat, async_op=True), flat, members))
    for work, flat, members in works:
        work.wait()
        flat /= dist.get_world_size()
        for gradient, piece in zip(members, buckets.unflatten(flat, members), strict=True):
            gradient.reshape(-1).copy_(piece.reshape(-1))


def unpacked_before_it_waits(gradients, cap):
    works = []
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = torch.cat([member.flatten() for member in members])
        before = flat / dist.get_world_size()
        works.append(dist.all_reduce(flat, async_op=True))
        buckets.unpack(before, members)
    for work in works:
        work.wait()


def test_right_averages(capsys):
    checks.check_average(averaging())
    assert "2.4 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (averaging(copy=False), "copy into the one that is there"),
        (averaging(wait="last"), "the last one has ended says nothing"),
        (averaging(wait="none"), "no work was waited for"),
        (averaging(divide=False), "2 times the mean: divide by the world size"),
        (into_the_list, "copy into the one that is there"),
        (reshaped, "reshape copies what is not contiguous"),
        (unpacked_before_it_waits, "copied out before its bucket was summed"),
        (with_new_memory, "do not replace its data"),
        (cut_in_another_order, "cut it in the order of packing"),
        (averaging(cap=0), "keep the colleague's buckets"),
        (averaging(cap=10**6), "keep the colleague's buckets"),
        (averaging(barrier=True), "not that a work is done"),
        (averaging(divide=4), "0.5 times the mean: divide by the world size, whatever it is"),
        (lambda gradients, cap: None, "called no all_reduce"),
        (one_after_the_other, "each bucket waits for the one before"),
    ],
)
def test_wrong_averages(answer, words):
    caught(checks.check_average, answer, words)
