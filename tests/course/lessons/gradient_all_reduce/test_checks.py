"""Right answers in several styles, and the usual wrong ones, each caught with its own message."""

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce

from course.comm import buckets
from course.lessons.gradient_all_reduce import checks
from tests.course.lessons.refusals import changed, refusal

pytestmark = pytest.mark.slow


NAMES = {"dist": dist, "buckets": buckets, "torch": torch, "time": time}


# Exercises 2.1 and 2.2


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ((2, 20, 37), "the first victim"),
        ((3, 20, 37), "weigh each call"),
        ((0, 20, 37), "the smallest timer"),
        ((1e300, 20, 37), "the smallest timer"),
        ((1, 82, 37), "no rank is last in every call"),
        ((1, 83, 37), "the straggler's own timers"),
        ((1, 93.0, 37), "averaging over ranks"),
        ((1, 21, 37), "moving begins when the last rank arrives"),
        ((1, 20, 51), "the next to last decides"),
        ((1, 20, 79), "what all ranks cost together"),
        ((1, 20, 40), "subtract the smallest"),
        ((1, 0.020, 0.037), "in another unit"),
        ((1, 20, "37 s"), "all timers here are in ms"),
        ((1, 20, None), "this figure is missing"),
        (None, "ends without `return`"),
    ],
)
def test_wrong_readings(reading, words):
    assert words in refusal(checks.check_reading, lambda: reading)


def test_the_best_cap_is_one_alone():
    left = {cap: checks.exposed(cap) for cap in checks.CAPS}
    assert left == {1: 56.5, 2: 32.5, 3: 24.5, 4: 28.5, 8: 40.5, None: 80.5}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, 56.5), "nine times"),
        ((2, 32.5), "follow the wire to the end"),
        ((4, 28.5), "busy with it for 18 ms after backward"),
        ((8, 40.5), "what leaves last can hide least"),
        ((None, 80.5), "nothing is hidden"),
        (("None", 80.5), "nothing is hidden"),
        ((3, 12.5), "not always busy"),
        ((3, 7.5), "alpha is missing"),
        ((3, None), "this figure is missing"),
        ((3, "24.5 s"), "in ms"),
        ((3, 18.5), "never above its cap"),
        ((3, 124.5), "backward ended at 100 ms"),
        ((3, 112.5), "what backward hides does not count"),
        ((3_000_000, 24.5), "in MB"),
        (3, "tuple"),
        (None, "ends without `return`"),
    ],
)
def test_wrong_caps(answer, words):
    assert words in refusal(checks.check_cap, lambda: answer)


# Exercise 2.3

ATTACH = """
def attach(model):
    works = []

    def hook(parameter):
        works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for work, parameter in works:
            work.wait()
            parameter.grad /= dist.get_world_size()
        works.clear()

    return finish
"""
START = "works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))"
HOOK = "register_post_accumulate_grad_hook(hook)"
LOOP = "        for work, parameter in works:\n"
WAIT = "            work.wait()\n"
DIVIDE = "            parameter.grad /= dist.get_world_size()\n"
EMPTY = "        works.clear()\n"
BEFORE = f"parameter.grad /= dist.get_world_size()\n        {START}"
POLL = "            while not work.is_completed():\n                time.sleep(0.001)\n"


def through_copies(model):
    """A copy travels, and comes back: slower, and right."""
    works = []

    def hook(parameter):
        copy = parameter.grad.clone()
        works.append((all_reduce(copy, async_op=True), copy, parameter))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        torch.futures.wait_all([work.get_future() for work, *_ in works])
        while works:
            _, copy, parameter = works.pop()
            parameter.grad.copy_(copy / dist.get_world_size())

    return finish


COLLECT = """queue.append(parameter)
        if len(queue) + len(works) in (4, 6):
            works.extend((dist.all_reduce(p.grad, async_op=True), p) for p in queue)
            queue.clear()"""
TOUCH = f"{START}\n        parameter.grad /= dist.get_world_size()"
TWICE = f"dist.all_reduce(parameter.grad, async_op=True)\n        {START}"
GRADIENTS = """register_hook(
            lambda grad, p=parameter: works.append((dist.all_reduce(grad, async_op=True), p))
        )"""
NOW = "        [*map(hook, model.parameters())]\n"
LATER = f"if len(works) < 5:\n            {START}"
REST = f"        parameter = next(model.parameters())\n        {START}\n"
AWAY = "        for parameter in model.parameters():\n            parameter.grad = None\n"


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("the sum was divided by 2: divide by the", ("/= dist.get_world_size()", "/= 2")),
        ("divide by the world size", (DIVIDE, "")),
        ("declare it `nonlocal`", ("works.clear()", "works = []")),
        ("does `finish` forget last step's works", (EMPTY, "")),
        ("forget last step's works before the", (WAIT, WAIT + LOOP, EMPTY, "")),
        ("waits for works of earlier steps", (START, BEFORE, DIVIDE, "", EMPTY, "")),
        ("Each hook starts its own", (START, COLLECT, "works = []", "works, queue = [], []")),
        ("found done by is_completed()", (START, f"{START}\n        works[0][0].is_completed()")),
        ("waits, be it for the work before", (START, "dist.all_reduce(parameter.grad)")),
        ("not when backward is over", (HOOK, "grad", LOOP, NOW + LOOP)),
        ("says nothing of the others", (WAIT, "", LOOP, "        works[-1][0].wait()\n" + LOOP)),
        ("no sleep is long enough", ("work.wait()", "time.sleep(0.02)")),
        ("the sum is in another tensor", ("(parameter.grad,", "(parameter.grad.clone(),")),
        ("can do other things", ("(parameter.grad,", "(parameter.grad, dist.ReduceOp.MAX,")),
        ("a gradient belongs to the library", (START, TOUCH)),
        ("`return finish` is missing", ("    return finish\n", "")),
        ("its own parameter, whole, in float32, and once", (START, TWICE)),
        ("nothing else has to be sent", (LOOP, f"        dist.barrier()\n{LOOP}")),
        ("no all_reduce was made", (HOOK, "grad")),
        ("runs before the gradient is in .grad", (HOOK, "register_hook(hook)")),
        ("what it returns replaces the gradient", (HOOK, "register_hook(lambda g: works)")),
        ("autograd itself puts it into .grad", (HOOK, GRADIENTS)),
        ("leave the mean there", (EMPTY, EMPTY + AWAY)),
        ("when the hook has returned", (START, f"{START}\n        time.sleep(0.05)")),
        ("the first layer's, too", (START, LATER, LOOP, REST + LOOP)),
    ],
)
def test_wrong_overlaps(words, changes):
    assert words in refusal(checks.check_overlap, changed(ATTACH, *changes, **NAMES))


# Exercise 2.4

AVERAGE = """
def average(gradients, cap):
    works = []
    for bucket in buckets.plan(gradients, cap=cap, reverse=True):
        members = [gradients[place] for place in bucket.members]
        flat = torch.cat([member.flatten() for member in members])
        works.append((dist.all_reduce(flat, async_op=True), flat, members))
    for work, flat, members in works:
        work.wait()
        flat /= dist.get_world_size()
        for gradient, piece in zip(members, buckets.unflatten(flat, members)):
            gradient.copy_(piece)
"""
FLAT = "flat = torch.cat([member.flatten() for member in members])\n"
LAST = "    works[-1][0].wait()\n"
WORKS = "    for work, flat, members in works:\n"
EARLY = "buckets.unpack(flat / dist.get_world_size(), members)"
COPY = "gradient.copy_(piece)"
PIECES = (
    f"for gradient, piece in zip(members, buckets.unflatten(flat, members)):\n            {COPY}"
)
BEGIN = "        works.append((dist"
OLDEST = "        len(works) > 2 and works[0][0].wait()"
ALONE = "    for gradient in gradients:\n        gradient.data = gradient / 2\n    return\n"


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("copy into the one that is there", (COPY, "members[0] = piece")),
        ("reshape copies what is not", (COPY, "gradient.reshape(-1).copy_(piece.reshape(-1))")),
        ("do not replace its data", (COPY, "gradient.data = piece.clone()")),
        ("last one has ended says", ("        work.wait()\n", "", WORKS, LAST + WORKS)),
        ("no work was waited for", ("        work.wait()\n", "")),
        ("2 times the mean: divide by the world size", ("flat /= dist.get_world_size()", "pass")),
        ("0.5 times the mean: divide by the world", ("dist.get_world_size()", "4")),
        (
            "copied out before its bucket was summed",
            (FLAT, f"{FLAT}        {EARLY}\n", COPY, "pass"),
        ),
        ("cut it in the order of packing", (PIECES, "buckets.unpack(flat, members[::-1])")),
        ("keep the colleague's buckets", ("cap=cap", "cap=0")),
        ("not that a work is done", (WORKS, f"    dist.barrier()\n{WORKS}")),
        ("called no all_reduce", ("    works = []\n", "    return\n")),
        ("called no all_reduce", ("    works = []\n", ALONE)),
        ("some bucket waits for one before it", (BEGIN, f"{OLDEST}\n{BEGIN}")),
        (
            "some bucket waits for one before it",
            (
                "dist.all_reduce(flat, async_op=True)",
                "dist.all_reduce(flat)",
                "work.wait()",
                "pass",
            ),
        ),
    ],
)
def test_wrong_averages(words, changes):
    assert words in refusal(checks.check_average, changed(AVERAGE, *changes, **NAMES))


@pytest.mark.parametrize(
    ("number", "check", "answer"),
    [
        ("2.1", checks.check_reading, lambda: (1, 20, 37.0)),
        ("2.1", checks.check_reading, lambda: [np.int64(1), torch.tensor(20), "37 ms"]),
        ("2.2", checks.check_cap, lambda: (np.int64(3), 24.5)),
        ("2.2", checks.check_cap, lambda: ("3 MB", "24.5 ms")),
        ("2.3", checks.check_overlap, through_copies),
        (
            "2.3",
            checks.check_overlap,
            changed(ATTACH, WAIT, POLL + WAIT, DIVIDE, "", START, BEFORE, **NAMES),
        ),
        ("2.4", checks.check_average, changed(AVERAGE, **NAMES)),
    ],
)
def test_right_answers(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed: " in capsys.readouterr().out
