"""The checks of lesson 05: deadlocks and orders, exposed time, and a matching layer."""

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from course import checking
from course.checking import CheckFailed
from course.comm.sharing import Period
from course.lessons.pipeline_p2p import simulator
from course.lessons.pipeline_p2p.schedules import (
    SCHEDULES,
    Batch,
    Channel,
    InvalidProgram,
    Program,
    Task,
    Transfer,
    activation,
    check_programs,
    one_f_one_b,
    programs,
)
from course.lessons.pipeline_p2p.simulator import (
    Costs,
    StepTimeline,
    find_deadlock,
    simulate,
    simulate_programs,
    waits,
)
from labkit.measure.calls import ANY_SOURCE, Call, CallLog
from labkit.measure.trace import covered
from labkit.ranks.errors import LaunchTimeout
from labkit.ranks.launcher import launch

PATIENCE = 10.0
"""Seconds for all that one call of `_in_time` asks of a function; a right one needs a tenth."""


def _in_time(program: Callable, *args: Any, meaning: str) -> Any:
    """Run a program in a process of its own, which can be ended: a kernel cannot."""
    try:
        return launch(program, *args, world_size=1, timeout=PATIENCE)[0]
    except LaunchTimeout as hang:
        line = hang.case.ranks[0].line
        raise CheckFailed(
            f"an answer within {PATIENCE:g} s",
            f"none yet; it was in `{line.source}`" if line else "none yet",
            meaning,
        ) from None


# 5.1


def check_find_cycle(find_cycle: Callable) -> None:
    """Judge 5.1: cycles in graphs of real programs and in drawn ones; none where there is none."""
    every_path = (
        "you walk every path, and paths double with every rung: remember the nodes that turned out "
        "to be harmless"
    )
    with checking.exercise("5.1", par="every edge of the graph looked at once") as verdict:
        graphs = {**_graphs_without_cycle(), **_graphs_with_cycle()}
        found = _in_time(_find_all, find_cycle, graphs, meaning=every_path)
        for name, got in found.items():
            _judge_cycle(got, after=graphs[name], name=name)
        got, looks = _in_time(_count, find_cycle, _ladder(40), meaning=every_path)
        _judge_cycle(got, after=_ladder(40), name="forty diamonds in a row")
        checking.at_most(
            looks, 3.0, what="looks at each edge, on average", unit="looks",
            meaning="each start walks again where an earlier one found nothing: what is harmless "
            "stays harmless; remember it over all starts",
        )  # fmt: skip
        _in_time(
            find_cycle, _layers(60, 100),
            meaning="each start walks again where an earlier one found nothing: remember, over all "
            "starts, the nodes that turned out to be harmless",
        )  # fmt: skip
        verdict.reached = f"{looks:.2f} looks at each edge"


def _find_all(find_cycle: Callable, graphs: dict) -> dict:
    """Let the answer find the cycles, and look whether labkit's own function does the work."""
    ours = simulator.find_cycle.__code__

    def watch(frame, event, argument) -> None:
        if event == "call" and frame.f_code is ours:
            raise CheckFailed(
                "a search of your own",
                "a call of labkit's find_cycle",
                "that is the function which the exercise asks you to write",
            )

    sys.setprofile(watch)
    try:
        return {name: find_cycle(after) for name, after in graphs.items()}
    finally:
        sys.setprofile(None)


def _count(find_cycle: Callable, after: dict) -> tuple[Any, float]:
    edges = sum(map(len, after.values()))
    _Looked.count = 0
    got = find_cycle({node: _Looked(befores) for node, befores in after.items()})
    return got, _Looked.count / edges


class _Looked(list):
    """What a node waits for; counts how many of them are looked at, also through a copy."""

    count = 0

    def __iter__(self):
        for item in super().__iter__():
            _Looked.count += 1
            yield item

    def __getitem__(self, key):
        _Looked.count += 1
        return super().__getitem__(key)


def _judge_cycle(got: object, *, after: dict, name: str) -> None:
    cycle = checking.answer(got, list, what=f"{name}: the nodes of a cycle, or []")
    has_one = bool(simulator.find_cycle(after))
    if not cycle and has_one:
        raise CheckFailed(
            f"{name}: the nodes of a cycle",
            "[]",
            "is every node a possible start? may a cycle be longer than two, or have one node?",
        )
    if cycle and not has_one:
        raise CheckFailed(
            f"{name}: [] (nothing waits in a circle)",
            str([str(node) for node in cycle])[:200],
            "meeting a node twice is not yet a cycle: two paths may lead to it. It is one "
            "only if the node is still on the path that you are walking",
        )
    if not _is_cycle(cycle, after):
        inside = [cycle[i:] for i in range(1, len(cycle))] + [cycle[:i] for i in range(len(cycle))]
        if _is_cycle(cycle[::-1], after):
            meaning = "the order is from who waits to what it waits for; yours is the other one"
        elif len(cycle) > 1 and cycle[0] == cycle[-1]:
            meaning = "the first node stands at the end again: name each node of the cycle once"
        elif any(_is_cycle(part, after) for part in inside if part):
            meaning = "the way *into* the cycle, or out of it, does not belong to it"
        else:
            meaning = "these nodes do not wait for each other in this order"
        raise CheckFailed(
            f"{name}: each node waits for the next, the last for the first",
            str([str(node) for node in cycle]),
            meaning,
        )


def _is_cycle(cycle: Sequence, after: dict) -> bool:
    if len(set(cycle)) < len(cycle):
        return False
    pairs = zip(cycle, [*cycle[1:], *cycle[:1]], strict=True)
    return all(before in after.get(node, ()) for node, before in pairs)


def _ladder(rungs: int) -> dict[str, list[str]]:
    """Make diamonds in a row: 2**rungs paths, no cycle."""
    graph: dict[str, list[str]] = {}
    for k in range(rungs):
        graph |= {f"n{k}": [f"l{k}", f"r{k}"], f"l{k}": [f"n{k + 1}"], f"r{k}": [f"n{k + 1}"]}
    return graph | {f"n{rungs}": []}


def _layers(count: int, width: int) -> dict[int, list[int]]:
    """Make layers of nodes that each wait for ten of the next: wide, not deep, and no cycle.

    What waits for nothing comes first, so that whoever forgets walks again from nearly every node.
    """
    return {
        layer * width + k: [(layer + 1) * width + (7 * k + step) % width for step in range(10)]
        if layer < count - 1
        else []
        for layer in reversed(range(count))
        for k in range(width)
    }


def _graphs_without_cycle() -> dict[str, dict]:
    plans = [build(stages=4, micro_batches=3) for build in SCHEDULES.values()]
    return {
        "an empty graph": {},
        "a diamond": {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []},
        **{plan.name: waits(programs(plan), channel=Channel.ORDERED) for plan in plans},
    }


def _graphs_with_cycle() -> dict[str, dict]:
    graphs: dict[str, dict] = {
        "two that wait for each other": {"a": ["b"], "b": ["a"], "c": []},
        "one that waits for itself": {"a": [], "b": ["b"]},
        "a path into a ring": {0: [1], 1: [2], 2: [3], 3: [4], 4: [2]},
    }
    generator = random.Random(5)
    for length in (3, 7):
        ring = {("ring", k): [("ring", (k + 1) % length)] for k in range(length)}
        tree = {("tree", k): [("tree", generator.randrange(k))] if k else [] for k in range(9)}
        graphs[f"a ring of {length} beside a tree"] = tree | ring
    for stages in (2, 4):
        naive = programs(one_f_one_b(stages=stages, micro_batches=4), batched=False)
        graphs[f"1F1B without batches, {stages} stages"] = waits(naive, channel=Channel.BLOCKING)
    early = programs(SCHEDULES["gpipe"](stages=4, micro_batches=4), ahead=1)
    graphs["GPipe with receives one task early"] = waits(early, channel=Channel.ORDERED)
    return graphs


# 5.2

PLANS = ((2, 4), (3, 7), (4, 8), (5, 6), (3, 2), (2, 1), (1, 3))
"""Stages and micro-batches."""


def check_inference_program(program: Callable) -> None:
    """Judge 5.2: forward passes through one ordered channel, as fast as without order."""
    with checking.exercise("5.2", par="at most 1.15 times the time without any order") as verdict:
        written = _in_time(
            lambda: [[program(r, stages=s, micro_batches=m) for r in range(s)] for s, m in PLANS],
            meaning="a loop in your function does not end",
        )
        worst = 0.0
        for (stages, micro_batches), ranks in zip(PLANS, written, strict=True):
            where = f"{stages} stages, {micro_batches} micro-batches"
            worst = max(worst, _judge_programs(ranks, micro_batches, where))
        verdict.reached = f"{worst:.2f} times"


def _judge_programs(ranks: list, micro_batches: int, where: str) -> float:
    for rank, steps in enumerate(ranks):
        checking.answer(steps, (list, tuple), what=f"{where}: the steps of rank {rank}")
        _judge_steps(steps, rank, micro_batches, where)
    ranks = [tuple(steps) for steps in ranks]
    try:
        check_programs(ranks)
    except InvalidProgram as problem:
        raise CheckFailed(
            f"{where}: every send has its receive",
            str(problem)[:300],
            "rank 0 receives nothing, the last rank sends nothing, and both ends of a transfer "
            "name it in the same way",
        ) from None
    if words := find_deadlock(ranks, channel=Channel.ORDERED):
        raise CheckFailed(
            f"{where}: a program that ends",
            f"a deadlock:\n{words}",
            "two neighbours must take the transfers between them in the same order, and a receive "
            "that stands too far ahead holds up the send that its data depend on",
        )
    costs = Costs(forward=1.0, backward=2.0, nbytes=0.9, rate=1.0)
    plain = _receive_compute_send(len(ranks), micro_batches)
    free = simulate_programs(plain, costs, channel=Channel.TAGGED).seconds
    ratio = simulate_programs(ranks, costs, channel=Channel.ORDERED).seconds / free
    checking.at_most(
        ratio, 1.15, what=f"{where}: time over the time without order", unit="times",
        meaning=_why_slow(ranks),
    )  # fmt: skip
    return ratio


def _judge_steps(steps: Sequence, rank: int, micro_batches: int, where: str) -> None:
    for step in steps:
        if not isinstance(step, Task | Batch) or (
            isinstance(step, Batch) and not all(isinstance(t, Transfer) for t in step.transfers)
        ):
            raise CheckFailed(
                f"{where}: steps of rank {rank}: Task or Batch((transfer, ...))",
                repr(step)[:200],
                "a transfer goes into a batch, also a single one: Batch((a,))",
            )
    tasks = [step for step in steps if isinstance(step, Task)]
    wanted = [Task("F", rank, k) for k in range(micro_batches)]
    if tasks != wanted:
        raise CheckFailed(
            f"{where}: rank {rank} computes {', '.join(map(str, wanted))}",
            ", ".join(map(str, tasks)) or "nothing",
            "every rank computes each micro-batch of its own stage once, in order",
        )
    arrived, made = set(), set()
    for step in steps:
        if isinstance(step, Batch):
            for transfer in step.transfers:
                if transfer.dst == rank:
                    arrived.add(transfer.use)
                elif transfer.task not in made:
                    raise CheckFailed(
                        f"{where}: rank {rank} sends {transfer} after it computed it",
                        "the send stands before its task in the program",
                        "a batch waits for what it sends; put it after the task",
                    )
        elif rank and step not in arrived:
            raise CheckFailed(
                f"{where}: rank {rank} receives the input of {step} before it computes it",
                "no receive for it stands before the task",
                "post the receive earlier in the program, by one or two tasks",
            )
        else:
            made.add(step)


def _why_slow(ranks: Sequence[Program]) -> str:
    """Say what holds up programs that are right and slow, from where their receives stand."""
    leads, together = [], False
    for rank, steps in enumerate(ranks):
        computed = 0
        for step in steps:
            if isinstance(step, Task):
                computed += 1
                continue
            coming = [t.use.micro_batch for t in step.transfers if t.dst == rank]
            leads += [k - computed for k in coming if k > 1]
            together |= 0 < len(coming) < len(step.transfers)
    if min(leads, default=9) == 0 and not together:
        return (
            "each receive stands right before the task that needs it, behind the send of the task "
            "before, so nothing moves while the rank computes: queue it earlier, in front of a "
            "task that does not need it"
        )
    if min(leads, default=9) == 0:
        return (
            "one batch with the send of F_k and the receive of F_(k+1) starts only when F_k is "
            "computed, and then F_(k+1) waits for it: receive one task earlier still"
        )
    if not together:
        return (
            "a send and a receive stand one after the other: started in one batch they run at "
            "once, since a card sends and receives at the same time"
        )
    return (
        "while a rank computes F_k, its queue should move F_(k+1) in and F_(k-1) out; find the "
        "transfer that stands behind one which cannot start yet"
    )


def _receive_compute_send(stages: int, micro_batches: int) -> list[Program]:
    def of(rank: int, k: int) -> list:
        into = [Batch((activation(rank - 1, k),))] if rank else []
        out = [Batch((activation(rank, k),))] if rank < stages - 1 else []
        return [*into, Task("F", rank, k), *out]

    return [tuple(s for k in range(micro_batches) for s in of(r, k)) for r in range(stages)]


# 5.3

TELLING = -1
"""The place of the drawn timeline on which every usual mistake gives a figure of its own."""
NO_MISTAKE = (
    "look at each stretch between neighbouring begins and ends: is something on its way to the "
    "rank, and does the rank not compute?"
)


def check_exposed(exposed: Callable) -> None:
    """Judge 5.3: seconds in which a rank only waits for a transfer to it."""
    with checking.exercise("5.3", par="exact") as verdict:
        cases = [*_played_timelines(), *_drawn_timelines()]
        answers = _in_time(
            lambda: [exposed(seen, rank) for _, seen, rank in cases],
            meaning="hundreds of intervals need no more than milliseconds: a loop does not end, or "
            "time is walked through in small steps",
        )  # fmt: skip
        mistakes = _mistakes(*cases[TELLING][1:])
        meaning = checking.diagnose(answers[TELLING], mistakes, otherwise=NO_MISTAKE)
        for (name, seen, rank), got in zip(cases, answers, strict=True):
            seconds = checking.answer(got, float, what=f"{name}: exposed seconds")
            expected = _outside(_coming(seen, rank), _own(seen, rank))
            if abs(seconds - expected) > 1e-9:
                if abs(seconds - expected) < 1e-3:
                    meaning = "it must be exact: do not round"
                raise CheckFailed(f"{name}: {expected!r} s exposed", repr(got), meaning)
        verdict.reached = f"all of {len(cases)} cases"


def _drawn_timelines() -> list[tuple[str, StepTimeline, int]]:
    f, b, t = Task("F", 1, 0), Task("B", 1, 0), activation(0, 0)
    later, out, elsewhere = activation(0, 1), activation(1, 0), Task("F", 0, 0)
    drawn = [
        ("a transfer beside no task", [], [(t, 0.0, 2.0)]),
        ("a transfer hidden by a task", [(1, f, 0.0, 3.0)], [(t, 1.0, 2.0)]),
        ("half hidden", [(1, f, 1.0, 3.0)], [(t, 0.0, 2.0)]),
        ("a task in its middle", [(1, f, 1.0, 2.0)], [(t, 0.0, 4.0)]),
        ("two at once", [], [(t, 0.0, 2.0), (later, 1.0, 3.0)]),
        ("one within another", [(1, f, 2.0, 3.0)], [(t, 0.0, 5.0), (later, 1.0, 4.0)]),
        ("what this rank sends", [], [(out, 0.0, 2.0)]),
        ("another rank's task", [(0, elsewhere, 0.0, 2.0)], [(t, 0.0, 2.0)]),
        ("two tasks that touch", [(1, f, 1.0, 2.0), (1, b, 2.0, 3.0)], [(t, 0.5, 3.5)]),
        ("thirds of a second", [(1, f, 1 / 3, 1.0)], [(t, 0.0, 2 / 3)]),
        ("nothing at all", [], []),
        (
            "all of these at once",
            [(1, f, 3.0, 7.0), (0, elsewhere, 0.0, 0.7)],
            [(t, 0.0, 4.0), (later, 1.0, 5.5), (out, 6.0, 8.0)],
        ),
    ]
    timelines = []
    for name, tasks, transfers in drawn:
        ran = tuple((rank, task, Period(begin, end)) for rank, task, begin, end in tasks)
        moved = tuple((transfer, Period(begin, end)) for transfer, begin, end in transfers)
        timelines.append((name, StepTimeline(3, ran, moved), 1))
    return timelines


def _played_timelines() -> list[tuple[str, StepTimeline, int]]:
    costs = Costs(forward=1.0, backward=2.0, nbytes=0.7071, rate=1.0)
    plan, played = one_f_one_b(stages=4, micro_batches=5), []
    for channel in (Channel.ORDERED, Channel.TAGGED):
        seen = simulate(plan, costs, channel=channel)
        played += [(f"1F1B, {channel.value}, rank {rank}", seen, rank) for rank in range(4)]
    return played


Intervals = list[tuple[float, float]]


def _outside(these: Intervals, others: Intervals) -> float:
    return covered(these + others) - covered(others)


def _coming(seen: StepTimeline, rank: int) -> Intervals:
    return [(at.begin, at.end) for t, at in seen.transfers if t.dst == rank]


def _own(seen: StepTimeline, rank: int) -> Intervals:
    return [(at.begin, at.end) for where, _, at in seen.tasks if where == rank]


def _mistakes(seen: StepTimeline, rank: int) -> dict[str, float]:
    """Return what the usual mistakes give for the telling timeline: each another figure."""
    coming, own = _coming(seen, rank), _own(seen, rank)
    both = [(at.begin, at.end) for t, at in seen.transfers if rank in (t.src, t.dst)]
    every = [(at.begin, at.end) for _, _, at in seen.tasks]
    return {
        "two transfers at the same time make the rank wait once: take their union": sum(
            _outside([one], own) for one in coming
        ),
        "time in which the rank computes is not exposed": covered(coming),
        "time in which the rank computes is not exposed; and overlapping transfers count once": sum(
            end - begin for begin, end in coming
        ),
        "a rank waits for what comes to it; what it sends travels without it": _outside(both, own),
        "only the rank's own tasks hide its transfers": _outside(coming, every),
        "that is the computing which no transfer accompanies: the other way round": _outside(
            own, coming
        ),
        "that is the hidden part; asked is the exposed one": (
            covered(coming) + covered(own) - covered(coming + own)
        ),
    }


# 5.4

CONSUMER, SENDER = 1, 2
_KEPT: list = []  # what is under way stays, until the rank's process ends


def check_consume(consume: Callable) -> None:
    """Judge 5.4 on real ranks: values in order of use, tags, and buffers posted early, bounded."""
    par = "as many buffers posted as there are credits, from the start to the end"
    with checking.exercise("5.4", par=par) as verdict:
        for credits, count in ((1, 3), (2, 7), (3, 5), (4, 9), (3, 1), (2, 0)):
            seen = checking.on_ranks(_exchange, consume, count, credits, world_size=3)[CONSUMER]
            _judge_consumer(seen, _wanted(count), credits)
        verdict.reached = "that"


def _wanted(count: int) -> list[int]:
    """Make tags that are neither consecutive nor sorted."""
    return [(5 * k + 3) % 11 + 1 for k in range(count)]


def _like() -> torch.Tensor:
    return torch.empty(2, 3000, dtype=torch.int32)


@dataclass(slots=True)
class _Seen:
    """What the consumer did."""

    used: list[tuple[int, Any, tuple[Call, ...]]]
    """Per use: the tag, what the tensor held (a number, or words), and the calls so far."""
    calls: tuple[Call, ...] = ()
    hangs: bool = False
    error: Exception | None = None


def _exchange(consume: Callable, count: int, credits: int) -> _Seen | None:
    tags = _wanted(count)
    if dist.get_rank() == CONSUMER:
        return _consumer(consume, tags, credits)
    # The sender's order is not the receiver's: backwards, within what its credits allow. The other
    # rank sends with the same tags what nobody shall take.
    order = [t for k in range(0, count, credits) for t in tags[k : k + credits][::-1]]
    sign = 1 if dist.get_rank() == SENDER else -1
    time.sleep(0.05)  # late: a buffer that was not waited for is still empty
    for tag in order:
        _KEPT.append(torch.full_like(_like(), sign * tag))
        _KEPT.append(dist.isend(_KEPT[-1], CONSUMER, tag=tag))
    return None


def _consumer(consume: Callable, tags: list[int], credits: int) -> _Seen:
    seen, log = _Seen([]), CallLog()

    def use(tag: int, tensor: torch.Tensor) -> None:
        calls = tuple(log.calls)
        held = "no tensor" if not isinstance(tensor, torch.Tensor) else tensor.clone()
        if isinstance(held, torch.Tensor):
            values = held.unique().tolist()
            held = values[0] if len(values) == 1 and held.shape == _like().shape else "a mixture"
        seen.used.append((tag, held, calls))

    def run() -> None:
        try:
            with log:
                consume(list(tags), use, src=SENDER, like=_like(), credits=credits)
        except Exception as error:
            seen.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2.5)
    return replace(seen, calls=tuple(log.calls), hangs=thread.is_alive())


def _judge_consumer(seen: _Seen, wanted: list[int], credits: int) -> None:
    if seen.error is not None:
        raise seen.error
    where = f"{len(wanted)} messages, {credits} credits"
    _judge_calls(seen, wanted, where)
    used = [(tag, held) for tag, held, _ in seen.used]
    if seen.hangs:
        raise CheckFailed(
            f"{where}: all messages used within 2.5 s",
            f"{len(used)} used; it waits for ever",
            "before each wait, the message that you wait for must have its own posted buffer, and "
            "the sender only sends into buffers that are posted",
        )
    if used != [(tag, tag) for tag in wanted]:
        raise CheckFailed(
            f"{where}: used {[(tag, tag) for tag in wanted]} (tag, what the tensor holds)",
            repr(used),
            "`use` wants the messages in the order of `wanted`, each with its own tensor, whatever "
            "arrives first",
        )
    _judge_credits(seen, wanted, credits, where)


def _judge_calls(seen: _Seen, wanted: list[int], where: str) -> None:
    """Look at single calls: their kind, source, type, tag and buffer."""
    for call in seen.calls:
        if call.kind != "recv":
            raise CheckFailed(
                f"{where}: receives only",
                f"a call of {call.kind}",
                "the other ranks do not make this call: it would wait for them for ever",
            )
        if call.peer != SENDER:
            source = "any rank" if call.peer == ANY_SOURCE else f"rank {call.peer}"
            raise CheckFailed(
                f"{where}: receives from rank {SENDER} (src)",
                f"a receive from {source}",
                "others may send with the same tags: give irecv the source",
            )
        if call.dtype != _like().dtype or call.nbytes != _like().nbytes:
            raise CheckFailed(
                f"{where}: buffers like `like`: {_like().dtype}, {_like().nbytes} bytes",
                f"{call.dtype}, {call.nbytes} bytes",
                "the buffer must have the message's shape and type: torch.empty_like(like)",
            )
        if call.tag not in wanted:
            raise CheckFailed(
                f"{where}: receives with the tags of `wanted`",
                f"tag {call.tag}",
                "each message has its own tag: give it to irecv; without one it is 0",
            )
        if call.touched:
            again = call.touched.startswith("c10d")
            raise CheckFailed(
                f"{where}: a buffer of its own for each receive, left alone until its wait",
                f"the buffer of tag {call.tag} was touched by {call.touched} before",
                "two receives share one buffer: whatever comes last overwrites it"
                if again
                else "until its wait has ended a buffer belongs to the receive",
            )


def _judge_credits(seen: _Seen, wanted: list[int], credits: int, where: str) -> None:
    """Look at when buffers were posted and waited for."""
    for place, (tag, _, calls) in enumerate(seen.used):
        posted = len(calls)
        if posted - place > credits:
            raise CheckFailed(
                f"{where}: at most {credits} buffers posted and not yet used",
                f"{posted - place}",
                "every posted buffer is memory that a sender may fill: post the next one "
                "only when you have used one",
            )
        waited_at = next(call.waited for call in calls if call.tag == tag)
        if waited_at is None:
            raise CheckFailed(
                f"{where}: a wait on the receive of tag {tag} before its use",
                "none",
                "a buffer without a wait may not have its bytes yet",
            )
        ready = sum(call.at < waited_at for call in calls)
        if ready < min(place + credits, len(wanted)):
            raise CheckFailed(
                f"{where}: {min(credits, len(wanted) - place)} buffers posted "
                f"{'before the first wait' if place == 0 else f'when message {place + 1} is used'}",
                f"{ready - place}",
                "a receive that is posted after the wait for the one before moves nothing beside "
                "the computing: post `credits` of them first"
                if place == 0
                else "you let the buffers run empty before you post again: post one after each use",
            )
        blocking = [call for call in calls if call.waited is not None]
        early = [call for call in blocking if call.waited_by != "is_completed"]
        if len(early) > place + 1:
            raise CheckFailed(
                f"{where}: message {place + 1} used as soon as it is there",
                f"{len(early)} messages were waited for before",
                "you wait for messages that you do not need yet, and compute nothing meanwhile: "
                "wait for one, use it, then wait for the next",
            )
    if left := [call.tag for call in seen.calls if call.waited is None]:
        raise CheckFailed(
            f"{where}: every irecv waited for",
            f"not those of tags {left}",
            "a buffer without a wait may not have its bytes yet",
        )
