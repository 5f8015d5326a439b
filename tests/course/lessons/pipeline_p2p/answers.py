"""Answers to exercises 5.2, 5.4 and 5.6: right ones, and wrong ones that say their mistake."""

from itertools import islice

import torch
import torch.distributed as dist
from torch.distributed import irecv

from course.lessons.pipeline_p2p import schedules
from course.lessons.pipeline_p2p.schedules import Batch, Channel, Task, activation
from course.lessons.pipeline_p2p.simulator import simulate

# Exercise 5.2


def queued(rank, *, stages, micro_batches, early=2, sent=0):
    """Right: `early` inputs ahead; after task k the output of task k + `sent` leaves as well."""

    def into(k):
        return [activation(rank - 1, k)] if rank > 0 and k < micro_batches else []

    def out_of(k):
        return [activation(rank, k)] if rank < stages - 1 else []

    steps = [Batch(tuple(into(k))) for k in range(early) if into(k)]
    for k in range(micro_batches):
        steps.append(Task("F", rank, k))
        if moved := out_of(k + sent) + into(k + early):
            steps.append(Batch(tuple(moved)))
    return steps


def yields_its_steps(rank, *, stages, micro_batches):
    """Right: a generator."""
    yield from queued(rank, stages=stages, micro_batches=micro_batches)


def receives_right_before_the_task(rank, *, stages, micro_batches):
    """Wrong: an input comes in between two tasks, so that nothing moves during a task."""
    return queued(rank, stages=stages, micro_batches=micro_batches, early=1)


def sends_before_the_task(rank, *, stages, micro_batches):
    """Wrong: what leaves after a task is the output of the next one."""
    return queued(rank, stages=stages, micro_batches=micro_batches, sent=1)


def puts_transfers_into_no_batch(rank, *, stages, micro_batches):
    """Wrong: transfers stand among the tasks as they are."""
    steps = queued(rank, stages=stages, micro_batches=micro_batches)
    return [part for step in steps for part in schedules.parts(step)]


def sends_from_the_last_rank_too(rank, *, stages, micro_batches):
    """Wrong: each rank is taken for one that has a right neighbour."""
    return queued(rank, stages=stages + 1, micro_batches=micro_batches)


def receives_named_as_its_own_sends(rank, *, stages, micro_batches):
    """Wrong: a rank receives the activations of its own stage."""
    steps = []
    for k in range(micro_batches):
        if rank > 0:
            steps.append(Batch((activation(rank, k),)))
        steps.append(Task("F", rank, k))
    return steps


def forward(rank, *, stages, micro_batches, task):
    """Compute what `task` says, and move one input and one output at a time."""
    steps = []
    for k in range(micro_batches):
        if rank > 0:
            steps.append(Batch((activation(rank - 1, k),)))
        steps.append(task(rank, k))
        if rank < stages - 1:
            steps.append(Batch((activation(rank, k),)))
    return steps


# Exercise 5.4


def receive(like, src, tag):
    """Post a receive into a buffer of its own."""
    buffer = torch.empty_like(like)
    return tag, buffer, dist.irecv(buffer, src, tag=tag)


def consume(wanted, use, *, src, like, credits, receive=receive, wait=lambda work: work.wait()):
    """Right: as many receives are under way as there are credits."""
    unposted = iter(wanted)
    posted = [receive(like, src, tag) for tag in islice(unposted, credits)]
    while posted:
        tag, buffer, work = posted.pop(0)
        wait(work)
        use(tag, buffer)
        posted += [receive(like, src, following) for following in islice(unposted, 1)]


def into_reused_buffers(wanted, use, *, src, like, credits):
    """Right: takes irecv by name, and fills a buffer again once it has been used."""
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


def posts_one_receive_at_a_time(wanted, use, *, src, like, credits):
    """Wrong: the next receive is posted when the message before it has been used."""
    consume(wanted, use, src=src, like=like, credits=1)


def receives_without_a_tag(wanted, use, **given):
    """Wrong: every receive has tag 0."""

    def untagged(like, src, tag):
        buffer = torch.empty_like(like)
        return tag, buffer, dist.irecv(buffer, src)

    consume(wanted, use, **given, receive=untagged)


def receives_into_one_buffer(wanted, use, **given):
    """Wrong: `like` is the buffer of every receive."""

    def shared(like, src, tag):
        return tag, like, dist.irecv(like, src, tag=tag)

    consume(wanted, use, **given, receive=shared)


def never_waits(wanted, use, **given):
    """Wrong: a buffer is used as soon as its turn has come."""
    consume(wanted, use, **given, wait=lambda work: None)


def asks_whether_it_has_arrived(wanted, use, *, src, like, credits):
    """Never ends: gloo's receives say False until their wait has returned."""
    for tag in wanted:
        buffer = torch.empty_like(like)
        work = dist.irecv(buffer, src, tag=tag)
        while not work.is_completed():
            pass
        use(tag, buffer)


# Exercise 5.6


def periods(schedule, costs):
    """When each transfer would move if nothing queued."""
    return dict(simulate(schedules.programs(schedule), costs, channel=Channel.TAGGED).transfers)


def by_end(schedule, costs):
    """Right: what would end first goes first."""
    when = periods(schedule, costs)
    return sorted(when, key=lambda transfer: when[transfer].end)


def by_micro_batch(schedule, costs):
    """Wrong: gradients go before activations that they are made of."""
    return sorted(periods(schedule, costs), key=lambda transfer: transfer.task.micro_batch)


def one_hop_after_the_other(schedule, costs):
    """Wrong: all that a rank sends on goes first, then all that the next one sends on."""

    def hop(transfer):
        if transfer.task.kind == "F":
            return 0, transfer.src
        return 1, -transfer.src

    return sorted(periods(schedule, costs), key=hop)


def leaves_the_last_one_out(schedule, costs):
    """Wrong: one transfer stands nowhere."""
    return by_end(schedule, costs)[:-1]


def orders_tasks(schedule, costs):
    """Wrong: what is computed is returned, not what is sent."""
    return [transfer.task for transfer in by_end(schedule, costs)]
