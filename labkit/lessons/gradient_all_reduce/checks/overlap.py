"""Check of exercise 2.3: gradients averaged from hooks, while backward runs."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from labkit.course import checking
from labkit.course.checking import CheckFailed

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
