"""Checks of lesson 2: the straggler, the buckets, the overlap, the exposed time."""

import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from labkit.comm import shapes
from labkit.comm.buckets import plan as reference_plan
from labkit.course import checking
from labkit.course.checking import CheckFailed
from labkit.lessons.gradient_all_reduce import model

Diagnose = Callable[[Sequence[Sequence[float]]], tuple[int, float, float]]
DELAY = 0.03


def check_diagnose(diagnose: Diagnose) -> None:
    """Judge exercise 2.1 on made-up timers with a known truth, then on real ranks.

    Raises:
        CheckFailed: the straggler, the transfer or the loss is wrong.
    """
    with checking.exercise("2.1", par="the straggler by name, both times within 1 %") as verdict:
        for world_size in checking.WORLD_SIZES:
            for guilty in range(world_size):
                _judge_timers(diagnose, *_timers(world_size, guilty))
        _judge_timers(diagnose, *_timers(4, 1, rare=True))
        guilty, seconds = 1, checking.on_ranks(_late_rank, 1, world_size=3, timeout=40.0)
        rank = _triple(diagnose(seconds))[0]
        if rank != guilty:
            raise CheckFailed(
                f"real ranks, rank {guilty} sleeps {1e3 * DELAY:.0f} ms: rank {guilty}",
                f"rank {rank}",
                "the rank that comes last waits least: its own timer is the smallest",
            )
        verdict.reached = "the right rank in 15 cases, one of them real"


def _timers(world_size: int, guilty: int, rare: bool = False):
    """Make timers around 6 collectives: arrivals are known, so is who delays whom by how much."""
    random = torch.Generator().manual_seed(10 * world_size + guilty)
    seconds = [[] for _ in range(world_size)]
    transfer = lost = 0.0
    for call in range(6):
        arrivals = torch.rand(world_size, generator=random, dtype=torch.float64) * 0.004
        if not rare or call == 2:
            arrivals[guilty] += 0.05 + 0.01 * call
        elif rare:  # somebody else is last most of the time, by very little
            arrivals[(guilty + 1) % world_size] = arrivals.max() + 1e-4
        moving = 0.002 + 0.001 * call
        end = float(arrivals.max()) + moving
        for rank in range(world_size):
            seconds[rank].append(end - float(arrivals[rank]))
        transfer += moving
        ordered = arrivals.sort().values
        if int(arrivals.argmax()) == guilty:
            lost += float(ordered[-1] - ordered[-2])
    return seconds, guilty, transfer, lost


def _judge_timers(diagnose: Diagnose, seconds, guilty: int, transfer: float, lost: float) -> None:
    rank, got_transfer, got_lost = _triple(diagnose(seconds))
    if rank != guilty:
        sums = [sum(own) for own in seconds]
        last = [min(range(len(seconds)), key=lambda r: seconds[r][c]) for c in range(6)]
        if rank == sums.index(max(sums)):
            meaning = (
                "the rank with the *largest* timers is the one that waits most: it is the "
                "first victim, not the cause"
            )
        elif rank == max(set(last), key=last.count):
            meaning = (
                "the rank that is last most *often* need not cost most: weigh each call by the "
                "seconds that the others lose"
            )
        else:
            meaning = "in each call the last rank has the smallest timer"
        raise CheckFailed(f"the straggler: rank {guilty}", f"rank {rank}", meaning)
    mean_based = sum(sum(own) for own in seconds) / len(seconds)
    checking.close_to(
        got_transfer,
        transfer,
        within=0.01,
        what="time spent moving bytes, all calls together",
        unit="s",
        meaning=(
            "averaging over ranks mixes the waiting back in: take the smallest timer of each call"
            if abs(got_transfer - mean_based) < 0.01 * mean_based
            else "moving begins when the last rank arrives: the smallest timer of each call, summed"
        ),
    )
    checking.close_to(
        got_lost,
        lost,
        within=0.01,
        what="time that the straggler alone costs the group",
        unit="s",
        meaning="without the last rank the next to last would decide: compare the two smallest "
        "timers, and only in the calls where your straggler was last",
    )


def _triple(got) -> tuple[int, float, float]:
    if len(checking.answer(got, tuple, what="(rank, transfer, lost)")) != 3:
        raise CheckFailed("(rank, transfer, lost)", repr(got), "three values are asked for")
    return got


def _late_rank(guilty: int) -> list[float]:
    tensor, seconds = torch.ones(1000), []
    for _ in range(6):
        dist.barrier()
        if dist.get_rank() == guilty:
            time.sleep(DELAY)
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - begin)
    return seconds


Plan = Callable[[Sequence[int], int, int], list[list[int]]]


def check_plan(plan: Plan) -> None:
    """Judge exercise 2.2 on the gradients of two networks and on awkward lists.

    Raises:
        CheckFailed: a rule of the plan is broken; says which, and where.
    """
    with checking.exercise("2.2", par="as few buckets as the caps allow") as verdict:
        cases = {
            "three equal tensors": ([4, 4, 4], 8, 4),
            "a tensor above the cap in the middle": ([3, 100, 3, 3], 8, 8),
            "exactly full": ([4, 4, 4, 4], 8, 8),
            "one tensor": ([5], 1, 1),
            "VGG11": ([s.nbytes for s in shapes.vgg11()], 25_000_000, 1_000_000),
            "ResNet50": (
                [s.nbytes for s in shapes.parameters_only(shapes.resnet50())],
                25_000_000,
                1_000_000,
            ),
        }
        for what, (nbytes, cap, first_cap) in cases.items():
            _judge_plan(plan(list(nbytes), cap, first_cap), nbytes, cap, first_cap, what)
        verdict.reached = "that, on six lists of tensors"


def _judge_plan(got, nbytes, cap: int, first_cap: int, what: str) -> None:
    n = len(nbytes)
    for bucket in checking.answer(got, list, what=f"{what}: buckets"):
        checking.answer(bucket, (list, tuple), what=f"{what}: each bucket, the places in it")
    places = [place for bucket in got for place in bucket]
    if sorted(places) != list(range(n)):
        lost = sorted(set(range(n)) - set(places))
        meaning = (
            "the last bucket is never closed: add it when the loop is over"
            if lost and lost == list(range(len(lost)))
            else "a tensor that starts a new bucket must not be dropped, or put in twice"
        )
        raise CheckFailed(
            f"{what}: every place from 0 to {n - 1} once", f"missing {lost}" if lost else
            f"{len(places)} places for {n} tensors", meaning,
        )  # fmt: skip
    if any(not bucket for bucket in got):
        raise CheckFailed(
            f"{what}: no empty bucket", f"{got[:4]}",
            "close a bucket only if something is in it: a first tensor above the cap finds "
            "it empty",
        )  # fmt: skip
    if places != list(reversed(range(n))):
        meaning = (
            "backward computes the last gradients first: go through the list backwards"
            if places == list(range(n))
            else "do not sort by size: buckets must fill in the order in which gradients come"
        )
        raise CheckFailed(f"{what}: places {n - 1}, {n - 2}, ...", f"{places[:6]}...", meaning)
    for number, bucket in enumerate(got):
        limit, held = first_cap if number == 0 else cap, sum(nbytes[place] for place in bucket)
        if held > limit and len(bucket) > 1:
            meaning = (
                "the first bucket has its own, smaller cap"
                if number == 0 and held <= cap
                else "look before you put a tensor in: would the bucket be over its cap?"
            )
            raise CheckFailed(
                f"{what}: bucket {number} has at most {limit} bytes", f"{held} bytes", meaning
            )
    fewest = _fewest(nbytes, cap, first_cap)
    checking.at_most(
        len(got), fewest, what=f"{what}: number of buckets", unit="buckets",
        meaning="a bucket was closed although the next tensor would have fitted",
    )  # fmt: skip


def _fewest(nbytes, cap: int, first_cap: int) -> int:
    specs = [shapes.TensorSpec(str(size), (size,), "int8") for size in nbytes]
    return len(reference_plan(specs, cap=cap, first_cap=first_cap, reverse=True))


Attach = Callable[[nn.Module], Callable[[], None]]


def check_overlap(attach: Attach) -> None:
    """Judge exercise 2.3 on real ranks: the gradients, and when their all_reduces started.

    Raises:
        CheckFailed: gradients are not the mean, or communication does not overlap backward.
    """
    with checking.exercise("2.3", par="all but the first layer's on their way early") as verdict:
        for world_size in (2, 3):
            results = checking.on_ranks(
                _train_overlapped, attach, world_size=world_size, timeout=40.0
            )
            for rank, (errors, early, calls, parameters) in enumerate(results):
                if errors == "no finish":
                    raise CheckFailed(
                        "attach returns a function", "None", "`return finish` is missing at the end"
                    )
                if calls != parameters:
                    raise CheckFailed(
                        f"rank {rank}: one all_reduce for each of {parameters} parameters",
                        f"{calls} calls of all_reduce in one step",
                        "each hook starts the all_reduce of its own parameter, once",
                    )
                _judge_gradients(errors, rank, world_size)
                checking.at_most(
                    parameters - early, 2, what="gradients not on their way when the first "
                    "layer's backward began", unit="gradients",
                    meaning="the calls start after backward is over, or each hook waits at once: "
                    "start with async_op=True inside the hook and wait in finish()",
                )  # fmt: skip
        verdict.reached = f"{early} of {parameters} on their way early"


class _Marker(torch.autograd.Function):
    """Does nothing, and notes when backward passes by."""

    @staticmethod
    def forward(ctx, x, log, seen):
        ctx.log, ctx.seen = log, seen
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.seen.append(len(ctx.log))
        return gradient, None, None


def _network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))


def _train_overlapped(attach: Attach):
    model, reference = _network(), _network()
    calls: list[bool] = []
    plain = dist.all_reduce

    def counted(*args, **kwargs):
        calls.append(bool(kwargs.get("async_op")))
        return plain(*args, **kwargs)

    dist.all_reduce = counted
    try:
        finish = attach(model)
        errors, seen = [], []
        for step in range(2):
            x = checking.rank_data(24, rank=dist.get_rank(), seed=step).view(4, 6) / 99
            calls.clear()
            hidden = _Marker.apply(model[0](x), calls, seen)
            for layer in list(model)[1:]:
                hidden = layer(hidden)
            model.zero_grad()
            hidden.square().sum().backward()
            early = sum(calls[: seen[-1]])
            if finish is None or not callable(finish):
                return "no finish", 0, 0, 0
            finish()
            count = len(calls)
            errors.append(_compare(model, reference, x, plain))
    finally:
        dist.all_reduce = plain
    return errors, early, count, len(list(model.parameters()))


def _compare(model, reference, x, all_reduce) -> list[tuple[float, float, float]]:
    """Return each gradient's largest distance from the mean, the sum, and this rank's own."""
    reference.zero_grad()
    reference(x).square().sum().backward()
    world_size, errors = dist.get_world_size(), []
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        own = theirs.grad.clone()
        total = own.clone()
        all_reduce(total)
        wanted = (total / world_size, total, own)
        scale = float(total.abs().max()) + 1e-12
        errors.append(tuple(float((ours.grad - w).abs().max()) / scale for w in wanted))
    return errors


def _judge_gradients(errors, rank: int, world_size: int) -> None:
    for step, per_parameter in enumerate(errors):
        mean, total, own = (max(column) for column in zip(*per_parameter, strict=True))
        if mean < 1e-5:
            continue
        if total < 1e-5:
            meaning = "this is the sum over the ranks: divide by the world size"
        elif own < 1e-5:
            meaning = "these are the rank's own gradients: nothing was averaged, or not in place"
        elif step > 0:
            meaning = "the first step was right: forget last step's works before the next one"
        else:
            meaning = "wait() for every work before you divide, and divide each gradient once"
        raise CheckFailed(
            f"rank {rank} of {world_size}, step {step}: the mean of the ranks' gradients",
            f"relative distance {mean:.2g}",
            meaning,
        )


Exposed = Callable[[Sequence[float], Sequence[int], Callable[[int], float], float], float]


def check_exposed(exposed: Exposed) -> None:
    """Judge exercise 2.4 on schedules where the usual short cuts go wrong.

    Raises:
        CheckFailed: the exposed time differs from the schedule's.
    """

    def cost(nbytes: int) -> float:
        return 0.001 + nbytes * 1e-9

    mb = 1_000_000
    cases = {
        "one bucket, ready in the middle": ([0.02], [30 * mb], 0.04),
        "two buckets, the wire is still busy": ([0.01, 0.02], [40 * mb, 40 * mb], 0.05),
        "all hidden": ([0.01, 0.02], [5 * mb, 5 * mb], 0.10),
        "the wire rests in between": ([0.00, 0.09], [10 * mb, 20 * mb], 0.10),
        "all after backward": ([0.05, 0.05, 0.05], [mb, 2 * mb, 3 * mb], 0.05),
        "nothing to send": ([], [], 0.05),
    }
    with checking.exercise("2.4", par="the schedule's time, six times") as verdict:
        for what, (ready, nbytes, backward) in cases.items():
            wanted = model.exposed(ready, nbytes, cost, backward=backward)
            got = exposed(list(ready), list(nbytes), cost, backward)
            checking.answer(got, float, what=f"{what}: seconds")
            if abs(got - wanted) <= 1e-9:
                continue
            alone = [r + cost(b) - backward for r, b in zip(ready, nbytes, strict=True)]
            busy = sum(map(cost, nbytes))
            meaning = checking.diagnose(got, {
                "that is all of the communication, hidden or not": busy,
                "communication cannot start before a bucket is ready": busy - backward,
                "the wire carries one bucket at a time: a ready bucket may have to wait":
                    max(0.0, *alone, 0.0),
                "subtract backward: only what ends after it is exposed": wanted + backward,
            }, otherwise="communication that ends before backward is hidden: exposed time is never "
                "negative" if got < 0 else "begin = max(ready, when the wire is free); end = begin "
                "+ cost; go on from there")  # fmt: skip
            raise CheckFailed(
                f"{what}: {1e3 * wanted:.3f} ms exposed", f"{1e3 * got:.3f} ms", meaning
            )
        verdict.reached = "all six"
