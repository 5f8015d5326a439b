"""Checks of lesson 2: the straggler, the buckets, the overlap, the latest of n ranks."""

import contextlib
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import fmean, median

import torch
import torch.distributed as dist
from torch import nn

from course import checking
from course.checking import CheckFailed
from course.comm import shapes
from course.lessons.gradient_all_reduce.model import expected_latest
from labkit.measure.calls import CallLog

Timers = Sequence[Sequence[float]]


def check_diagnose(diagnose: Callable[[Timers], tuple[int, float, float]]) -> None:
    """Judge exercise 2.1 on timers with several late ranks, ties, decoys."""
    with checking.exercise("2.1", par="the straggler, the transfer and the loss, exactly") as done:
        cases = _timers()
        answers = [checking.ask(diagnose, [list(own) for own in case]) for case in cases]
        for answer in answers:
            if len(checking.answer(answer, tuple, what="(rank, transfer, lost)")) != 3:
                raise CheckFailed("(rank, transfer, lost)", repr(answer), "three values are asked")
            for value, kind in zip(answer, (int, float, float), strict=True):
                checking.answer(value, kind, what="(rank, transfer, lost), each a number")
        questions = (_STRAGGLER, _TRANSFER, _LOST)
        for got, question in zip(zip(*answers, strict=True), questions, strict=True):
            checking.agree(cases, got, told=_in_milliseconds, **question)
        done.reached = f"that, on {len(cases)} jobs"


def _timers() -> list[list[list[float]]]:
    """Make jobs: timers of 2 to 5 ranks around some calls, in which the usual short cuts err."""
    jobs = [
        [[1, *[21] * 10], [101, *[1] * 10], [101, *[2] * 10]],  # one large gap beats ten small
        [[5, 5, 5, 9], [5, 5, 5, 2], [7, 5, 6, 3]],  # ties cost nothing
        [[31, *[2] * 6], [1, *[20] * 6], [51, *[22] * 6]],  # often beats once
        [[4, 4], [2, 5]],
    ]
    for world_size, seed in itertools.product((2, 3, 4, 5), range(3)):
        draw = random.Random(100 * world_size + seed)
        calls = []
        for _ in range(8):
            arrivals = [draw.expovariate(1 / (10 + 5 * rank)) for rank in range(world_size)]
            moving = 2 + draw.random()
            calls.append([max(arrivals) + moving - arrival for arrival in arrivals])
        jobs.append([list(own) for own in zip(*calls, strict=True)])
    return [[[1e-3 * timer for timer in own] for own in job] for job in jobs]


def _costs(case: Timers) -> list[list[float]]:
    costs = [[0.0] for _ in case]
    for call in zip(*case, strict=True):
        first, second = sorted(call)[:2]
        costs[call.index(first)].append(second - first)
    return costs


def _straggler(case: Timers) -> int:
    totals = list(map(sum, _costs(case)))
    return totals.index(max(totals))


def _last_of_several(case: Timers) -> int:
    """Return the straggler for whoever compares with the next *other* timer, also where two tie."""
    costs = [0.0 for _ in case]
    for call in zip(*case, strict=True):
        first, second = [*sorted(set(call)), min(call)][:2]
        costs[call.index(first)] += max(second - first, 0.0)
    return costs.index(max(costs))


def _its_calls(case: Timers) -> list[tuple[float, ...]]:
    """Return the calls in which the straggler was the last."""
    calls, straggler = zip(*case, strict=True), _straggler(case)
    return [call for call in calls if call.index(min(call)) == straggler]


def _extreme(case: Timers, choose: Callable, key: Callable) -> int:
    return choose(range(len(case)), key=lambda rank: key(case[rank]))


def _most_often_last(case: Timers) -> int:
    last = [call.index(min(call)) for call in zip(*case, strict=True)]
    return max(range(len(case)), key=last.count)


def _in_milliseconds(case: Timers) -> str:
    timers = [[round(1e3 * timer, 1) for timer in own] for own in case]
    return "timers in ms: " + "; ".join(f"rank {rank} {own}" for rank, own in enumerate(timers))


_STRAGGLER = {
    "what": "the straggler",
    "right": _straggler,
    "mistakes": {
        "the rank with the largest timers is the one that waits most: it is the first victim, not "
        "the cause": lambda case: _extreme(case, max, sum),
        "the smallest total is not enough: a rank that waited long in one call, for somebody else, "
        "hides there what it costs in all others": lambda case: _extreme(case, min, sum),
        "the rank that is last most *often* need not cost most: weigh each call by the seconds "
        "that the others lose": _most_often_last,
        "one large gap may be less than many small ones: add a rank's costs up over all calls": (
            lambda case: max(range(len(case)), key=lambda rank: max(_costs(case)[rank]))
        ),
        "two ranks that arrive last together cost nothing each: without one, the other decides": (
            _last_of_several
        ),
    },
    "otherwise": "in each call the last rank has the smallest timer, and its cost is what the "
    "others would have saved; add up per rank, then name the largest",
}
_TRANSFER = {
    "what": "seconds that moved bytes",
    "right": lambda case: sum(map(min, zip(*case, strict=True))),
    "unit": "s",
    "mistakes": {
        "averaging over ranks mixes the waiting back in: take the smallest timer of each call": (
            lambda case: fmean(map(sum, case))
        ),
        "no rank is last in every call: take the smallest timer of each call, then add up": (
            lambda case: min(map(sum, case))
        ),
        "the largest timer has all the waiting in it": (
            lambda case: sum(map(max, zip(*case, strict=True)))
        ),
    },
    "otherwise": "moving begins when the last rank arrives: the smallest timer of each call, "
    "summed",
}
_LOST = {
    "what": "seconds that the straggler alone cost",
    "right": lambda case: max(map(sum, _costs(case))),
    "unit": "s",
    "mistakes": {
        "without the last rank the next to last would decide: compare the two smallest timers": (
            lambda case: sum(max(call) - min(call) for call in _its_calls(case))
        ),
        "that is what all ranks cost together: only the calls in which your straggler was last": (
            lambda case: sum(map(sum, _costs(case)))
        ),
        "that is how much more than the runner-up it cost; the question is how much": (
            lambda case: -sum(x - y for x, y in [sorted(map(sum, _costs(case)))[-2:]])
        ),
        "several ranks wait for it at the same time; the group loses that time once": (
            lambda case: sum(sum(call) - len(call) * min(call) for call in _its_calls(case))
        ),
    },
    "otherwise": "without the last rank the next to last would decide: the second smallest timer "
    "minus the smallest, in the calls where your straggler was last",
}


def check_plan(plan: Callable[[Sequence[int], int, int], list[list[int]]]) -> None:
    """Judge exercise 2.2 on the gradients of two networks and on awkward lists."""
    networks = {"VGG11": shapes.vgg11(), "ResNet50": shapes.parameters_only(shapes.resnet50())}
    cases = {
        "three equal tensors": ([4, 4, 4], 8, 4),
        "a tensor above the cap in the middle": ([3, 100, 3, 3], 8, 8),
        "exactly full": ([4, 4, 4, 4], 8, 8),
        "one byte too many": ([4, 5, 4, 4], 8, 8),
        "a small first bucket": ([2, 2, 2, 2, 2, 2], 8, 2),
        "one tensor": ([5], 1, 1),
        "tensors without elements": ([0, 4, 0, 4, 8, 0], 8, 4),
        "nothing": ([], 8, 4),
    } | {
        name: ([spec.nbytes for spec in specs], 25_000_000, 1_000_000)
        for name, specs in networks.items()
    }
    with checking.exercise("2.2", par="the plan that the three rules give") as verdict:
        for what, (nbytes, cap, first_cap) in cases.items():
            got = checking.ask(plan, list(nbytes), cap, first_cap)
            checking.answer(got, (list, tuple), what=f"{what}: a list of buckets")
            for bucket in got:
                checking.answer(bucket, (list, tuple), what=f"{what}: each bucket, its places")
            _judge_plan([list(bucket) for bucket in got], nbytes, cap, first_cap, what)
        verdict.reached = f"that, for {len(cases)} lists of tensors"


def _judge_plan(got: list, nbytes: Sequence[int], cap: int, first_cap: int, what: str) -> None:
    n, places = len(nbytes), [place for bucket in got for place in bucket]
    if any(not bucket for bucket in got):
        raise CheckFailed(
            f"{what}: no empty bucket", f"{got[:4]}", "close a bucket only if something is in it: "
            "there may be no tensor at all, and a first tensor above the cap finds it empty",
        )  # fmt: skip
    lost, twice = set(range(n)) - set(places), [p for p, k in Counter(places).items() if k > 1]
    if lost or twice or len(places) != n:
        meaning = "a tensor that starts a new bucket must not be dropped, or put in twice"
        if lost and lost == set(range(len(lost))):
            meaning = "the last bucket is never closed: add it when the loop is over"
        elif lost and not any(nbytes[place] for place in lost):
            meaning = "a tensor without elements has a place, too: its gradient is averaged as well"
        wrong = f"missing {sorted(lost)}, twice {twice}" if lost or twice else f"{places[:8]}"
        raise CheckFailed(f"{what}: every place from 0 to {n - 1} once", wrong, meaning)
    if places != list(reversed(range(n))):
        by_size = sorted(range(n), key=lambda place: nbytes[place])
        sizes = [nbytes[place] for place in places]
        meaning = (
            "backward computes the last gradients first: go through the list backwards"
            if places == list(range(n)) or places == [p for b in got for p in sorted(b)]
            else "do not sort by size: buckets must fill in the order in which gradients come"
            if sizes in ([nbytes[p] for p in by_size], [nbytes[p] for p in reversed(by_size)])
            else "the order of sending must be that of backward, with no tensor moved forward"
        )
        raise CheckFailed(f"{what}: places {n - 1}, {n - 2}, ...", f"{places[:6]}...", meaning)
    for number, bucket in enumerate(got):
        limit, held = cap if number else first_cap, sum(nbytes[place] for place in bucket)
        if held > limit and len(bucket) > 1:
            meaning = (
                "the first bucket has its own, smaller cap"
                if number == 0 and held <= cap
                else "look before you put a tensor in: would the bucket be over its cap?"
            )
            raise CheckFailed(
                f"{what}: bucket {number} has at most {limit} bytes", f"{held} bytes", meaning
            )
        following = got[number + 1][0] if number + 1 < len(got) else None
        if following is not None and held + nbytes[following] <= limit:
            raise CheckFailed(
                f"{what}: bucket {number} takes place {following}, too ({nbytes[following]} bytes)",
                f"closed at {held} of {limit} bytes",
                "a bucket was closed although the next tensor would have fitted",
            )


Finish = Callable[[], None]


def check_overlap(attach: Callable[[nn.Module], Finish]) -> None:
    """Judge exercise 2.3 on real ranks: gradients, and when works start and are waited for."""
    par = "all but the first layer's on their way when its backward begins"
    with checking.exercise("2.3", par=par) as verdict:
        for world_size in (2, 3):
            ranks = checking.on_ranks(
                _train_overlapped, attach, world_size=world_size, timeout=20.0, checks=False,
                hang="ranks wait for each other in different all_reduces: start each in the hook "
                "itself, in the thread of backward, so that all ranks have one order",
            )  # fmt: skip
            for rank, steps in enumerate(ranks):
                if isinstance(steps, str):
                    raise CheckFailed(
                        "attach returns a function", steps, "`return finish` is missing at the end"
                    )
                for number, step in enumerate(steps):
                    _judge_step(step, number, f"rank {rank} of {world_size}, step {number}")
        verdict.reached = f"{step['early']} of {len(step['nbytes'])} on their way"


class _Marker(torch.autograd.Function):
    """Does nothing, and notes when backward passes by: how many calls were made by then."""

    @staticmethod
    def forward(ctx, x, log, seen):
        ctx.log, ctx.seen = log, seen
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.seen.append(len(ctx.log.calls))
        return gradient, None, None


def _network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))


def _train_overlapped(attach: Callable) -> list[dict] | str:
    """Train three steps with a learner's hooks, and one rank late in each."""
    model, reference = _network(), _network()
    with checking.own_work(), CallLog() as log:
        finish = attach(model)
    if not callable(finish):
        return repr(finish)
    steps = []
    for number in range(3):
        x = checking.rank_data(24, rank=dist.get_rank(), seed=number).view(4, 6) / 99
        seen: list[int] = []
        with CallLog() as log:
            hidden = _Marker.apply(model[0](x), log, seen)
            for layer in list(model)[1:]:
                hidden = layer(hidden)
            model.zero_grad()
            loss = hidden.square().sum()
            if dist.get_rank() == number % dist.get_world_size():
                _be_late(number)  # as long as the others' all_reduces are under way
            loss.backward()
            waited = [call.kind for call in log.calls if call.waited is not None]
            dist.distributed_c10d._get_default_store().set(f"{number} {dist.get_rank()}", "")
            with checking.own_work():
                finish()
            calls = log.calls
            # at once: whoever has not waited has wrong values now
            gradients = [p.grad.clone() for p in model.parameters()]
        steps.append({
            "early": seen[-1], "waited": waited, "kinds": [call.kind for call in calls],
            "calls": [(call.nbytes, str(call.dtype), call.waited is None, call.touched)
                      for call in calls],
            "nbytes": [p.nbytes for p in model.parameters()],
            "errors": _distances(gradients, reference, x),
        })  # fmt: skip
    return steps


def _be_late(number: int) -> None:
    """Wait until all others have ended backward, and then some; go on where a hook blocks them."""
    store, me = dist.distributed_c10d._get_default_store(), dist.get_rank()
    others = [f"{number} {rank}" for rank in range(dist.get_world_size()) if rank != me]
    with contextlib.suppress(RuntimeError):  # a FileStore says DistStoreError in other words
        store.wait(others, timedelta(seconds=2))
    time.sleep(0.4)


def _distances(gradients: Sequence[torch.Tensor], reference: nn.Module, x: torch.Tensor) -> tuple:
    """Return the largest distances of gradients from the mean, the sum, and this rank's own."""
    reference.zero_grad()
    reference(x).square().sum().backward()
    distances = []
    for ours, theirs in zip(gradients, reference.parameters(), strict=True):
        total = theirs.grad.clone()
        dist.all_reduce(total)
        scale = float(total.abs().max()) + 1e-12
        wanted = (total / dist.get_world_size(), total, theirs.grad)
        distances.append([float((ours - w).abs().max()) / scale for w in wanted])
    return tuple(map(max, zip(*distances, strict=True)))


def _judge_step(step: dict, number: int, what: str) -> None:
    nbytes, kinds, calls = step["nbytes"], step["kinds"], step["calls"]
    if other := set(kinds) - {"all_reduce"}:
        raise CheckFailed(
            f"{what}: all_reduces only", f"also {sorted(other)}",
            "nothing else has to be sent: each gradient needs one all_reduce, in place",
        )  # fmt: skip
    wanted = Counter((size, "torch.float32") for size in nbytes)
    if Counter(call[:2] for call in calls) != wanted:
        sent = Counter(f"{dtype} of {size} bytes" for size, dtype, *_ in calls)
        meaning = (
            "no all_reduce was made: does each hook start one, and is it on every parameter?"
            if not calls
            else "each hook starts the all_reduce of its own parameter, whole, as it is, and once"
        )
        raise CheckFailed(
            f"{what}: one all_reduce of float32 for each of {len(nbytes)} parameters, of "
            f"{sorted(nbytes)} bytes", f"{len(calls)} calls: {dict(sent)}", meaning,
        )  # fmt: skip
    checking.at_most(
        len(nbytes) - step["early"], 2, what=f"{what}: gradients not on their way when the first "
        "layer's backward began", unit="gradients",
        meaning="the calls start after backward is over: start each inside its hook",
    )  # fmt: skip
    if step["waited"]:
        raise CheckFailed(
            f"{what}: nobody waits before backward is over", f"{len(step['waited'])} waits",
            "a hook that waits, be it for the work before, stops backward: start with "
            "async_op=True in the hook, and wait in finish()",
        )  # fmt: skip
    missing = sum(call[2] for call in calls)
    if 0 < missing < len(calls):
        raise CheckFailed(
            f"{what}: finish() waits for every work", f"{missing} of {len(calls)} never waited for",
            "works can end in any order: that one has ended says nothing of the others",
        )  # fmt: skip
    touched = [call[3] for call in calls if call[3]]
    if touched and not missing:
        raise CheckFailed(
            f"{what}: nobody touches a gradient that is under way", f"{touched[0]}",
            "between the start of its all_reduce and the end of the wait a gradient belongs to the "
            "library: divide before you start, or after you have waited",
        )  # fmt: skip
    mean, total, own = step["errors"]
    if mean < 1e-5:
        return
    meaning = (
        "this is the sum over the ranks: divide by the world size"
        if total < 1e-5
        else "these are the rank's own gradients: the sum is in another tensor than parameter.grad"
        if own < 1e-5
        else "finish() waits for no work: no sleep is long enough"
        if missing
        else "the first step was right: forget last step's works before the next one"
        if number
        else "divide each gradient once"
    )
    raise CheckFailed(
        f"{what}: the mean of the ranks' gradients", f"relative distance {mean:.2g}", meaning
    )


def check_latest(latest: Callable[[Sequence[float], int], float]) -> None:
    """Judge exercise 2.4 on delays of several kinds, for 1 to 128 ranks."""
    draw = random.Random(24)
    kinds = [
        [0.0, 1.0],
        [0.0] * 7 + [0.060] + [0.0] * 12,
        [0.004] * 5,
        [0.001, 0.003, 0.003, 0.001, 0.010, 0.003],
        [draw.expovariate(1 / 0.003) for _ in range(200)],
    ]
    with checking.exercise("2.4", par="exact, for 1 to 128 ranks") as verdict:
        cases = list(itertools.product(kinds, (1, 2, 3, 16, 128)))
        got = [checking.ask(latest, list(delays), n, limit=5.0) for delays, n in cases]
        for seconds in got:
            checking.answer(seconds, float, what="the seconds by which the latest rank is late")
        right = [expected_latest(*case) for case in cases]
        near = all(
            abs(mine - wanted) <= 0.3 * wanted for mine, wanted in zip(got, right, strict=True)
        )
        checking.agree(
            cases, got, lambda case: expected_latest(*case), what="lateness of the latest",
            mistakes=_LATEST, unit="s", told=lambda case: f"{len(case[0])} delays, {case[1]} ranks",
            otherwise="a simulation comes near, and never exact: when is the k-th smallest delay "
            "the latest?" if near else
            "the latest is at most x late if *every* rank is: what is the chance?",
        )  # fmt: skip
        verdict.reached = f"that, for {len(kinds)} lists of delays"


def _without_replacement(delays: Sequence[float], n: int) -> float:
    m, ordered = len(delays), sorted(delays)
    if n > m:
        return ordered[-1]
    return sum(math.comb(k, n - 1) * x for k, x in enumerate(ordered)) / math.comb(m, n)


_LATEST = {
    "that is the mean of one rank's delays: the latest of several is later": (
        lambda case: fmean(case[0])
    ),
    "that is the median of one rank's delays": lambda case: median(case[0]),
    "the group waits for the latest rank only, not for one after the other": (
        lambda case: case[1] * fmean(case[0])
    ),
    "that is the worst delay: with few ranks, most steps are spared it": lambda case: max(case[0]),
    "that is the median of the latest; the mean is asked, which counts rare long waits": (
        lambda case: sorted(case[0])[math.ceil(0.5 ** (1 / case[1]) * len(case[0])) - 1]
    ),
    "the mean times 1 + 1/2 + ... + 1/n is right for exponential delays only": (
        lambda case: fmean(case[0]) * sum(1 / k for k in range(1, case[1] + 1))
    ),
    "a delay that occurs several times is as many times as likely: keep the ties": (
        lambda case: expected_latest(sorted(set(case[0])), case[1])
    ),
    "ranks draw independently: two of them may have the same delay in a step": (
        lambda case: _without_replacement(*case)
    ),
}
