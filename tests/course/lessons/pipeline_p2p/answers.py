"""Answers to the exercises of lesson 05: right ones in several styles, and the usual mistakes."""

import time

import torch
import torch.distributed as dist
from torch.distributed import irecv

from course.lessons.pipeline_p2p.schedules import Batch, Task, activation

# 5.2: right


def forward_program(rank, *, stages, micro_batches, ahead=2, together=True):
    """Receive `ahead` micro-batches early; join a send with the receive that follows it."""
    steps, last = [], rank == stages - 1
    incoming = [] if rank == 0 else [activation(rank - 1, k) for k in range(micro_batches)]
    steps += [Batch((transfer,)) for transfer in incoming[:ahead]]
    for k in range(micro_batches):
        steps.append(Task("F", rank, k))
        out = [] if last else [activation(rank, k)]
        into = incoming[k + ahead : k + ahead + 1]
        if together and (out or into):
            steps.append(Batch((*out, *into)))
        else:
            steps += [Batch((transfer,)) for transfer in (*out, *into)]
    return steps


def as_a_generator(rank, *, stages, micro_batches):
    coming = iter(range(micro_batches if rank else 0))
    for k in coming:
        yield Batch((activation(rank - 1, k),))
        if k == 1:
            break
    for k in range(micro_batches):
        yield Task("F", rank, k)
        out = (activation(rank, k),) if rank + 1 < stages else ()
        k = next(coming, None)
        moved = out + (() if k is None else (activation(rank - 1, k),))
        if moved:
            yield Batch(moved)


# 5.2: wrong


def two_ahead_apart(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches, together=False)


def three_ahead(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches, ahead=3)


def in_program_order(rank, *, stages, micro_batches):
    steps = []
    for k in range(micro_batches):
        steps += [Batch((activation(rank - 1, k),))] if rank else []
        steps.append(Task("F", rank, k))
        steps += [Batch((activation(rank, k),))] if rank < stages - 1 else []
    return steps


def two_receives_always(rank, *, stages, micro_batches):
    steps = forward_program(rank, stages=stages, micro_batches=micro_batches)
    if rank and micro_batches == 1:
        steps.insert(1, Batch((activation(rank - 1, 1),)))
    return steps


def sends_too_early(rank, *, stages, micro_batches):
    steps = in_program_order(rank, stages=stages, micro_batches=micro_batches)
    return sorted(steps, key=lambda step: isinstance(step, Task))


def forgets_to_send(rank, *, stages, micro_batches):
    steps = in_program_order(rank, stages=stages, micro_batches=micro_batches)
    return [s for s in steps if isinstance(s, Task) or s.transfers[0].src != rank]


def receives_backwards(rank, *, stages, micro_batches):
    steps = [] if rank == 0 else [Batch((activation(rank - 1, k),)) for k in range(micro_batches)]
    steps = steps[::-1]
    for k in range(micro_batches):
        steps.append(Task("F", rank, k))
        steps += [Batch((activation(rank, k),))] if rank < stages - 1 else []
    return steps


def bare_transfers(rank, *, stages, micro_batches):
    steps = forward_program(rank, stages=stages, micro_batches=micro_batches)
    return [p for s in steps for p in (s.transfers if isinstance(s, Batch) else [s])]


def computes_backwards(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches)[::-1]


def never_ends(*arguments, **named):
    while True:
        time.sleep(0.01)


# 5.4: right


def one_after_each_use(wanted, use, *, src, like, credits):
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


def by_name_into_reused_buffers(wanted, use, *, src, like, credits):
    """Take irecv by name; fill a buffer again once it has been used."""
    free = [torch.empty_like(like) for _ in range(credits)]
    works, unposted = {}, list(wanted)
    for tag in wanted:
        while free and unposted:
            following = unposted.pop(0)
            buffer = free.pop()
            works[following] = (irecv(buffer, src, tag=following), buffer)
        work, buffer = works.pop(tag)
        work.wait()
        use(tag, buffer)
        free.append(buffer)


def the_next_before_each_use(wanted, use, *, src, like, credits):
    """As the lesson's Mailbox: what has arrived makes room for the next, used or not."""

    def post(tag):
        buffer = torch.empty_like(like)
        return buffer, dist.irecv(buffer, src, tag=tag)

    posted = [post(tag) for tag in wanted[:credits]]
    for place, tag in enumerate(wanted):
        buffer, work = posted.pop(0)
        work.wait()
        posted += [post(later) for later in wanted[place + credits : place + credits + 1]]
        use(tag, buffer)


def by_clone(wanted, use, *, src, like, credits):
    """Use a copy, so that the buffer could be posted again at once."""
    one_after_each_use(
        wanted, lambda tag, x: use(tag, x.clone()), src=src, like=like, credits=credits
    )


# 5.4: wrong


def one_left_over(wanted, use, *, src, like, credits):
    """Post the last message once more, for safety."""
    one_after_each_use(wanted, use, src=src, like=like, credits=credits)
    dist.irecv(torch.empty_like(like), src, tag=wanted[-1])


def all_buffers_in_advance(wanted, use, *, src, like, credits):
    """Post as many as there are credits, into buffers that were all made at the start."""
    buffers = {tag: torch.empty_like(like) for tag in wanted}
    works = {tag: dist.irecv(buffers[tag], src, tag=tag) for tag in wanted[:credits]}
    for place, tag in enumerate(wanted):
        works[tag].wait()
        use(tag, buffers[tag])
        for later in wanted[place + credits : place + credits + 1]:
            works[later] = dist.irecv(buffers[later], src, tag=later)


def copies_that_stay(wanted, use, *, src, like, credits):
    """Keep a copy of all that arrives, where torch does not see it."""
    kept = []

    def copied(tag, tensor):
        kept.append(tensor.numpy().copy())
        use(tag, torch.from_numpy(kept[-1]))

    one_after_each_use(wanted, copied, src=src, like=like, credits=credits)


def posts_the_last_first(wanted, use, *, src, like, credits):
    """Keep `credits` receives under way, but beside the next one those that are used last."""
    posted, rest = {}, list(wanted)
    for tag in wanted:
        while rest and (len(posted) < credits or tag not in posted):
            later = tag if tag in rest else rest[-1]
            rest.remove(later)
            buffer = torch.empty_like(like)
            posted[later] = buffer, dist.irecv(buffer, src, tag=later)
        buffer, work = posted.pop(tag)
        work.wait()
        use(tag, buffer)


def one_by_one(wanted, use, *, src, like, credits):
    for tag in wanted:
        one_after_each_use([tag], use, src=src, like=like, credits=1)


def all_at_once(wanted, use, *, src, like, credits):
    one_after_each_use(wanted, use, src=src, like=like, credits=len(wanted))


def drains_first(wanted, use, *, src, like, credits):
    for k in range(0, len(wanted), credits):
        one_after_each_use(wanted[k : k + credits], use, src=src, like=like, credits=credits)


def waits_for_all_first(wanted, use, *, src, like, credits):
    posted = []
    for place, tag in enumerate(wanted):
        for later in wanted[place + len(posted) : place + credits]:
            buffer = torch.empty_like(like)
            posted.append((buffer, dist.irecv(buffer, src, tag=later)))
        for i, (buffer, work) in enumerate(posted):
            if work is not None:
                work.wait()
                posted[i] = (buffer, None)
        use(tag, posted.pop(0)[0])


def without_tags(wanted, use, *, src, like, credits):
    posted = []
    for _ in wanted[:credits]:
        buffer = torch.empty_like(like)
        posted.append((buffer, dist.irecv(buffer, src)))
    for tag, (buffer, work) in zip(wanted, posted, strict=False):
        work.wait()
        use(tag, buffer)


def arbitrary_tags(wanted, use, *, src, like, credits):
    one_after_each_use([tag + 100 for tag in wanted], use, src=src, like=like, credits=credits)


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


def another_type(wanted, use, *, src, like, credits):
    one_after_each_use(wanted, use, src=src, like=torch.empty(like.shape), credits=credits)


def from_anybody(wanted, use, *, src, like, credits):
    one_after_each_use(wanted, use, src=None, like=like, credits=credits)


def from_rank_0(wanted, use, *, src, like, credits):
    one_after_each_use(wanted, use, src=0, like=like, credits=credits)


def without_waiting(wanted, use, *, src, like, credits):
    works = []
    for tag in wanted:
        buffer = torch.empty_like(like)
        works.append(dist.irecv(buffer, src, tag=tag))
        use(tag, buffer)
        works[-1].wait()


def in_order_of_tags(wanted, use, *, src, like, credits):
    one_after_each_use(sorted(wanted), use, src=src, like=like, credits=credits)


def with_a_barrier(wanted, use, *, src, like, credits):
    dist.barrier()
    one_after_each_use(wanted, use, src=src, like=like, credits=credits)


def waits_twice(wanted, use, *, src, like, credits):
    for tag in wanted:
        buffer = torch.empty_like(like)
        work = dist.irecv(buffer, src, tag=tag)
        work.wait()
        work.wait()
        use(tag, buffer)


def made_up(wanted, use, *, src, like, credits):
    """Use what the check is known to send, without a message."""
    for tag in wanted:
        use(tag, torch.full_like(like, tag))
