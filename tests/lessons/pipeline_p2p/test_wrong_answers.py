"""The usual mistakes in lesson 05, each caught with its own message."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist

from labkit.course.checking import CheckFailed
from labkit.lessons.hang_clinic.checks import CAUSES, Diagnosis, check_diagnosis
from labkit.lessons.pipeline_p2p.checks import (
    check_consume,
    check_exposed,
    check_find_cycle,
    check_inference_program,
)
from labkit.lessons.pipeline_p2p.schedules import Batch, Task, activation


def caught(check, answer):
    with pytest.raises(CheckFailed) as failure:
        check(answer)
    return str(failure.value)


# 5.1


def right_cycle(after):
    done, path = set(), []

    def walk(node):
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        path.append(node)
        for before in after.get(node, ()):
            if found := walk(before):
                return found
        done.add(path.pop())
        return []

    for start in after:
        if found := walk(start):
            return found
    return []


def only_pairs(after):
    for node, befores in after.items():
        for before in befores:
            if node in after.get(before, ()):
                return [node, before]
    return []


def twice_is_a_cycle(after):
    seen = []

    def walk(node):
        if node in seen:
            return [node]
        seen.append(node)
        for before in after.get(node, ()):
            if found := walk(before):
                return found
        return []

    for start in after:
        seen.clear()
        if found := walk(start):
            return found
    return []


def with_the_way_in(after):
    found = right_cycle(after)
    if not found:
        return []
    into = [node for node in after if found[0] in after[node] and node not in found]
    return [*into[:1], *found]


def every_path(after):
    def walk(node, path):
        if node in path:
            return path[path.index(node) :]
        for before in after.get(node, ()):
            if found := walk(before, [*path, node]):
                return found
        return []

    for start in after:
        if found := walk(start, []):
            return found
    return []


def test_cycles():
    check_find_cycle(right_cycle)
    assert "meeting a node twice is not yet a cycle" in caught(check_find_cycle, twice_is_a_cycle)
    assert "longer than two" in caught(check_find_cycle, only_pairs)
    assert "the way *into* the cycle" in caught(check_find_cycle, with_the_way_in)
    assert "paths double with every rung" in caught(check_find_cycle, every_path)
    assert "None" in caught(check_find_cycle, lambda after: None)


# 5.2


def forward_program(rank, *, stages, micro_batches, ahead, pair=True):
    """Receive `ahead` micro-batches early; join a send with the receive that follows it."""
    steps, first, last = [], rank == 0, rank == stages - 1
    incoming = [] if first else [activation(rank - 1, k) for k in range(micro_batches)]
    steps += [Batch((transfer,)) for transfer in incoming[:ahead]]
    for k in range(micro_batches):
        steps.append(Task("F", rank, k))
        out = [] if last else [activation(rank, k)]
        into = incoming[k + ahead : k + ahead + 1]
        if pair and (out or into):
            steps.append(Batch((*out, *into)))
        else:
            steps += [Batch((transfer,)) for transfer in (*out, *into)]
    return steps


def as_in_the_lesson(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches, ahead=1, pair=False)


def sends_too_early(rank, *, stages, micro_batches):
    steps = as_in_the_lesson(rank, stages=stages, micro_batches=micro_batches)
    return sorted(steps, key=lambda step: isinstance(step, Task))


def forgets_to_send(rank, *, stages, micro_batches):
    steps = as_in_the_lesson(rank, stages=stages, micro_batches=micro_batches)
    return [s for s in steps if isinstance(s, Task) or s.transfers[0].src != rank]


def receives_backwards(rank, *, stages, micro_batches):
    steps = [] if rank == 0 else [Batch((activation(rank - 1, k),)) for k in range(micro_batches)]
    steps = steps[::-1]
    for k in range(micro_batches):
        steps.append(Task("F", rank, k))
        steps += [Batch((activation(rank, k),))] if rank < stages - 1 else []
    return steps


def test_orders():
    check_inference_program(
        lambda rank, *, stages, micro_batches: forward_program(
            rank, stages=stages, micro_batches=micro_batches, ahead=2
        )
    )
    assert "blocks it" in caught(check_inference_program, as_in_the_lesson)
    assert "put it after the task" in caught(check_inference_program, sends_too_early)
    assert "never sends it" in caught(check_inference_program, forgets_to_send)
    assert "in the same order" in caught(check_inference_program, receives_backwards)
    assert "computes each micro-batch once" in caught(check_inference_program, lambda *a, **k: [])


# 5.3


def pieces(seen, rank):
    inward = [span for transfer, span in seen.transfers if transfer.dst == rank]
    busy = [span for where, _, span in seen.tasks if where == rank]
    return inward, busy


def right_exposed(seen, rank):
    inward, busy = pieces(seen, rank)
    cuts = sorted({t for span in inward + busy for t in (span.begin, span.end)})
    total = 0.0
    for a, b in pairwise(cuts):
        inside = [any(s.begin <= a and b <= s.end for s in spans) for spans in (inward, busy)]
        total += b - a if inside == [True, False] else 0.0
    return total


def all_transfer_time(seen, rank):
    return sum(span.seconds for span in pieces(seen, rank)[0])


def without_union(seen, rank):
    inward, busy = pieces(seen, rank)

    def hidden(span):
        return sum(max(0.0, min(span.end, b.end) - max(span.begin, b.begin)) for b in busy)

    return sum(span.seconds - hidden(span) for span in inward)


def both_directions(seen, rank):
    mine = [(t, span) for t, span in seen.transfers if rank in (t.src, t.dst)]
    both = type(seen)(
        seen.world_size, seen.tasks, tuple((activation(rank - 1, 0), span) for _, span in mine)
    )
    return right_exposed(both, rank)


def test_exposed():
    check_exposed(right_exposed)
    assert "is not exposed" in caught(check_exposed, all_transfer_time)
    assert "take their union" in caught(check_exposed, without_union)
    assert "what it sends travels without it" in caught(check_exposed, both_directions)


# 5.4


def right_consume(wanted, use, *, src, like, credits):
    def post(tag):
        buffer = torch.empty_like(like)
        return tag, buffer, dist.irecv(buffer, src, tag=tag)

    posted = [post(tag) for tag in wanted[:credits]]
    for later in [*wanted[credits:], *[None] * len(posted)]:
        tag, buffer, work = posted.pop(0)
        work.wait()
        use(tag, buffer)
        if later is not None:
            posted.append(post(later))


def one_by_one(wanted, use, *, src, like, credits):
    for tag in wanted:
        right_consume([tag], use, src=src, like=like, credits=1)


def all_at_once(wanted, use, *, src, like, credits):
    right_consume(wanted, use, src=src, like=like, credits=len(wanted))


def without_tags(wanted, use, *, src, like, credits):
    for tag in wanted:
        buffer = torch.empty_like(like)
        dist.irecv(buffer, src).wait()
        use(tag, buffer)


def one_buffer(wanted, use, *, src, like, credits):
    """Post credits receives into the same buffer."""
    buffer, posted = torch.empty_like(like), []
    for tag in wanted[:credits]:
        posted.append((tag, dist.irecv(buffer, src, tag=tag)))
    for later in [*wanted[credits:], *[None] * len(posted)]:
        tag, work = posted.pop(0)
        work.wait()
        use(tag, buffer)
        if later is not None:
            posted.append((later, dist.irecv(buffer, src, tag=later)))


def test_consume():
    check_consume(right_consume)
    assert "posted before the first wait" in caught(check_consume, one_by_one)
    assert "at most 1 buffers posted" in caught(check_consume, all_at_once)
    assert "did not" in caught(check_consume, without_tags)
    assert "used [" in caught(check_consume, one_buffer)


# 5b


def test_diagnoses():
    right = Diagnosis(2, "all_reduce", "fewer calls")
    check_diagnosis(1, "uneven batches", right)

    def said(diagnosis):
        return caught(lambda d: check_diagnosis(1, "uneven batches", d), diagnosis)

    assert "compare how many calls" in said(Diagnosis(2, "all_reduce", "straggler"))
    assert "the victim" in said(Diagnosis(0, "all_reduce", "fewer calls"))
    assert "name it as in torch.distributed" in said(Diagnosis(2, "barrier", "fewer calls"))
    assert "one of the words of CAUSES" in said(Diagnosis(2, "all_reduce", "magic"))
    assert "without `return`" in said(None)
    assert set(CAUSES) > {"fewer calls", "straggler"}
