"""Right answers in several styles, and the usual wrong ones, each caught with its own message."""

import functools
import itertools
import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed import broadcast

from course.comm import buckets
from course.lessons.coalesced_broadcast import checks, programs
from tests.course.lessons.refusals import refusal
from tests.marks import seldom

pytestmark = pytest.mark.slow


def caught(check, answer, words):
    assert words in refusal(check, answer)


# Exercise 3.1


def group(tensors, cap, *, size=lambda t: t.nbytes, fits=lambda held, cap: held <= cap):
    """Consecutive tensors of one dtype, as long as they fit: the statement's rule, or almost."""
    done, filling = [], {}
    for tensor in tensors:
        bucket = filling.setdefault(tensor.dtype, [])
        if bucket and not fits(sum(map(size, bucket)) + size(tensor), cap):
            done.append(list(bucket))
            bucket.clear()
        bucket.append(tensor)
    return done + list(filling.values())


def unpacked(flat, members):
    for tensor, piece in zip(members, flat.split([t.numel() for t in members]), strict=True):
        tensor.copy_(piece.view(tensor.shape))


def after_a_sum(flat, members):
    unpacked(flat + 0 if flat.is_floating_point() else flat, members)


def from_the_last(tensors, cap):
    return [members[::-1] for members in group(tensors[::-1], cap)]


def in_groups(grouping=group, *, pack=lambda t: t.reshape(-1), unpack=unpacked, **options):
    def coalesce(tensors, cap, src):
        for members in grouping(tensors, cap, **options):
            flat = torch.cat([pack(t) for t in members])
            dist.broadcast(flat, src=src)
            unpack(flat, members)

    return coalesce


def two_on_their_way(tensors, cap, src):
    """Imported by name, asynchronous, and lone tensors in place."""
    flying = []
    for members in group(tensors, cap):
        if len(members) == 1 and members[0].is_contiguous():
            broadcast(members[0], src=src, async_op=True).wait()
            continue
        flat = torch.cat([t.reshape(-1) for t in members])
        flying.append((broadcast(flat, src, async_op=True), flat, members))
        if len(flying) == 2:
            work, *rest = flying.pop(0)
            work.wait()
            unpacked(*rest)
    for work, *rest in flying:
        work.wait()
        unpacked(*rest)


def emptying_its_list(tensors, cap, src):
    mine = []
    while tensors:
        mine.append(tensors.pop(0))
    in_groups()(mine, cap, src)


def in_half_precision(tensors, cap, src):
    for members in group(tensors, cap):
        flat = torch.cat([t.reshape(-1) for t in members])
        half = flat.half() if flat.is_floating_point() else flat
        dist.broadcast(half, src=src)
        unpacked(half, members)


def first_fit(tensors, cap):
    done = []
    for tensor in tensors:
        for members in done:
            same = members[0].dtype == tensor.dtype
            if same and sum(t.nbytes for t in members) + tensor.nbytes <= cap:
                members.append(tensor)
                break
        else:
            done.append([tensor])
    return done


def replaced(flat, members):
    for tensor, piece in zip(members, flat.split([t.numel() for t in members]), strict=True):
        tensor.data = piece.view(tensor.shape)


def by_objects(tensors, cap, src):
    box = [[t.clone() for t in tensors]]
    dist.broadcast_object_list(box, src=src)
    for tensor, value in zip(tensors, box[0], strict=True):
        tensor.copy_(value)


def with_a_barrier(tensors, cap, src):
    in_groups()(tensors, cap, src)
    dist.barrier()


def by_values(tensors, cap, src):
    for members in group(tensors, cap):
        flat = torch.cat([t.reshape(-1) for t in members])
        if flat.any():
            dist.broadcast(flat, src=src)
            unpacked(flat, members)


def without_the_last_buckets(tensors, cap):
    return group(tensors, cap)[: -len({t.dtype for t in tensors}) or None]


def closed_by_another_dtype(tensors, cap):
    runs = itertools.groupby(tensors, key=lambda tensor: tensor.dtype)
    return [members for _, run in runs for members in group(list(run), cap)]


def in_a_sets_order(tensors, cap):
    """By what stands for the hashes of strings, which differ from process to process."""
    return sorted(group(tensors, cap), key=lambda members: str(members[0].dtype)[::-1])


def coalesced(tensors, cap, src):
    for members in group(tensors, cap):
        dist._broadcast_coalesced(dist.group.WORLD, members, 2**30, src)


def unpacked_too_early(tensors, cap, src):
    for members in group(tensors, cap):
        flat = torch.cat([t.reshape(-1) for t in members])
        work = dist.broadcast(flat, src=src, async_op=True)
        unpacked(flat, members)
        work.wait()


def in_another_order_on_odd_ranks(tensors, cap):
    done = group(tensors, cap)
    return done[::-1] if dist.get_rank() % 2 else done


def in_memory_order(tensor):
    return tensor.as_strided((tensor.numel(),), (1,))


@pytest.mark.parametrize("answer", [emptying_its_list, seldom(two_on_their_way)])
def test_right_coalesces(answer, capsys):
    checks.check_coalesce(answer)
    assert "3.1 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (in_groups(lambda tensors, cap: [tensors] if tensors else []), "may not exceed the cap"),
        (in_groups(size=lambda t: t.numel()), "the cap is in bytes, not in elements"),
        (in_groups(fits=lambda held, cap: held < cap), "a bucket may be exactly full"),
        (in_groups(fits=lambda held, cap: held <= cap + 1), "may not exceed the cap"),
        (in_groups(unpack=after_a_sum), "arithmetic changed bits"),
        (in_groups(first_fit), "nothing joins it later"),
        (in_groups(lambda tensors, cap: [[t] for t in tensors]), "put in tensors until the next"),
        (in_half_precision, "half precision on the wire"),
        (in_groups(unpack=lambda flat, members: None), "copy the buffer back into it"),
        (in_groups(unpack=replaced), "do not replace its data"),
        (in_groups(pack=in_memory_order), "this tensor is transposed"),
        (lambda tensors, cap, src: in_groups()(tensors, cap, 0), "it came from rank 0"),
        (in_groups(without_the_last_buckets), "a bucket is never sent"),
        (in_groups(closed_by_another_dtype), "keep one open for each dtype"),
        (in_groups(from_the_last), "begin with the first"),
        (in_groups(in_a_sets_order), "dict.fromkeys keeps the list's"),
        (in_groups(in_another_order_on_odd_ranks), "from values, sets or the rank"),
        (
            lambda tensors, cap, src: in_groups()(tensors, cap * (tensors[0].numel() > 0), src),
            "no first tensor",
        ),
        (unpacked_too_early, "wait for the broadcast first"),
        (with_a_barrier, "nothing else has to be sent"),
        (by_objects, "no bytes of a pickled object"),
        (coalesced, "_broadcast_coalesced wait where nobody sees it"),
        (lambda tensors, cap, src: None, "no broadcast was made"),
        (lambda tensors, cap, src: programs.broadcast(tensors, cap), "an answer of your own"),
    ],
)
def test_wrong_coalesces(answer, words):
    caught(checks.check_coalesce, answer, words)


def test_a_rank_that_sends_nothing_is_told_before_the_time_is_over():
    caught(checks.check_coalesce, by_values, "depends on values or on the rank")


# Exercises 3.2 and 3.4


def by_plan(
    nbytes,
    caps,
    budget,
    alpha,
    fault,
    *,
    alive=3,
    new=32 * 2**20,
    by_cap=False,
    none=True,
    windows=lambda starts: starts,
    paid=lambda n: n,
    whole=math.ceil,
    reverse=False,
):
    caps = caps if none else list(filter(None, caps))
    tensors = [torch.empty(n, dtype=torch.uint8, device="meta") for n in nbytes]
    plans = {
        cap: [b.nbytes for b in buckets.plan(tensors, cap=cap, reverse=reverse)] for cap in caps
    }

    def fits(cap):
        plan = plans[cap]
        if by_cap:
            return (alive * cap if cap else sum(nbytes)) <= budget
        return all(
            sum(plan[start : start + alive]) <= budget for start in windows(range(len(plan)))
        )

    def seconds(cap):
        fresh = [paid(n) for n in plans[cap] if n > new]
        pages = sum(whole(n / 4096) for n in fresh)
        return len(plans[cap]) * alpha + pages * fault

    return min(filter(fits, caps), key=seconds, default=-1)


def without_0(caps):
    return [cap for cap in caps if cap != 0]


def by_hand(nbytes, caps, budget, alpha, fault):
    """Without the course's planner; the array's own number comes back."""
    best = {}
    for cap in caps:
        plan = [0]
        for n in nbytes:
            if plan[-1] and cap is not None and plan[-1] + n > cap:
                plan.append(0)
            plan[-1] += n
        alive = max(sum(plan[k : k + 3]) for k in range(len(plan)))
        if alive <= budget:
            best[cap] = len(plan) * alpha + fault * sum(-(-n // 4096) for n in plan if n > 2**25)
    return min(best, key=best.get)


@pytest.mark.parametrize("answer", [seldom(by_plan), by_hand])
def test_the_cheapest_cap_that_fits_is_found(answer, capsys):
    checks.check_cap(answer)
    assert "3.4 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (functools.partial(by_plan, alive=2), "the loop has a third"),
        (functools.partial(by_plan, alive=1), "has"),
        (functools.partial(by_plan, new=10**12), "pay for their pages"),
        (functools.partial(by_plan, by_cap=True), "seldom as large as the cap"),
        (functools.partial(by_plan, new=32 * 10**6), "just 32 MiB"),
        (functools.partial(by_plan, whole=math.floor), "counts as a whole one"),
        (functools.partial(by_plan, whole=float), "the last is not full"),
        (functools.partial(by_plan, none=False), "12 MB in all"),
        (functools.partial(by_plan, windows=lambda starts: starts[::3]), "any three buckets"),
        (functools.partial(by_plan, paid=lambda n: n - 2**25), "a call of 3 ms"),
        (functools.partial(by_plan, reverse=True), "from first to last"),
        (functools.partial(by_plan, alive=99), "return one of the caps"),
        (lambda nbytes, caps, *rest: by_plan(nbytes, without_0(caps), *rest), "a cap of 0 is a"),
        (lambda *_: None, "another one costs less"),
        (lambda *_: 25_000_000, "has three at a time"),
        (lambda *_: 25, "return one of the caps"),
        (lambda nbytes, caps, *_: max(filter(None, caps)), "pay for their pages"),
    ],
)
def test_wrong_caps(answer, words):
    caught(checks.check_cap, answer, words)


# Exercise 3.3


def in_pairs(tensors, cap):
    """Two start, then both land."""
    kept, plan = buckets.Kept(2), buckets.plan(tensors, cap=cap)
    for first in range(0, len(plan), 2):
        flying = []
        for number, bucket in enumerate(plan[first : first + 2]):
            members = [tensors[place] for place in bucket.members]
            flat = torch.cat([t.reshape(-1) for t in members], out=kept.of(number, bucket))
            flying.append((dist.broadcast(flat, 0, async_op=True), flat, members))
        for work, flat, members in flying:
            work.wait()
            buckets.unpack(flat, members)


def with_two_buffers(*, most=2, unpack=True, keep=2, wait=True, tail=True, source=0):
    def send(tensors, cap):
        kept, flying = buckets.Kept(keep), []

        def land():
            work, flat, members = flying.pop(0)
            if wait:
                work.wait()
            if unpack:
                buckets.unpack(flat, members)

        for number, bucket in enumerate(buckets.plan(tensors, cap=cap)):
            if len(flying) == most:
                land()
            members = [tensors[place] for place in bucket.members]
            flat = torch.cat([t.reshape(-1) for t in members], out=kept.of(number, bucket))
            flying.append((dist.broadcast(flat, source, async_op=True), flat, members))
        while flying and tail:
            land()

    return send


def in_turns(tensors, cap):
    """Two slots, each with the work, the buffer and the members that lie in it."""
    kept, slots = buckets.Kept(2), [None, None]
    plan = buckets.plan(tensors, cap=cap)
    for number, bucket in enumerate([*plan, None, None]):
        if slots[number % 2]:
            work, flat, members = slots[number % 2]
            work.wait()
            buckets.unpack(flat, members)
            slots[number % 2] = None
        if bucket:
            members = [tensors[place] for place in bucket.members]
            flat = torch.cat([t.reshape(-1) for t in members], out=kept.of(number, bucket))
            slots[number % 2] = dist.broadcast(flat, 0, async_op=True), flat, members


def cannot_do_none(tensors, cap):
    with_two_buffers()(tensors, max(cap, tensors[0].nbytes))


def drops_the_last(tensors, cap):
    """Takes buckets two by two, and forgets one that has no partner."""
    plan = buckets.plan(tensors, cap=cap)
    even = [
        place
        for pair in zip(plan[::2], plan[1::2], strict=False)
        for b in pair
        for place in b.members
    ]
    with_two_buffers()([tensors[place] for place in even], cap)


@pytest.mark.parametrize("answer", [with_two_buffers(), in_turns])
def test_right_repairs(answer, capsys):
    checks.check_repaired(answer)
    assert "3.3 passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (with_two_buffers(most=3), "another bucket's values"),
        (with_two_buffers(most=1, keep=1), "overlap with it"),
        (in_pairs, "whole pairs"),
        (drops_the_last, "broadcasts of"),
        (with_two_buffers(unpack=False), "never unpacked"),
        (with_two_buffers(keep=None), "the later buckets need no new one"),
        (
            lambda tensors, cap: [dist.broadcast(t, 0) for t in tensors] and None,
            "one broadcast for each",
        ),
        (with_two_buffers(tail=False), "when the loop is over"),
        (with_two_buffers(source=1), "broadcasts from rank 0"),
        (with_two_buffers(wait=False), "waited for"),
        (lambda tensors, cap: None, "one broadcast for each"),
        (cannot_do_none, "does not cope with nothing"),
    ],
)
def test_wrong_repairs(answer, words):
    caught(checks.check_repaired, answer, words)
