"""Answers to the exercises of lesson 05: right ones in several styles, and the usual mistakes."""

import graphlib
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import networkx
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, recv

from course.lessons.pipeline_p2p import simulator
from course.lessons.pipeline_p2p.schedules import Batch, Task, activation

# 5.1: right


def walked(after, start, harmless):
    """Walk from a node; return the cycle that it leads to. What leads to none is harmless."""
    path = []

    def walk(node):
        if node in path:
            return path[path.index(node) :]
        if node in harmless:
            return []
        path.append(node)
        for before in after[node]:
            if found := walk(before):
                return found
        harmless.add(path.pop())
        return []

    return walk(start)


def by_recursion(after):
    harmless = set()
    return next((found for start in after if (found := walked(after, start, harmless))), [])


def by_colours(after):
    """Walk without recursion, with a stack of iterators."""
    colour = dict.fromkeys(after, "new")
    for start in after:
        if colour[start] != "new":
            continue
        stack = [(start, iter(after[start]))]
        colour[start] = "open"
        while stack:
            node, rest = stack[-1]
            before = next(rest, None)
            if before is None:
                colour[node] = "done"
                stack.pop()
            elif colour[before] == "open":
                nodes = [one for one, _ in stack]
                return nodes[nodes.index(before) :]
            elif colour[before] == "new":
                colour[before] = "open"
                stack.append((before, iter(after[before])))
    return []


def by_peeling(after):
    """Take away what waits for nothing, again and again; what is left has a cycle."""
    left = {node: set(befores) for node, befores in after.items()}
    behind = {node: [] for node in left}
    for node, befores in left.items():
        for before in befores:
            behind[before].append(node)
    free = [node for node, befores in left.items() if not befores]
    while free:
        node = free.pop()
        del left[node]
        for later in behind[node]:
            left[later].discard(node)
            if not left[later]:
                free.append(later)
    path = list(left)[:1]
    while path:
        step = next(iter(left[path[-1]]))
        if step in path:
            return path[path.index(step) :]
        path.append(step)
    return []


def by_graphlib(after):
    try:
        graphlib.TopologicalSorter(after).prepare()
    except graphlib.CycleError as error:
        return error.args[1][:0:-1]
    return []


# 5.1: wrong


def only_pairs(after):
    for node, befores in after.items():
        for before in befores:
            if node != before and node in after.get(before, ()):
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
    found = by_recursion(after)
    into = [node for node in after if found and found[0] in after[node] and node not in found]
    return [*into[:1], *found]


def every_path(after):
    def walk(node, path):
        if node in path:
            return path[path.index(node) :]
        for before in after[node]:
            if found := walk(before, [*path, node]):
                return found
        return []

    return next((found for start in after if (found := walk(start, []))), [])


def forgets_between_starts(after):
    return next((found for start in after if (found := walked(after, start, set()))), [])


def forgets_on_a_copy(after):
    return forgets_between_starts({node: list(befores) for node, befores in after.items()})


def backwards(after):
    return by_recursion(after)[::-1]


def closed(after):
    found = by_recursion(after)
    return [*found, *found[:1]]


def from_the_first(after):
    return walked(after, next(iter(after)), set()) if after else []


def of_labkit(after):
    return simulator.find_cycle(after)


def of_networkx(after):
    graph = networkx.DiGraph(after)
    try:
        return [node for node, _ in networkx.find_cycle(graph)]
    except networkx.NetworkXNoCycle:
        return []


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


def as_a_tuple(rank, *, stages, micro_batches):
    return tuple(forward_program(rank, stages=stages, micro_batches=micro_batches))


def by_an_iterator(rank, *, stages, micro_batches):
    def steps():
        coming = iter(range(micro_batches if rank else 0))
        for k in coming:
            yield (activation(rank - 1, k),)
            if k == 1:
                break
        for k in range(micro_batches):
            yield Task("F", rank, k)
            out = (activation(rank, k),) if rank + 1 < stages else ()
            k = next(coming, None)
            yield out + (() if k is None else (activation(rank - 1, k),))

    return [s if isinstance(s, Task) else Batch(s) for s in steps() if s]


# 5.2: wrong


def two_ahead_apart(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches, together=False)


def one_ahead_together(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches, ahead=1)


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


def without_batch_tuple(rank, *, stages, micro_batches):
    return [Batch(activation(rank, 0))]


def computes_backwards(rank, *, stages, micro_batches):
    return forward_program(rank, stages=stages, micro_batches=micro_batches)[::-1]


def never_ends(*arguments, **named):
    while True:
        time.sleep(0.01)


# 5.3: right


def pieces(seen, rank):
    inward = [at for transfer, at in seen.transfers if transfer.dst == rank]
    busy = [at for where, _, at in seen.tasks if where == rank]
    return inward, busy


def by_cuts(seen, rank):
    inward, busy = pieces(seen, rank)
    cuts = sorted({t for at in inward + busy for t in (at.begin, at.end)})
    total = 0.0
    for a, b in pairwise(cuts):
        inside = [any(s.begin <= a and b <= s.end for s in some) for some in (inward, busy)]
        total += b - a if inside == [True, False] else 0.0
    return total


def by_counting(seen, rank):
    """Sweep over begins and ends with two counters."""
    inward, busy = pieces(seen, rank)
    events = [(t, 0, step) for at in inward for t, step in ((at.begin, 1), (at.end, -1))]
    events += [(t, 1, step) for at in busy for t, step in ((at.begin, 1), (at.end, -1))]
    total, last, open_now = 0.0, 0.0, [0, 0]
    for t, kind, step in sorted(events):
        total += t - last if open_now[0] and not open_now[1] else 0.0
        open_now[kind] += step
        last = t
    return total


def by_difference_of_unions(seen, rank):
    """Length of all together less the length of the tasks."""

    def length(some):
        total, until = 0.0, float("-inf")
        for at in sorted(some, key=lambda at: at.begin):
            total += max(0.0, at.end - max(until, at.begin))
            until = max(until, at.end)
        return total

    inward, busy = pieces(seen, rank)
    return length(inward + busy) - length(busy)


# 5.3: wrong


def all_transfer_time(seen, rank):
    return float(sum(at.seconds for at in pieces(seen, rank)[0]))


def without_union(seen, rank):
    inward, busy = pieces(seen, rank)

    def hidden(at):
        return sum(max(0.0, min(at.end, b.end) - max(at.begin, b.begin)) for b in busy)

    return float(sum(at.seconds - hidden(at) for at in inward))


def both_directions(seen, rank):
    mine = [(t, at) for t, at in seen.transfers if rank in (t.src, t.dst)]
    both = type(seen)(
        seen.world_size, seen.tasks, tuple((activation(rank - 1, 0), at) for _, at in mine)
    )
    return by_cuts(both, rank)


def to_the_millisecond(seen, rank):
    return round(by_cuts(seen, rank), 3)


def hidden_by_anybody(seen, rank):
    tasks = tuple((rank, task, at) for _, task, at in seen.tasks)
    return by_cuts(type(seen)(seen.world_size, tasks, seen.transfers), rank)


def the_hidden_part(seen, rank):
    everything = type(seen)(seen.world_size, (), seen.transfers)
    return by_cuts(everything, rank) - by_cuts(seen, rank)


def union_only(seen, rank):
    return by_cuts(type(seen)(seen.world_size, (), seen.transfers), rank)


def the_other_way_round(seen, rank):
    inward, busy = pieces(seen, rank)
    cuts = sorted({t for at in inward + busy for t in (at.begin, at.end)})
    return float(
        sum(
            b - a
            for a, b in pairwise(cuts)
            if any(s.begin <= a and b <= s.end for s in busy)
            and not any(s.begin <= a and b <= s.end for s in inward)
        )
    )


def in_words(seen, rank):
    return f"{by_cuts(seen, rank):.3f} s"


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


def in_batches_of_one(wanted, use, *, src, like, credits):
    """Use P2POp and batch_isend_irecv."""

    def post(tag):
        buffer = torch.empty_like(like)
        return buffer, batch_isend_irecv([P2POp(irecv, buffer, src, tag=tag)])

    posted = {tag: post(tag) for tag in wanted[:credits]}
    for place, tag in enumerate(wanted):
        buffer, works = posted.pop(tag)
        for work in works:
            work.wait()
        use(tag, buffer)
        for later in wanted[place + credits : place + credits + 1]:
            posted[later] = post(later)


def by_asking(wanted, use, *, src, like, credits):
    """Ask is_completed until it is, then wait."""
    posted = {}
    for place, tag in enumerate(wanted):
        for later in wanted[place : place + credits]:
            if later not in posted:
                buffer = torch.empty_like(like)
                posted[later] = (buffer, dist.irecv(buffer, src=src, tag=later))
        buffer, work = posted[tag]
        for _ in range(50):
            if work.is_completed():
                break
            time.sleep(0.001)
        work.wait()
        use(tag, buffer)


# 5.4: wrong


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


def in_threads(wanted, use, *, src, like, credits):
    """Receive blocking, each in a thread; use whatever comes first."""

    def fetch(tag):
        buffer = torch.empty_like(like)
        recv(buffer, src, tag=tag)
        return tag, buffer

    with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
        for done in [pool.submit(fetch, tag) for tag in wanted][::-1]:
            use(*done.result())
