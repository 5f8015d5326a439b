"""Checks of lesson 2: a trace, a cap, hooks that overlap, a program to repair, two boards."""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from course.checks import boards, checking
from course.checks.checking import hold
from course.checks.memory import BufferCall, BufferLog
from course.checks.trial import Case, Ran, Trial
from course.comm import buckets
from course.lessons.gradient_all_reduce import evidence

TRACE = (
    (31, 12, 9, 40, 6, 5),
    (1, 10, 2, 60, 5, 5),
    (36, 2, 12, 42, 8, 4),
    (40, 13, 14, 10, 2, 3),
)
"""Milliseconds: ``TRACE[rank][call]``; made so that each of the usual short cuts errs."""
READING: Sequence[checking.Asked] = (
    (
        "the straggler",
        1,
        {
            "the rank with the largest timers waits most: the first victim, not the cause": 2,
            "neither the smallest total nor being last most *often* decides: weigh each call": 3,
        },
        "in each call the last rank has the smallest timer; add up, by rank, what it cost",
    ),
    (
        "milliseconds that moved bytes",
        20,
        {
            "those are the straggler's own timers, with its waiting in the calls where another "
            "one was late": 83,
        },
        "moving begins when the last rank arrives: the smallest timer of each call, summed",
    ),
    (
        "milliseconds that the straggler alone cost",
        37,
        {
            "those are the second smallest timers themselves: the bytes would have moved in any "
            "case, so subtract the smallest": 40,
            "that is what all ranks cost together: only the calls in which yours was last": 79,
        },
        "without the last rank the next to last decides: the second smallest timer minus the "
        "smallest, in the calls where yours was last",
    ),
)
"""What exercise 2.1 asks of the trace."""


def check_reading(reading: Callable[[], tuple[int, float, float]]) -> None:
    """Judge exercise 2.1: three figures from a trace of several late ranks."""
    with checking.exercise("2.1", reading, par="the straggler, the transfer and the loss"):
        checking.figures(checking.ask(reading), READING)


LAYERS = (
    (6, 12), (1, 20), (1, 32), (2, 44), (1, 56), (1, 68), (1, 80), (1, 90), (0.5, 100),
)  # fmt: skip
"""MB of each layer's gradients, and ms after the begin of backward at which they are complete."""
ALPHA, BETA = 8, 5
"""An all_reduce of S MB takes ALPHA + BETA * S ms; the wire carries one after the other."""
CAPS = (1, 2, 3, 4, 8, None)
"""MB; None: one bucket for all."""
OTHER_CAPS = {
    2: "six calls: follow the wire to the end, it is still busy with earlier buckets when the last "
    "one is ready",
    4: "the last bucket is small, but the one before is full only at 90 ms, and the wire is busy "
    "with it for 18 ms after backward",
}
EXPOSED: checking.Asked = (
    "ms exposed",
    24.5,
    {
        "the wire is not always busy before 100 ms: follow it bucket by bucket": 12.5,
        "that is all the time on the wire; what backward hides does not count": 112.5,
        "that is when the last bucket ends; backward ended at 100 ms": 124.5,
    },
    "bucket by bucket: when is the wire free?",
)


def exposed(cap: float | None) -> float:
    """Return the ms by which the last bucket of exercise 2.2 ends after backward."""
    plan: list[list[tuple[float, float]]] = [[]]
    for layer in LAYERS:
        held = sum(megabytes for megabytes, _ in plan[-1])
        if plan[-1] and cap is not None and held + layer[0] > cap:
            plan.append([])
        plan[-1].append(layer)
    free = 0.0
    for bucket in plan:
        leaves = max(free, bucket[-1][1])
        free = leaves + ALPHA + BETA * sum(megabytes for megabytes, _ in bucket)
    return free - LAYERS[-1][1]


def check_cap(best: Callable[[], tuple[float | None, float]]) -> None:
    """Judge exercise 2.2: the cap that leaves least to move when backward ends, and how much."""
    with checking.exercise("2.2", best, par="the cap, and the ms that stay exposed") as verdict:
        pair = checking.answer(checking.ask(best), (tuple, list), what="(cap, ms)")
        hold(len(pair) == 2, "(cap, ms)", pair, "two figures are asked, in this order")
        no_cap = str(pair[0]).strip().lower() in ("none", "no cap")
        cap = None if no_cap else checking.number(pair[0], what="the cap, in MB")
        hold(cap in CAPS, f"one of {CAPS}", cap, "the caps to choose from are in MB")
        hold(
            cap == 3,
            "the cap that leaves least exposed",
            f"{pair[0]}: {exposed(cap):g} ms are left; another cap leaves less",
            OTHER_CAPS.get(cap, "few calls leave late, and each of many pays alpha"),
        )
        checking.figures(pair[1:], [EXPOSED])
        verdict.reached = "both"


STEPS = 3
HANG = (
    "ranks wait for each other in different all_reduces: start each in the hook itself, in the "
    "thread of backward, so that all ranks have one order"
)
RAISES = {
    "'works'": "a name that a function assigns is its own: `works = []` in finish() is another "
    "list than that of `attach`. Empty that one, works.clear(), or declare it `nonlocal`",
    "NoneType": "a hook of register_hook runs before the gradient is in .grad, and what it returns "
    "replaces the gradient; one of register_post_accumulate_grad_hook runs after it",
}
TOUCHED = (
    "between the start of its all_reduce and the end of the wait a gradient belongs to the "
    "library: divide before you start, or after you have waited. If only later steps are wrong, "
    "`finish` has not forgotten the works of the step before"
)


class RankStep(NamedTuple):
    """What one rank saw in one step of exercise 2.3."""

    calls: list[BufferCall]
    on_their_way: int
    """Calls that had been made when the first layer's backward began."""
    waited: int
    """Works that were waited for, or asked, before backward was over."""
    again: int
    """Works of earlier steps that were waited for in this one."""
    own: torch.Tensor
    """The gradients of this rank alone, flat."""
    gradients: torch.Tensor
    """What stood in `.grad` after `finish`, flat."""


def check_overlap(attach: Callable[[nn.Module], Callable[[], None]]) -> None:
    """Judge exercise 2.3: three steps on 2 and on 3 ranks, in each another rank is late."""
    par = "all but the first layer's on their way when its backward begins"
    with checking.exercise("2.3", attach, par=par, raises=RAISES) as verdict:
        for n in (2, 3):
            ranks = checking.on_ranks(
                _train, attach, world_size=n, timeout=20.0, checks=False, hang=HANG
            )
            for number, steps in enumerate(zip(*ranks, strict=True)):
                total = sum(step.own for step in steps)
                for rank, step in enumerate(steps):
                    _judge_step(step, total, n, f"rank {rank} of {n}, step {number}")
        verdict.reached = f"{step.on_their_way} of {len(step.calls)} on their way"


def _network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))


def _train(attach: Callable) -> list[RankStep]:
    """Train with a learner's hooks; runs on every rank."""
    model, reference = _network(), _network()
    finish = attach(model)
    hold(callable(finish), "attach returns a function", finish, "`return finish` is missing")
    rank, steps, ended = dist.get_rank(), [], weakref.WeakSet[dist.Work]()
    for number in range(STEPS):
        x = checking.rank_data(24, rank=rank, seed=number).view(4, 6) / 99
        reference.zero_grad()
        reference(x).square().sum().backward()
        model.zero_grad()
        with BufferLog() as log:
            first = model[0](x)
            made: list[int] = []
            first.register_hook(lambda _, log=log, made=made: made.append(len(log.calls)))
            loss = model[1:](first).square().sum()
            if rank == number % dist.get_world_size():
                time.sleep(0.4)  # so long the others' all_reduces are under way
            loss.backward()
            waited = sum(call.waited is not None for call in log.calls)
            finish()
            gradients = _flat(model)  # at once: whoever has not waited has wrong values now
            again = len(log.waited_for & ended)
        steps.append(RankStep(log.calls, made[0], waited, again, _flat(reference), gradients))
        ended |= log.waited_for
    return steps


def _flat(model: nn.Module) -> torch.Tensor:
    gradients = [parameter.grad for parameter in model.parameters()]
    missing = sum(gradient is None for gradient in gradients)
    hold(not missing, "every parameter has a gradient", f"{missing} are None")
    return torch.cat([gradient.flatten() for gradient in gradients])


def _judge_step(step: RankStep, total: torch.Tensor, ranks: int, what: str) -> None:
    sizes = sorted(parameter.nbytes for parameter in _network().parameters())
    kinds = {(call.kind, call.dtype) for call in step.calls}
    hold(
        sorted(call.nbytes for call in step.calls) == sizes
        and kinds == {("all_reduce", torch.float32)},
        f"{what}: one all_reduce of float32 for each parameter, of {sizes} bytes",
        [(call.kind, call.dtype, call.nbytes) for call in step.calls] or "no call",
        "the hook is on every parameter; it starts its gradient's all_reduce, whole, and once",
    )
    hold(
        step.on_their_way >= len(sizes) - 2,
        f"{what}: {len(sizes) - 2} calls are made when the first layer's backward begins",
        step.on_their_way,
        "each call has to start inside the hook of its own parameter, not when backward is over",
    )
    hold(
        not step.waited,
        f"{what}: nobody waits, or asks, before backward is over",
        f"{step.waited} works waited for",
        "a hook that waits stops backward: start with async_op=True there, and wait in finish()",
    )
    missing = sum(call.waited is None for call in step.calls)
    hold(
        not missing,
        f"{what}: finish() waits for every work",
        f"{missing} of {len(sizes)} never waited for",
        "works can end in any order: that one has ended says nothing of the others, and no sleep "
        "is long enough",
    )
    touched = next((call.touched for call in step.calls if call.touched), None)
    hold(not touched, f"{what}: nobody touches a gradient that is under way", touched, TOUCHED)
    checking.same_values(
        step.gradients,
        total / ranks,
        what=f"{what}: the mean of the ranks' gradients",
        meaning="is each gradient summed, waited for, and divided by the world size, once? Does "
        "`finish` forget the works of the step before?",
        mistakes={
            "these are the rank's own gradients: the sum is in another tensor": step.own,
            "these are the rank's own gradients, divided: the sum is in another tensor": (
                step.own / ranks
            ),
            "this is the sum: divide by the world size": total,
            "the sum was divided by 2: divide by the world size, whatever it is": total / 2,
        },
        within=1e-5,
    )
    hold(
        not step.again,
        f"{what}: works of earlier steps are forgotten",
        f"{step.again} are waited for again",
        "empty the list in finish(): else every step waits for more works, and keeps them for ever",
    )


SHAPES = ((3, 5), (7,), (), (2, 2, 2), (40,), (4, 3))
CAP = 64
"""Bytes of a bucket in exercise 2.4."""


def _gradients(case: Case, rank: int) -> tuple[list[torch.Tensor], int]:
    """Make a rank's gradients, of which the last one is not contiguous, and a cap in bytes."""
    sizes = [torch.Size(shape) for shape in SHAPES]
    data = [checking.rank_data(size.numel(), rank=rank).view(size) for size in sizes]
    return [*data[:-1], data[-1].t()], CAP


def check_average(average: Callable[[list[torch.Tensor], int], None]) -> None:
    """Judge exercise 2.4: odd shapes, one of them transposed, on 2 and 4 ranks, some of them late.

    Values first, then: gradients stay where they are; an all_reduce for each bucket of the plan,
    all of them started before the first wait, and each waited for.
    """
    with checking.exercise("2.4", average, par="every gradient the mean, one call for each bucket"):
        cases = [Case(n, make=_gradients, late=0.2) for n in (2, 4)]
        for case, ranks in Trial(average, checks=False).runs(cases):
            own = [_gradients(case, rank)[0] for rank in range(case.world_size)]
            for rank, ran in enumerate(ranks):
                _judge_average(ran, own, rank, f"rank {rank} of {case.world_size}")


def _judge_average(ran: Ran, own: list[list[torch.Tensor]], rank: int, what: str) -> None:
    calls, ranks = ran.calls, len(own)
    hold(
        not ran.unwaited,
        f"{what}: every work is waited for",
        f"{len(ran.unwaited)} of {len(calls)} are not",
        "works can end in any order: that the last one has ended says nothing of the others",
    )
    for place, gradient in enumerate(ran.given[0]):
        total, mine = sum(gradients[place] for gradients in own), own[rank][place]
        checking.same_values(
            gradient,
            total / ranks,
            what=f"{what}, gradient {place}",
            meaning="divide each bucket after its sum is there, once, by the world size, and cut "
            "it in the order of packing",
            mistakes={
                "this is the rank's own gradient: an assignment gives a name, or a place in a "
                "list, another tensor, and reshape copies what is not contiguous; copy into the "
                "one that is there": mine,
                "this is the rank's own gradient, divided: it was copied out before its bucket was "
                "summed": mine / ranks,
                "this is the sum: divide by the world size": total,
                "this was divided by the world size twice": total / ranks**2,
            },
        )
    hold(
        ran.stays,
        f"{what}: gradients stay where they are",
        "a gradient has new memory",
        "the optimizer may hold a view of it: copy_ into it, do not replace its data",
    )
    plan = sorted(bucket.nbytes for bucket in buckets.plan(own[0], cap=CAP, reverse=True))
    hold(
        sorted(call.nbytes for call in calls) == plan
        and {call.kind for call in calls} == {"all_reduce"},
        f"{what}: an all_reduce for each bucket of the plan, of {plan} bytes",
        [(call.kind, call.nbytes) for call in calls],
        "keep the colleague's buckets, and add no other call: only two lines are wrong",
    )
    first_wait = min(call.waited for call in calls)
    started = sum(call.at < first_wait for call in calls)
    hold(
        started == len(calls),
        f"{what}: every call starts before the first wait",
        f"{started} of {len(calls)} did",
        "right, but some bucket waits for one before it: two lines are wrong, and async_op=True is "
        "in neither",
    )


WHO = boards.WhoWasIt("2.5", evidence.INVESTIGATION, {"first": "d", "second": "a"})


TURNED: Sequence[checking.Asked] = (
    (
        "ms of the six, loop as posted",
        45,
        {"the lateness is in the first call after it: call 0, which is not the classifier's": 125},
        "which call comes first after backward, and is it one of the six?",
    ),
    (
        "ms of the six, loop backwards",
        125,
        {
            "the first call waits for rank 2, and then its bytes still have to move": 80,
            "after the first call all ranks go on together: the lateness is paid once": 525,
        },
        "the loop now begins with the classifier: its first call waits for rank 2",
    ),
    (
        "ms of the sixteen, loop backwards",
        9,
        {"the lateness was paid in the first call, which is now one of the six": 89},
        "when the sixteen begin, all ranks go on together",
    ),
)
"""What exercise 2.6 asks of rank 0's stopwatch, with rank 2 late by 80 ms."""


def check_turned(turned: Callable[[], tuple[float, float, float]]) -> None:
    """Judge exercise 2.6: where lateness shows when the loop is turned round."""
    with checking.exercise("2.6", turned, par="all three figures"):
        checking.figures(checking.ask(turned), TURNED)
