"""Right answers in two styles, and the usual wrong ones, each refused with its own words."""

import functools

import pytest
import torch
import torch.distributed as dist

from course.comm import buckets
from course.lessons.coalesced_broadcast import checks
from tests.course.lessons.refusals import refusal

pytestmark = pytest.mark.slow


# Exercise 3.1


def groups(tensors, cap, size=lambda tensor: tensor.nbytes):
    """Consecutive tensors of one dtype, as long as they fit: the statement's rule."""
    closed, filling = [], {}
    for tensor in tensors:
        bucket = filling.setdefault(tensor.dtype, [])
        if bucket and sum(map(size, bucket)) + size(tensor) > cap:
            closed.append(list(bucket))
            bucket.clear()
        bucket.append(tensor)
    return closed + list(filling.values())


def unpack(flat, members):
    sizes = [tensor.numel() for tensor in members]
    for tensor, piece in zip(members, flat.split(sizes), strict=True):
        tensor.copy_(piece.view(tensor.shape))


def send(members, src, **options):
    flat = torch.cat([tensor.reshape(-1) for tensor in members])
    return dist.broadcast(flat, src, **options), flat, members


def in_turn(tensors, cap, src, size=lambda tensor: tensor.nbytes):
    own = []
    while tensors:
        own.append(tensors.pop(0))
    for members in groups(own, cap, size):
        _, flat, _ = send(members, src)
        unpack(flat, members)


def two_on_their_way(tensors, cap, src):
    flying = []

    def land():
        work, flat, members = flying.pop(0)
        work.wait()
        unpack(flat, members)

    for members in groups(tensors, cap):
        flying.append(send(members, src, async_op=True))
        if len(flying) == 2:
            land()
    while flying:
        land()


def one_by_one(tensors, cap, src):
    in_turn(tensors, 0, src)


def cap_in_elements(tensors, cap, src):
    in_turn(tensors, cap, src, torch.Tensor.numel)


def never_unpacked(tensors, cap, src):
    for members in groups(tensors, cap):
        send(members, src)


def unpacked_too_early(tensors, cap, src):
    for members in groups(tensors, cap):
        work, flat, _ = send(members, src, async_op=True)
        unpack(flat, members)
        work.wait()


def without_what_is_open(tensors, cap, src):
    in_turn(tensors[:-1], cap, src)


@pytest.mark.parametrize("answer", [in_turn, two_on_their_way])
def test_right_coalesces(answer, capsys):
    checks.check_coalesce(answer)
    assert "3.1 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (one_by_one, "each tensor has a call to itself"),
        (cap_in_elements, "the cap is in bytes, not in elements"),
        (never_unpacked, "copy the buffer back into it"),
        (unpacked_too_early, "until the wait the buffer belongs to it"),
        (without_what_is_open, "what is open when the loop is over is sent, too"),
    ],
)
def test_wrong_coalesces(answer, words):
    assert words in refusal(checks.check_coalesce, answer)


# Exercise 3.3


def with_two_buffers(tensors, cap, count=2, most=2):
    """The repaired program; with more on their way than buffers it is the colleague's."""
    kept, flying = buckets.Kept(count), []

    def land():
        work, flat, members = flying.pop(0)
        work.wait()
        buckets.unpack(flat, members)

    for number, bucket in enumerate(buckets.plan(tensors, cap=cap)):
        if len(flying) == most:
            land()
        flying.append(sent(tensors, number, bucket, kept))
    while flying:
        land()


def sent(tensors, number, bucket, kept):
    members = [tensors[place] for place in bucket.members]
    flat = torch.cat([tensor.reshape(-1) for tensor in members], out=kept.of(number, bucket))
    return dist.broadcast(flat, 0, async_op=True), flat, members


def in_slots(tensors, cap):
    """Two slots, each with the work, the buffer and the members that lie in it."""
    kept, slots = buckets.Kept(2), [None, None]
    for number, bucket in enumerate([*buckets.plan(tensors, cap=cap), None, None]):
        if slots[number % 2]:
            work, flat, members = slots[number % 2]
            work.wait()
            buckets.unpack(flat, members)
        slots[number % 2] = sent(tensors, number, bucket, kept) if bucket else None


@pytest.mark.parametrize("answer", [with_two_buffers, in_slots])
def test_right_repairs(answer, capsys):
    checks.check_repaired(answer)
    assert "3.3 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"most": 1}, "wait for a broadcast only when its buffer is needed again"),
        ({"most": 3}, "packed again"),
        ({"count": None}, "later buckets need no new one"),
    ],
)
def test_wrong_repairs(options, words):
    answer = functools.partial(with_two_buffers, **options)
    assert words in refusal(checks.check_repaired, answer)


# Exercise 3.4


def by_plan(nbytes, caps, budget, alpha, fault, *, alive=3, new=32 * 2**20):
    tensors = [torch.empty(size, dtype=torch.uint8, device="meta") for size in nbytes]
    plans = {cap: [b.nbytes for b in buckets.plan(tensors, cap=cap)] for cap in caps}

    def fits(cap):
        plan = plans[cap]
        return all(sum(plan[start : start + alive]) <= budget for start in range(len(plan)))

    def seconds(cap):
        pages = sum(-(-size // 4096) for size in plans[cap] if size > new)
        return len(plans[cap]) * alpha + pages * fault

    return min(filter(fits, caps), key=seconds)


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
    return by_plan(nbytes, fitting, sum(nbytes), alpha, fault)


@pytest.mark.parametrize("answer", [by_plan, by_hand])
def test_the_cheapest_cap_that_fits_is_found(answer, capsys):
    checks.check_cap(answer)
    assert "3.4 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (functools.partial(by_plan, alive=2), "the loop has a third"),
        (functools.partial(by_plan, new=10**12), "pay for their pages"),
        (by_the_cap, "seldom as large as the cap"),
        (lambda *_: None, "which costs"),
        (lambda *_: "25 MB", "None means: all in one"),
    ],
)
def test_wrong_caps(answer, words):
    assert words in refusal(checks.check_cap, answer)
