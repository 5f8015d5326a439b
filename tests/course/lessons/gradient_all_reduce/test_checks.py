"""Right answers in another style than ours, and the usual wrong ones, each refused in its words."""

import time
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import altered, refusal

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


ours = partial(altered, checks=checks, dist=dist, buckets=buckets, time=time)


@pytest.mark.parametrize("cap", checks.LEFT)
def test_what_each_cap_leaves_is_what_our_answer_computes(cap):
    only = ours("2-2", "[1, 2, 3, 4, 8, None]", f"[{cap}]")
    assert only() == (cap, checks.LEFT[cap])


def through_copies(model):
    """A copy travels, divided already, and comes back: slower, and right."""
    works = []

    def start(parameter):
        copy = parameter.grad / dist.get_world_size()
        works.append((dist.all_reduce(copy, async_op=True), copy, parameter))

    def finish():
        torch.futures.wait_all([work.get_future() for work, *_ in works])
        for _, copy, parameter in works:
            parameter.grad.copy_(copy)
        works.clear()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(start)
    return finish


def unpacked_and_divided(gradients, cap):
    plan = buckets.plan(gradients, cap=cap, reverse=True)
    members = [[gradients[place] for place in bucket.members] for bucket in plan]
    flats = [torch.cat([member.flatten() for member in group]) for group in members]
    for work in [dist.all_reduce(flat, async_op=True) for flat in flats]:
        work.wait()
    for flat, group in zip(flats, members, strict=True):
        buckets.unpack(flat / dist.get_world_size(), group)


HOOK = "register_post_accumulate_grad_hook(gradient_is_ready)"
MEAN, START = "parameter.grad /= dist.get_world_size()", "works.append"
LATER = """for parameter in model.parameters():
            gradient_is_ready(parameter)
        for work,"""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("parameter))", "parameter))\n        works[-1][0].wait()"), "wait in finish()"),
        ((HOOK, "grad", "for work,", LATER), "not when backward is over"),
        (("work.wait()", "time.sleep(0.02)"), "no sleep is long enough"),
        (("works.clear()", "pass"), "`finish` has kept works of the one before"),
        (
            (f"{MEAN}\n        works.clear()", "pass", START, f"{MEAN}; {START}"),
            "it grows with every step",
        ),
        ((HOOK, "register_hook(lambda grad: gradient_is_ready(grad))"), "before the gradient is"),
    ],
)
def test_wrong_overlaps(changes, words):
    assert words in refusal(checks.check_overlap, ours("2-3", *changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            (", flat, members))", ", flat, members))\n        works[-1][0].wait()"),
            "waits for one before",
        ),
        (("work.wait()", "works[-1][0].wait()"), "says nothing of the others"),
        (("gradient.copy_(piece)", "gradient = piece"), "copy into the one that is there"),
        (("gradient.copy_(piece)", "gradient.data = piece.clone()"), "do not replace its data"),
        (("flat /= dist.get_world_size()", ""), "divide by the world size"),
    ],
)
def test_wrong_averages(changes, words):
    assert words in refusal(checks.check_average, ours("2-4", *changes))


@pytest.mark.parametrize(
    ("number", "check", "answer"),
    [
        ("2.1", checks.check_reading, lambda: (1, 20, 37.0)),
        ("2.1", checks.check_reading, lambda: [np.int64(1), torch.tensor(20), "37 ms"]),
        ("2.2", checks.check_cap, lambda: (np.int64(3), 24.5)),
        ("2.2", checks.check_cap, lambda: ("3 MB", "24.5 ms")),
        ("2.3", checks.check_overlap, through_copies),
        ("2.4", checks.check_average, unpacked_and_divided),
        ("2.6", checks.check_turned, lambda: (45, 125.0, 9)),
        ("2.6", checks.check_turned, lambda: {"six": 45, "backwards": 125, "sixteen": 9}),
        ("2.6", checks.check_turned, lambda: ["45 ms", 125, np.int64(9)]),
    ],
)
def test_right_answers(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed: " in capsys.readouterr().out
