"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.coalesced_broadcast import checks
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


def send(members, src, out=None):
    flat = torch.cat([tensor.reshape(-1) for tensor in members], out=out)
    return dist.broadcast(flat, src, async_op=True), flat, members


def land(work, flat, members):
    work.wait()
    sizes = [tensor.numel() for tensor in members]
    for tensor, piece in zip(members, flat.split(sizes), strict=True):
        tensor.copy_(piece.view(tensor.shape))


# Exercise 3.1


def closed(tensors, cap, filling):
    """The buckets of the plan in the order in which they close; those still open are `filling`."""
    while tensors:
        tensor = tensors.pop(0)
        bucket = filling.setdefault(tensor.dtype, [])
        if bucket and sum(other.nbytes for other in bucket) + tensor.nbytes > cap:
            yield filling.pop(tensor.dtype)
            bucket = filling.setdefault(tensor.dtype, [])
        bucket.append(tensor)


def two_on_their_way(tensors, cap, src):
    """All is planned first, and the list is emptied; then two are on their way at a time."""
    filling, flying = {}, []
    for members in [*closed(tensors, cap, filling), *filling.values()]:
        flying.append(send(members, src))
        if len(flying) == 2:
            land(*flying.pop(0))
    while flying:
        land(*flying.pop(0))


def all_closed(tensors, cap):
    for bucket in buckets.plan(tensors, cap=cap):
        yield [tensors[place] for place in bucket.members]


def in_turn(tensors, cap, src, *, plan=all_closed, land=land):
    """One bucket after the other: by whose `plan`, and what becomes of each that was sent."""
    for members in plan(tensors, cap):
        land(*send(members, src))


def by_a_set_of_types(tensors, cap, src):
    """In an order that differs from process to process."""
    for dtype in {tensor.dtype for tensor in tensors}:
        in_turn([tensor for tensor in tensors if tensor.dtype == dtype], cap, src)


def each_alone(tensors, cap):
    return [[tensor] for tensor in tensors]


def cap_in_elements(tensors, cap):
    return all_closed(tensors, 4 * cap)


def the_open_ones_forgotten(tensors, cap):
    return closed(tensors, cap, filling={})


def all_in_one(tensors, cap):
    """It also stops where there is nothing, which hides no fault."""
    return [tensors]


def never_unpacked(work, flat, members):
    work.wait()


def unpacked_before_the_wait(work, flat, members):
    buckets.unpack(flat, members)
    work.wait()


def sums_with_zeros(tensors, cap, src):
    """All but the source add zeros."""
    for members in all_closed(tensors, cap):
        flat = torch.cat([tensor.reshape(-1) for tensor in members])
        if dist.get_rank() != src:
            flat.zero_()
        dist.all_reduce(flat)
        buckets.unpack(flat, members)


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


def in_flight(tensors, cap, *, most, buffers):
    """Send each bucket from one of so many kept buffers, and let `most` be on their way."""
    flying, kept = [], buckets.Kept(buffers)
    for number, bucket in enumerate(buckets.plan(tensors, cap=cap)):
        if len(flying) == most:
            land(*flying.pop(0))
        members = [tensors[place] for place in bucket.members]
        flying.append(send(members, 0, kept.of(number, bucket)))
    while flying:
        land(*flying.pop(0))


# Exercise 3.4


def planned(nbytes, cap):
    """The bytes of each bucket, without the course's planner."""
    plan = [0]
    for size in nbytes:
        if plan[-1] and cap is not None and plan[-1] + size > cap:
            plan.append(0)
        plan[-1] += size
    return plan


def pages_of(size):
    return -(-size // 4096)


def any_three(plan, count=3):
    return max(sum(plan[start : start + count]) for start in range(len(plan)))


def cheapest(nbytes, caps, budget, alpha, fault, *, pages=pages_of, together=any_three):
    """The cap that costs least, as it is, or as somebody errs who counts one thing otherwise."""
    plans = {cap: planned(nbytes, cap) for cap in caps}
    costs = {
        cap: len(plan) * alpha + fault * sum(pages(size) for size in plan if size > 2**25)
        for cap, plan in plans.items()
        if together(plan) <= budget
    }
    return min(costs, key=costs.get)


def the_three_largest(plan):
    return sum(sorted(plan)[-3:])


def pages_above_the_limit(size):
    return pages_of(size - 2**25)


def never_all_in_one(nbytes, caps, *given):
    return cheapest(nbytes, [cap for cap in caps if cap], *given)


def memory_by_the_cap(nbytes, caps, budget, *given):
    """With the cap's bytes in place of the plan's."""
    fitting = [cap for cap in caps if 3 * (cap or sum(nbytes)) <= budget]
    return cheapest(nbytes, fitting, sum(nbytes), *given)


def full_buckets(nbytes, caps, budget, alpha, fault):
    """With as many buckets as the cap goes into the bytes."""
    costs = {}
    for cap in caps:
        plan = planned(nbytes, cap)
        if any_three(plan) <= budget:
            pages = sum(pages_of(size) for size in plan if size > 2**25)
            costs[cap] = sum(nbytes) / (cap or sum(nbytes)) * alpha + fault * pages
    return min(costs, key=costs.get)


RIGHT = [
    ("3.1", checks.check_coalesce, two_on_their_way),
    ("3.3", checks.check_repaired, in_slots),
    ("3.4", checks.check_cap, cheapest),
]


@pytest.mark.parametrize(("number", "check", "answer"), RIGHT)
def test_right_answers_in_another_style(number, check, answer, capsys):
    check(answer)
    assert f"{number} passed" in capsys.readouterr().out


coalesce, repaired, cap = checks.check_coalesce, checks.check_repaired, checks.check_cap
WRONG = [
    (coalesce, by_a_set_of_types, "or in an order that comes from values, sets or the rank"),
    (coalesce, partial(in_turn, plan=each_alone), "each tensor has a call to itself"),
    (coalesce, partial(in_turn, plan=cap_in_elements), "the cap is in bytes, not in elements"),
    (coalesce, partial(in_turn, plan=the_open_ones_forgotten), "what is open when the loop is"),
    (coalesce, partial(in_turn, plan=all_in_one), "only buckets are sent"),
    (coalesce, partial(in_turn, land=never_unpacked), "copy the buffer back into it"),
    (
        coalesce,
        partial(in_turn, land=unpacked_before_the_wait),
        "until the wait the buffer belongs",
    ),
    (coalesce, sums_with_zeros, "a sum in which the other ranks hold zeros"),
    (repaired, partial(in_flight, most=1, buffers=2), "only when its buffer is needed again"),
    (repaired, partial(in_flight, most=3, buffers=2), "packed again"),
    (repaired, partial(in_flight, most=2, buffers=None), "later buckets need no new one"),
    (cap, partial(cheapest, together=partial(any_three, count=2)), "the loop has a third"),
    (cap, partial(cheapest, together=the_three_largest), "not the three largest"),
    (cap, partial(cheapest, pages=lambda size: 0), "pay for their pages"),
    (cap, partial(cheapest, pages=lambda size: size // 4096), "is begun costs as much as a full"),
    (cap, partial(cheapest, pages=pages_above_the_limit), "all its pages, not for those above"),
    (cap, never_all_in_one, "None is a cap, too"),
    (cap, full_buckets, "count the plan's buckets, which are seldom full"),
    (cap, memory_by_the_cap, "seldom as large as the cap"),
    (cap, lambda *_: None, "which costs"),
    (cap, lambda *_: "25 MB", "None means: all in one"),
]


@pytest.mark.parametrize(("check", "answer", "words"), WRONG)
def test_wrong_answers(check, answer, words):
    assert words in refusal(check, answer)
