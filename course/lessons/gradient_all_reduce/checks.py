"""Checks of lesson 2: a trace, a cap, hooks that overlap, a program to repair, two boards."""

import contextlib
import re
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from course.checks import boards, checking
from course.checks.checking import CheckFailed
from course.checks.memory import BufferLog
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


def check_reading(reading: Callable[[], tuple[int, float, float]]) -> None:
    """Judge exercise 2.1: what a trace of several late ranks says."""
    with checking.exercise("2.1", reading, par="the straggler, the transfer and the loss"):
        checking.figures(_in_ms(checking.ask(reading)), _READING)


def _in_ms(got: Any) -> Any:
    """Return what was given; refuse figures that a text gives in another unit than ms."""
    got = checking.plain(got)
    for one in got if isinstance(got, tuple | list) else ():
        if isinstance(one, str) and _ANOTHER_UNIT.search(one):
            raise CheckFailed("times in ms", repr(one), "the unit: all timers here are in ms")
    return got


_ANOTHER_UNIT = re.compile(
    r"\d\s*(s|secs?|seconds?|us|[µμ]s|microseconds?|ns|nanoseconds?|min|minutes?)\W*$",
    re.IGNORECASE,
)


_READING = (
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
            "no rank is last in every call: take the smallest timer of each call": 82,
            "averaging over ranks mixes the waiting back in": 93,
            "those are the straggler's own timers, with its waiting in the calls where another "
            "one was late": 83,
            "the largest timers have all the waiting in them": 140,
        },
        "moving begins when the last rank arrives: the smallest timer of each call, summed",
    ),
    (
        "milliseconds that the straggler alone cost",
        37,
        {
            "without the last rank the next to last decides: compare the two smallest timers": 51,
            "that is what all ranks cost together: only the calls in which yours was last": 79,
            "those are the second smallest timers themselves: the bytes would have moved in any "
            "case, so subtract the smallest": 40,
        },
        "the second smallest timer minus the smallest, in the calls where yours was last",
    ),
)


LAYERS = (
    (6, 12),
    (1, 20),
    (1, 32),
    (2, 44),
    (1, 56),
    (1, 68),
    (1, 80),
    (1, 90),
    (0.5, 100),
)
"""MB of each layer's gradients, and ms after the begin of backward at which they are complete."""
ALPHA, BETA = 8, 5
"""An all_reduce of S MB takes ALPHA + BETA * S ms; the wire carries one after the other."""
CAPS = (1, 2, 3, 4, 8, None)
"""MB; None: one bucket for all."""


def exposed(cap: float | None) -> float:
    """Return the ms by which the last bucket of exercise 2.2 ends after backward."""
    buckets_, held = [], []
    for layer in LAYERS:
        if held and cap is not None and sum(mb for mb, _ in held) + layer[0] > cap:
            buckets_.append(held)
            held = []
        held = [*held, layer]
    free = 0.0
    for bucket in [*buckets_, held]:
        free = max(free, bucket[-1][1]) + ALPHA + BETA * sum(mb for mb, _ in bucket)
    return free - LAYERS[-1][1]


def check_cap(best: Callable[[], tuple[float | None, float]]) -> None:
    """Judge exercise 2.2: which cap leaves least to move when backward ends, and how much."""
    with checking.exercise("2.2", best, par="the cap, and the ms that stay exposed") as done:
        got = checking.plain(checking.ask(best))
        if len(checking.answer(got, (tuple, list), what="(cap, ms)")) != 2:
            raise CheckFailed("(cap, ms)", repr(got), "two figures are asked, in this order")
        none = got[0] is None or str(got[0]).strip().lower() in ("none", "no cap")
        cap = None if none else checking.number(got[0], what="the cap, in MB")
        if cap not in CAPS:
            raise CheckFailed(f"one of {CAPS}", f"{cap:g}", "the caps to choose from are in MB")
        if cap != 3:
            why = {
                None: "one bucket leaves when backward is over: nothing is hidden",
                1: "nine calls pay alpha nine times, and the wire would need 144.5 ms for all: it "
                "is the bottleneck, and a queue stands before it when backward ends",
                2: "six calls: follow the wire to the end, it is still busy with earlier buckets "
                "when the last one is ready",
                4: "the last bucket is small, but the one before is full only at 90 ms, and the "
                "wire is busy with it for 18 ms after backward",
                8: "the last bucket holds more than needs be: what leaves last can hide least",
            }
            raise CheckFailed(
                "the cap that leaves least exposed",
                f"{got[0]} MB: {exposed(cap):g} ms are left; another cap leaves less",
                why[cap],
            )
        mistakes = {
            "the wire is not always busy before 100 ms: follow it bucket by bucket": 12.5,
            "that is all the time on the wire; what backward hides does not count": 112.5,
            "that is when the last bucket ends; backward ended at 100 ms": 124.5,
            "alpha is missing: every bucket pays it": 7.5,
            "the last bucket is ready at 100 ms, but the wire is busy with the one before": 10.5,
            "a bucket is never above its cap: the layer that would lift it begins the next": 18.5,
        }
        asked = (
            "ms exposed",
            24.5,
            mistakes,
            "bucket by bucket: when is the wire free?",
        )
        checking.figures(_in_ms(got[1:]), [asked])
        done.reached = "both"


WHO = boards.WhoWasIt("2.5", evidence.INVESTIGATION, {"first": "d", "second": "a"})


def check_overlap(attach: Callable[[nn.Module], Callable[[], None]]) -> None:
    """Judge exercise 2.3 on real ranks: gradients, and when works start and are waited for."""
    par = "all but the first layer's on their way when its backward begins"
    with checking.exercise("2.3", attach, par=par) as verdict:
        for world_size in (2, 3):
            try:
                ranks = checking.on_ranks(
                    _train_overlapped,
                    attach,
                    world_size=world_size,
                    timeout=20.0,
                    checks=False,
                    hang="ranks wait for each other in different all_reduces: start each in the "
                    "hook itself, in the thread of backward, so that all ranks have one order",
                )
            except UnboundLocalError as error:
                raise CheckFailed(
                    "hooks and finish() that run", str(error),
                    "a name that a function assigns is its own: `works = []` in finish() is "
                    "another list than that of `attach`. Empty that one, works.clear(), or "
                    "declare it `nonlocal`",
                ) from error  # fmt: skip
            except (AttributeError, TypeError) as error:
                if not re.search("NoneType|hook returned", str(error)):
                    raise
                raise CheckFailed(
                    "hooks that find a gradient in parameter.grad, and return nothing",
                    str(error),
                    f"{_EARLY}; or .grad was set to None",
                ) from error
            for rank, steps in enumerate(ranks):
                for number, step in enumerate(steps):
                    _judge_step(step, number, f"rank {rank} of {world_size}, step {number}")
                _judge_hooks(steps, f"rank {rank} of {world_size}")
        verdict.reached = f"{step['seen'][-1]} of {len(step['nbytes'])} on their way"


WORK = 0.06
"""CPU seconds of a backward with its hooks. Right ones take a hundredth of that."""


def _judge_hooks(steps: Sequence[dict], what: str) -> None:
    """Hold the hooks to start their own calls and to return at once."""
    for step in steps:
        if step["in_hooks"] < len(step["nbytes"]):
            raise CheckFailed(
                f"{what}: all {len(step['nbytes'])} calls started when backward is over",
                f"{step['in_hooks']}",
                "each hook starts the all_reduce of its own parameter, the first layer's, too; "
                "finish() only waits and divides",
            )
    worked = min(step["worked"] for step in steps)
    if worked > WORK or any(step["slept"] for step in steps):
        raise CheckFailed(
            f"{what}: hooks that return at once",
            "a hook sleeps" if worked <= WORK else f"{worked:.2f} s of work in backward",
            "backward goes on only when the hook has returned: start the call, and no more",
        )


_EARLY = (
    "a hook of register_hook runs before the gradient is in .grad, and what it returns replaces "
    "the gradient; one of register_post_accumulate_grad_hook runs after it"
)


def _network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))


def _train_overlapped(attach: Callable) -> list[dict]:
    """Train three steps with a learner's hooks, and one rank late in each."""
    model, reference = _network(), _network()
    with checking.own_work():
        finish = attach(model)
    if not callable(finish):
        missing = "`return finish` is missing at the end"
        raise CheckFailed("attach returns a function", repr(finish), missing)
    steps, ended = [], weakref.WeakSet()
    for number in range(3):
        x = checking.rank_data(24, rank=dist.get_rank(), seed=number).view(4, 6) / 99
        seen: list[int] = []
        with BufferLog() as log:
            hidden = x
            for layer in model:
                hidden = layer(hidden)
                if isinstance(layer, nn.Linear):  # how many calls before the layer's backward?
                    hidden.register_hook(lambda _, log=log, seen=seen: seen.append(len(log.calls)))
            model.zero_grad()
            loss = hidden.square().sum()
            if dist.get_rank() == number % dist.get_world_size():
                _be_late(number)  # as long as the others' all_reduces are under way
            began, slept = time.thread_time(), mock.Mock()
            with mock.patch.object(time, "sleep", slept):
                loss.backward()
            worked, in_hooks = time.thread_time() - began, len(log.calls)
            waited = [call.kind for call in log.calls if call.waited is not None]
            dist.distributed_c10d._get_default_store().set(f"{number} {dist.get_rank()}", "")
            with checking.own_work():
                finish()
            calls = log.calls
            if any(p.grad is None for p in model.parameters()):
                raise CheckFailed(
                    "every parameter keeps its gradient",
                    "parameter.grad is None after finish()",
                    "the optimizer reads .grad: leave the mean there",
                )
            # at once: whoever has not waited has wrong values now
            gradients = [p.grad.clone() for p in model.parameters()]
        steps.append(
            {
                "again": len(log.waited_for & ended),
                "early": any(p._backward_hooks for p in model.parameters()),
                "seen": seen,
                "waited": waited,
                "slept": slept.called,
                "worked": worked,
                "in_hooks": in_hooks,
                "calls": calls,
                "nbytes": [p.nbytes for p in model.parameters()],
                "errors": _distances(gradients, reference, x),
            }
        )
        ended |= log.waited_for
    return steps


def _be_late(number: int) -> None:
    """Wait until all others have ended backward, and then some; go on where a hook blocks them."""
    store, me = dist.distributed_c10d._get_default_store(), dist.get_rank()
    others = [f"{number} {rank}" for rank in range(dist.get_world_size()) if rank != me]
    with contextlib.suppress(RuntimeError):  # a FileStore says DistStoreError in other words
        store.wait(others, timedelta(seconds=2))
    time.sleep(0.4)


def _distances(gradients: Sequence[torch.Tensor], reference: nn.Module, x: torch.Tensor) -> tuple:
    """Compare gradients with the mean, this rank's own, and the sum divided by something.

    Returns:
        The largest distance from the mean and from this rank's own gradients, perhaps divided;
        then by what the sum was divided, if by anything that all gradients share, and the distance
        from that.
    """
    reference.zero_grad()
    reference(x).square().sum().backward()
    local = torch.cat([p.grad.flatten() for p in reference.parameters()])
    ours, total = torch.cat([gradient.flatten() for gradient in gradients]), local.clone()
    dist.all_reduce(total)
    divisor = float(total @ total) / (float(total @ ours) or 1e-12)
    ranks, scale = dist.get_world_size(), float(total.abs().max())
    wanted = total / ranks, local, local / ranks, total / divisor
    mean, alone, divided, scaled = (float((ours - w).abs().max()) / scale for w in wanted)
    return mean, min(alone, divided), divisor, scaled


def _judge_step(step: dict, number: int, what: str) -> None:
    nbytes, calls = step["nbytes"], step["calls"]
    if other := {call.kind for call in calls} - {"all_reduce"}:
        raise CheckFailed(
            f"{what}: all_reduces only",
            f"also {sorted(other)}",
            "nothing else has to be sent: each gradient needs one all_reduce",
        )
    wanted = Counter((size, torch.float32) for size in nbytes)
    if Counter((call.nbytes, call.dtype) for call in calls) != wanted:
        sent = Counter(f"{call.dtype} of {call.nbytes} bytes" for call in calls)
        meaning = (
            "no all_reduce was made: does each hook start one, and is it on every parameter?"
            if not calls
            else "each hook starts the all_reduce of its own parameter, whole, in float32, and once"
        )
        raise CheckFailed(
            f"{what}: one all_reduce of float32 for each of {len(nbytes)} parameters, of "
            f"{sorted(nbytes)} bytes",
            f"{len(calls)} calls: {dict(sent)}",
            meaning,
        )
    checking.at_most(
        len(nbytes) - step["seen"][-1],
        2,
        what=f"{what}: gradients not on their way when the first layer's backward began",
        unit="gradients",
        meaning="each call has to start inside the hook of its own parameter, not one hook later "
        "and not when backward is over",
    )
    if step["seen"][1] < 2:  # [0]: before the last layer's backward
        raise CheckFailed(
            f"{what}: the last layer's gradients are on their way before another layer's backward",
            f"{step['seen'][1]} of 2",
            "the hooks collect, and a later one starts the calls: "
            "while they are held back the wire is idle. Each hook starts its own",
        )
    if step["waited"]:
        raise CheckFailed(
            f"{what}: nobody waits, or asks, before backward is over",
            f"{len(step['waited'])} works waited for, or found done by is_completed()",
            "a hook that waits, be it for the work before, stops backward; one that asks gets "
            "another answer on each rank. Start with async_op=True in the hook, wait in finish()",
        )
    missing = sum(call.waited is None for call in calls)
    if 0 < missing < len(calls):
        raise CheckFailed(
            f"{what}: finish() waits for every work",
            f"{missing} of {len(calls)} never waited for",
            "works can end in any order: that one has ended says nothing of the others",
        )
    touched = next((call.touched for call in calls if call.touched), None)
    if touched and not missing:
        raise CheckFailed(
            f"{what}: nobody touches a gradient that is under way",
            touched,
            f"autograd itself puts it into .grad: {_EARLY}"
            if step["early"]
            else "between the start of its all_reduce and the end of the wait a gradient belongs "
            "to the library: divide before you start, or after you have waited"
            if number == 0
            else "the first step was right: does `finish` forget last step's works, or wait for "
            "them again and divide this step's gradients too early?",
        )
    mean, alone, divisor, scaled = step["errors"]
    if mean < 1e-5:
        checking.at_most(
            step["again"],
            0,
            what=f"{what}: waits for works of earlier steps",
            unit="waits",
            meaning="forget last step's works: else they are waited for again, and kept for ever",
        )
        return
    meaning = (
        "the first step was right: forget last step's works before the next one"
        if number and not missing
        else "these are the rank's own gradients: the sum is in another tensor than parameter.grad"
        if alone < 1e-5
        else f"the sum was divided by {divisor:.3g}: divide by the world size, once, whatever it is"
        if scaled < 1e-5
        else "finish() waits for no work: no sleep is long enough"
        if missing
        else "neither the rank's own gradients nor their sum, divided by one number: is each "
        "gradient summed (an all_reduce can do other things), waited for, and divided once?"
    )
    raise CheckFailed(
        f"{what}: the mean of the ranks' gradients", f"relative distance {mean:.2g}", meaning
    )


def check_average(average: Callable[[list[torch.Tensor], int], None]) -> None:
    """Judge exercise 2.4: gradients averaged in buckets, on odd shapes, with late ranks."""
    shapes = ((3, 5), (7,), (), (2, 2, 2), (40,))

    def gradients(case: Case, rank: int) -> tuple[tuple[torch.Tensor, ...], int]:
        data = [checking.rank_data(torch.Size(s).numel(), rank=rank).view(s) for s in shapes]
        turned = checking.rank_data(12, rank=rank, seed=1).view(3, 4).t()  # not contiguous
        return (*data, turned), 64

    def in_place(given: tuple[torch.Tensor, ...], cap: int) -> bool:
        before = [gradient.data_ptr() for gradient in given]
        average(list(given), cap)  # a list of its own: what stands in it in the end is not judged
        return [gradient.data_ptr() for gradient in given] == before

    with checking.exercise("2.4", average, par="every gradient the mean, one call for each bucket"):
        trial = Trial(in_place, checks=False)
        for case, ranks in trial.runs([Case(n, make=gradients, late=0.2) for n in (2, 4)]):
            wanted = [gradients(case, rank)[0] for rank in range(case.world_size)]
            plan = buckets.plan(wanted[0], cap=64, reverse=True)
            for rank, ran in enumerate(ranks):
                what = f"rank {rank} of {case.world_size}"
                for place, got in enumerate(ran.given[0]):
                    mean = sum(tensors[place] for tensors in wanted) / case.world_size
                    meaning = _why_not_the_mean(
                        got, wanted[rank][place], mean, ran, case.world_size
                    )
                    checking.same_values(
                        got, mean, what=f"{what}, gradient {place}", meaning=meaning
                    )
                if not ran.returned:
                    raise CheckFailed(
                        f"{what}: gradients that stay where they are",
                        "a gradient has new memory",
                        "others, as the optimizer, may hold a view of it: copy_ into it, do not "
                        "replace its data",
                    )
                if other := {call.kind for call in ran.calls} - {"all_reduce"}:
                    raise CheckFailed(
                        f"{what}: all_reduces, and nothing else",
                        f"also {sorted(other)}",
                        "a barrier says that all ranks are here, not that a work is done: wait "
                        "for each work"
                        if other == {"barrier"}
                        else "keep the colleague's all_reduces; only two lines are wrong",
                    )
                made = Counter((str(call.dtype), call.nbytes) for call in ran.calls)
                if made != (right := Counter((str(b.dtype), b.nbytes) for b in plan)):
                    raise CheckFailed(
                        f"{what}: an all_reduce for each bucket of the plan: {dict(right)}",
                        f"{dict(made)}",
                        "keep the colleague's buckets and their dtype; only two lines are wrong",
                    )
                if ran.unwaited:
                    raise CheckFailed(
                        f"{what}: every work is waited for",
                        f"{len(ran.unwaited)} are not",
                        "works can end in any order: that the last one has ended says nothing of "
                        "the others; here you were lucky",
                    )
                first_wait = min(call.waited for call in ran.calls)
                started = sum(call.at < first_wait for call in ran.calls)
                if started < len(ran.calls):
                    raise CheckFailed(
                        f"{what}: every call starts before the first wait",
                        f"{started} of {len(ran.calls)} did",
                        "right, but some bucket waits for one before it: two lines are wrong, and "
                        "async_op=True is in neither",
                    )


def _why_not_the_mean(
    got: torch.Tensor, local: torch.Tensor, mean: torch.Tensor, ran: Ran, ranks: int
) -> str:
    if not ran.calls:
        return "the ranks called no all_reduce: without one nobody knows the others' gradients"
    if ran.unwaited:
        return (
            "no work was waited for: the sums may still be on their way when they are read"
            if len(ran.unwaited) == len(ran.calls)
            else "not every work was waited for: that the last one has ended says nothing of the "
            "others"
        )
    if got.shape == local.shape and got.equal(local):
        return (
            "this is the rank's own gradient: an assignment gives a name, or a place in a list, "
            "another tensor, and reshape copies what is not contiguous; copy into the one that is "
            "there"
        )
    if torch.allclose(got.float(), local.float() / ranks):
        return (
            "this is the rank's own gradient, divided: it was copied out before its bucket was "
            "summed. Wait for a bucket before you read it"
        )
    ratios = (got / mean)[mean != 0]
    if len(ratios) > 1 and torch.allclose(ratios, ratios[0]):
        return (
            f"this is {ratios[0]:g} times the mean: divide by the world size, whatever it is, "
            "once. (What you put into the list is another tensor: copy into the one that is there)"
        )
    return "divide each bucket after its sum is there, and cut it in the order of packing"
