"""The checks of lesson 05: deadlocks and orders, exposed time, and a matching layer."""

import random
from collections.abc import Callable

import torch
import torch.distributed as dist

from labkit.comm.sharing import Period
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.pipeline_p2p.schedules import (
    SCHEDULES,
    Batch,
    Channel,
    InvalidProgram,
    Task,
    activation,
    check_programs,
    one_f_one_b,
    programs,
)
from labkit.lessons.pipeline_p2p.simulator import (
    Costs,
    StepTimeline,
    find_deadlock,
    simulate,
    simulate_programs,
    waits,
)
from labkit.measure.trace import covered


def check_find_cycle(find_cycle: Callable) -> None:
    """Judge 5.1: cycles in graphs of real programs and in drawn ones; none where there is none."""
    with checking.exercise("5.1", par="each edge of the graph looked at once") as verdict:
        _no_cycle(find_cycle, {}, name="an empty graph")
        diamond = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
        _no_cycle(find_cycle, diamond, name="a diamond")
        looked = _Counted(_ladder(rungs=40))
        _no_cycle(find_cycle, looked, name="forty diamonds in a row")
        for build in SCHEDULES.values():
            plan = build(stages=4, micro_batches=3)
            after = waits(programs(plan), channel=Channel.ORDERED)
            _no_cycle(find_cycle, after, name=plan.name)
        for name, after in _graphs_with_cycle():
            _judge_cycle(find_cycle(after), after=after, name=name)
        verdict.reached = f"{looked.count} look-ups for 121 nodes"


def _no_cycle(find_cycle: Callable, after: dict, *, name: str) -> None:
    got = find_cycle(after)
    if got != []:
        raise CheckFailed(
            f"{name}: [] (nothing waits in a circle)",
            repr(got)[:200],
            "meeting a node twice is not yet a cycle: two paths may lead to it. It is one "
            "only if the node is still on the path that you are walking",
        )


def _judge_cycle(cycle: list, *, after: dict, name: str) -> None:
    if not isinstance(cycle, list) or not cycle:
        raise CheckFailed(
            f"{name}: the nodes of a cycle",
            repr(cycle),
            "is every node a possible start? and may a cycle be longer than two?",
        )
    for node, before in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        if before not in after.get(node, ()):
            raise CheckFailed(
                f"{name}: each node waits for the next, the last for the first",
                f"{node} does not wait for {before} in {[str(n) for n in cycle]}",
                "the way *into* the cycle does not belong to it, and the order is from who waits "
                "to what it waits for",
            )


class _Counted(dict):
    """A graph that counts how often it is asked, and refuses to be asked for ever."""

    count = 0

    def __getitem__(self, key):
        self._look()
        return super().__getitem__(key)

    def get(self, key, default=None):
        self._look()
        return super().get(key, default)

    def _look(self) -> None:
        self.count += 1
        checking.at_most(
            self.count, 1000, what="look-ups in a graph of 121 nodes", unit="look-ups",
            meaning="you walk every path, and paths double with every rung: remember the nodes "
            "that turned out to be harmless",
        )  # fmt: skip


def _ladder(rungs: int) -> dict[str, list[str]]:
    """Make diamonds in a row: 2**rungs paths, no cycle."""
    graph: dict[str, list[str]] = {f"n{rungs}": []}
    for k in range(rungs):
        graph |= {f"n{k}": [f"l{k}", f"r{k}"], f"l{k}": [f"n{k + 1}"], f"r{k}": [f"n{k + 1}"]}
    return graph


def _graphs_with_cycle():
    yield "two that wait for each other", {"a": ["b"], "b": ["a"], "c": []}
    yield "one that waits for itself", {"a": [], "b": ["b"]}
    yield "a path into a ring", {0: [1], 1: [2], 2: [3], 3: [4], 4: [2]}
    generator = random.Random(5)
    for length in (3, 7):
        ring = {("ring", k): [("ring", (k + 1) % length)] for k in range(length)}
        tree = {("tree", k): [("tree", generator.randrange(k))] if k else [] for k in range(9)}
        yield f"a ring of {length} beside a tree", tree | ring
    for stages in (2, 4):
        plan = one_f_one_b(stages=stages, micro_batches=4)
        naive = programs(plan, batched=False)
        yield f"1F1B without batches, {stages} stages", waits(naive, channel=Channel.BLOCKING)


def check_inference_program(program: Callable) -> None:
    """Judge 5.2: forward passes through one ordered channel, as fast as without order."""
    with checking.exercise("5.2", par="1.15 times the time without any order") as verdict:
        worst = 0.0
        for stages, micro_batches in ((2, 4), (3, 7), (4, 8), (5, 6)):
            ranks = [
                tuple(program(rank, stages=stages, micro_batches=micro_batches))
                for rank in range(stages)
            ]
            worst = max(worst, _judge_forward(ranks, stages, micro_batches))
        checking.at_most(
            worst, 1.15, what="time over the time without order", unit="times",
            meaning="while a rank computes F_k, its queue should be moving F_(k+1) in and F_(k-1) "
            "out. A send of F_k in front of the receive of F_(k+1) blocks it",
        )  # fmt: skip
        verdict.reached = f"{worst:.2f} times"


def _judge_forward(ranks: list, stages: int, micro_batches: int) -> float:
    where = f"{stages} stages, {micro_batches} micro-batches"
    for rank, steps in enumerate(ranks):
        tasks = [step for step in steps if isinstance(step, Task)]
        wanted = [Task("F", rank, k) for k in range(micro_batches)]
        if tasks != wanted:
            raise CheckFailed(
                f"{where}: rank {rank} computes {', '.join(map(str, wanted))}",
                ", ".join(map(str, tasks)) or "nothing",
                "every rank computes each micro-batch once, in order",
            )
        _judge_availability(steps, rank, where)
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
            "two neighbours must take the transfers between them in the same order",
        )
    costs = Costs(forward=1.0, backward=2.0, nbytes=0.9, rate=1.0)
    free = simulate_programs(_plain(stages, micro_batches), costs, channel=Channel.TAGGED).seconds
    return simulate_programs(ranks, costs, channel=Channel.ORDERED).seconds / free


def _judge_availability(steps: tuple, rank: int, where: str) -> None:
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


def _plain(stages: int, micro_batches: int) -> list[tuple]:
    ranks = []
    for rank in range(stages):
        steps: list = []
        for k in range(micro_batches):
            steps += [Batch((activation(rank - 1, k),))] if rank else []
            steps.append(Task("F", rank, k))
            steps += [Batch((activation(rank, k),))] if rank < stages - 1 else []
        ranks.append(tuple(steps))
    return ranks


def check_exposed(exposed: Callable) -> None:
    """Judge 5.3: seconds in which a rank only waits for a transfer to it."""
    with checking.exercise("5.3", par="exact") as verdict:
        f, t = Task("F", 1, 0), activation(0, 0)
        other = activation(1, 0)
        hand = [
            ("a transfer beside no task", [], [(t, 0.0, 2.0)], 2.0, ""),
            ("a transfer hidden by a task", [(1, f, 0.0, 3.0)], [(t, 1.0, 2.0)], 0.0,
             "time in which the rank computes is not exposed"),
            ("half hidden", [(1, f, 1.0, 3.0)], [(t, 0.0, 2.0)], 1.0,
             "only the part of the transfer outside of the rank's tasks counts"),
            ("a task in its middle", [(1, f, 1.0, 2.0)], [(t, 0.0, 4.0)], 3.0,
             "a task can cut a transfer into two exposed pieces"),
            ("two at once", [], [(t, 0.0, 2.0), (activation(0, 1), 1.0, 3.0)], 3.0,
             "two transfers at the same time make the rank wait once: take their union"),
            ("what this rank sends", [], [(other, 0.0, 2.0)], 0.0,
             "a rank waits for what comes to it; what it sends travels without it"),
            ("another rank's task", [(0, Task("F", 0, 0), 0.0, 2.0)], [(t, 0.0, 2.0)], 2.0,
             "only the rank's own tasks hide its transfers"),
        ]  # fmt: skip
        for name, tasks, transfers, expected, meaning in hand:
            seen = StepTimeline(
                3,
                tuple((rank, task, Period(a, b)) for rank, task, a, b in tasks),
                tuple((transfer, Period(a, b)) for transfer, a, b in transfers),
            )
            _same_seconds(exposed(seen, 1), expected, what=name, meaning=meaning)
        costs = Costs(forward=1.0, backward=2.0, nbytes=0.7, rate=1.0)
        for channel in (Channel.ORDERED, Channel.TAGGED):
            seen = simulate(one_f_one_b(stages=4, micro_batches=5), costs, channel=channel)
            for rank in range(4):
                _same_seconds(
                    exposed(seen, rank), _exposed(seen, rank),
                    what=f"1F1B, {channel.value}, rank {rank}",
                    meaning="right on small cases: check how you treat many intervals that touch",
                )  # fmt: skip
        verdict.reached = "all cases"


def _same_seconds(got: object, expected: float, *, what: str, meaning: str) -> None:
    if not isinstance(got, int | float) or abs(got - expected) > 1e-9:
        raise CheckFailed(f"{what}: {expected:g} s exposed", f"{got!r}", meaning or "see the task")


def _exposed(seen: StepTimeline, rank: int) -> float:
    inward = [(at.begin, at.end) for transfer, at in seen.transfers if transfer.dst == rank]
    busy = [(at.begin, at.end) for where, _, at in seen.tasks if where == rank]
    return covered(inward + busy) - covered(busy)


def check_consume(consume: Callable) -> None:
    """Judge 5.4 on real ranks: values in order of use, tags, and buffers posted early, bounded."""
    with checking.exercise(
        "5.4", par="as many buffers posted as there are credits, from the start to the end"
    ) as verdict:
        for credits, count in ((1, 2), (2, 7), (3, 5), (3, 1)):
            used, most, least, left = checking.on_ranks(
                _sender_and_consumer, consume, count, credits, world_size=2, timeout=3.0
            )[1]
            where = f"{count} messages, {credits} credits"
            expected = [(tag, float(tag)) for tag in _wanted(count)]
            if used != expected:
                raise CheckFailed(
                    f"{where}: used {expected}",
                    repr(used),
                    "each message has a tag: give it to irecv. And `use` wants them in the "
                    "order of `wanted`, whatever arrives first",
                )
            if most > credits:
                raise CheckFailed(
                    f"{where}: at most {credits} buffers posted and not yet used",
                    f"{most}",
                    "every posted buffer is memory that a sender may fill: post the next one "
                    "only when you have used one",
                )
            if least < min(credits, count):
                raise CheckFailed(
                    f"{where}: {min(credits, count)} buffers posted before the first wait",
                    f"{least}",
                    "a receive posted after the wait for the one before moves nothing beside "
                    "the computing: post `credits` of them first",
                )
            if left:
                raise CheckFailed(
                    f"{where}: every irecv waited for", f"{left} were not",
                    "a buffer without a wait may not have its bytes yet",
                )  # fmt: skip
        verdict.reached = "that"


def _wanted(count: int) -> list[int]:
    """Make tags that are neither consecutive nor sorted."""
    return [(5 * k + 3) % 11 + 1 for k in range(count)]


def _sender_and_consumer(consume: Callable, count: int, credits: int) -> tuple | None:
    tags = _wanted(count)
    if dist.get_rank() == 0:
        # The sender's order is not the receiver's: backwards, within what its credits allow.
        order = [t for k in range(0, count, credits) for t in tags[k : k + credits][::-1]]
        works = [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in order]
        for work in works:
            work.wait()
        return None
    watch = _Watch()
    used: list[tuple[int, float]] = []

    def use(tag: int, tensor: torch.Tensor) -> None:
        used.append((tag, tensor[0].item()))
        watch.open -= 1

    with watch:
        consume(tags, use, src=0, like=torch.empty(3), credits=credits)
    return used, watch.most, watch.before_first_wait, watch.posted - watch.waited


class _Watch:
    """Count the receives that are posted and not yet used, by standing in for dist.irecv."""

    def __init__(self) -> None:
        self.open = self.most = self.posted = self.waited = self.before_first_wait = 0

    def __enter__(self) -> "_Watch":
        self._irecv = dist.irecv
        dist.irecv = self._post
        return self

    def __exit__(self, *exception: object) -> None:
        dist.irecv = self._irecv

    def _post(self, *args, **named):
        self.posted += 1
        self.open += 1
        self.most = max(self.most, self.open)
        return _Waited(self, self._irecv(*args, **named))


class _Waited:
    """A work that tells when it is waited for."""

    def __init__(self, watch: _Watch, work) -> None:
        self._watch, self._work = watch, work

    def wait(self, *args):
        if not self._watch.waited:
            self._watch.before_first_wait = self._watch.posted
        self._watch.waited += 1
        return self._work.wait(*args)
