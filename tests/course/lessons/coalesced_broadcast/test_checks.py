"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.coalesced_broadcast import checks
from tests.course.lessons.refusals import altered, refusal

pytestmark = pytest.mark.slow


ours = partial(altered, buckets=buckets, dist=dist, torch=torch)


def send(members, src, out=None):
    flat = torch.cat([tensor.reshape(-1) for tensor in members], out=out)
    return dist.broadcast(flat, src, async_op=True), flat, members


def land(work, flat, members):
    work.wait()
    sizes = [tensor.numel() for tensor in members]
    for tensor, piece in zip(members, flat.split(sizes), strict=True):
        tensor.copy_(piece.view(tensor.shape))


# Exercise 3.1


def two_on_their_way(tensors, cap, src):
    """All is planned first, and the list is emptied; then two are on their way at a time."""
    closed, filling, flying = [], {}, []
    while tensors:
        tensor = tensors.pop(0)
        bucket = filling.setdefault(tensor.dtype, [])
        if bucket and sum(other.nbytes for other in bucket) + tensor.nbytes > cap:
            closed.append(list(bucket))
            bucket.clear()
        bucket.append(tensor)
    for members in closed + list(filling.values()):
        flying.append(send(members, src))
        if len(flying) == 2:
            land(*flying.pop(0))
    while flying:
        land(*flying.pop(0))


UNPACKED = "t.copy_(piece.view(t.shape))"
BLOCKING = "dist.broadcast(flat, src=src)"
STARTED = "work = dist.broadcast(flat, src=src, async_op=True)"
HASTY = (BLOCKING, STARTED, UNPACKED, f"{UNPACKED}\n        work.wait()")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("> cap", "> 0"), "each tensor has a call to itself"),
        (("nbytes", "numel()"), "the cap is in bytes, not in elements"),
        ((UNPACKED, "pass"), "copy the buffer back into it"),
        (HASTY, "until the wait the buffer belongs to it"),
        (("in open_buckets.values()", "in ()"), "what is open when the loop is over is sent, too"),
    ],
)
def test_wrong_coalesces(changes, words):
    assert words in refusal(checks.check_coalesce, ours("3-1", *changes))


# Exercise 3.3


def in_slots(tensors, cap):
    """Two slots, each with the work, the buffer and the members that lie in it."""
    kept, slots = buckets.Kept(2), [None, None]
    for number, bucket in enumerate([*buckets.plan(tensors, cap=cap), None, None]):
        if slots[number % 2]:
            land(*slots[number % 2])
            slots[number % 2] = None
        if bucket:
            members = [tensors[place] for place in bucket.members]
            slots[number % 2] = send(members, 0, kept.of(number, bucket))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("== 2", "== 1"), "wait for a broadcast only when its buffer is needed again"),
        (("== 2", "== 3"), "packed again"),
        (("Kept(2)", "Kept()"), "later buckets need no new one"),
    ],
)
def test_wrong_repairs(changes, words):
    assert words in refusal(checks.check_repaired, ours("3-3", *changes))


# Exercise 3.4


def by_hand(nbytes, caps, budget, alpha, fault):
    """Without the course's planner."""
    costs = {}
    for cap in caps:
        plan = [0]
        for size in nbytes:
            if plan[-1] and cap is not None and plan[-1] + size > cap:
                plan.append(0)
            plan[-1] += size
        if max(sum(plan[start : start + 3]) for start in range(len(plan))) <= budget:
            pages = sum(-(-size // 4096) for size in plan if size > 2**25)
            costs[cap] = len(plan) * alpha + fault * pages
    return min(costs, key=costs.get)


def by_the_cap(nbytes, caps, budget, alpha, fault):
    """With full buckets of the cap's bytes in place of the plan's."""
    fitting = [cap for cap in caps if 3 * (cap or sum(nbytes)) <= budget]
    return ours("3-4")(nbytes, fitting, sum(nbytes), alpha, fault)


@pytest.mark.parametrize(
    ("number", "check", "answer"),
    [
        ("3.1", checks.check_coalesce, two_on_their_way),
        ("3.3", checks.check_repaired, in_slots),
        ("3.4", checks.check_cap, by_hand),
    ],
)
def test_right_answers_in_another_style(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ours("3-4", "start + 3", "start + 2"), "the loop has a third"),
        (ours("3-4", "> 32 * 2**20", "> 10**12"), "pay for their pages"),
        (by_the_cap, "seldom as large as the cap"),
        (lambda *_: None, "which costs"),
        (lambda *_: "25 MB", "None means: all in one"),
    ],
)
def test_wrong_caps(answer, words):
    assert words in refusal(checks.check_cap, answer)
