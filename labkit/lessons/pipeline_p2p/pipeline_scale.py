"""Lesson 05's published table, and its pictures at scale. Everything here is a model or a quote."""

from functools import cache

from matplotlib.axes import Axes

from labkit.lessons.pipeline_p2p.pipeline import Channel
from labkit.lessons.pipeline_p2p.pipeline_cases import SCHEDULES
from labkit.lessons.pipeline_p2p.schedules import ideal_bubble
from labkit.lessons.pipeline_p2p.simulator import Costs, simulate
from labkit.measure.records import Tier
from labkit.show.plots import bars, describe, line, new_axes, stamp

__all__ = ["THREAD", "at_scale", "explore_scale", "puzzle", "slowness"]

THREAD = {
    "tensor.to, interleaved": 97.441,
    "tensor.to, overlapped": 75.075,
    "NCCL send": 270.14,
    "NCCL batch_isend_irecv": 298.44,
}
"""Milliseconds for ten sends of 64 MB to two GPUs, from the thread (see the lesson's sources)."""

COURSES = (
    ("gpipe", Channel.ORDERED),
    ("gpipe", Channel.TAGGED),
    ("1f1b", Channel.ORDERED),
    ("1f1b", Channel.TAGGED),
    ("eager 1f1b", Channel.TAGGED),
)


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw the thread's four ways to make ten transfers."""
    ax = new_axes("The same ten transfers, four ways", x="Time", xunit="ms", ax=ax)
    bars(ax, list(THREAD), list(THREAD.values()), series=[0, 1, 2, 3], value_format="{:.0f}")
    said = ", ".join(f"{name} {value:.0f} ms" for name, value in THREAD.items())
    describe(ax, f"Ten transfers of 64 MB from one GPU to two others: {said}.")
    return stamp(ax, Tier.PUBLISHED, note="8x RTX 3090, PyTorch dev forum")


@cache
def slowness(
    schedule: str, channel: Channel, *, stages: int, micro_batches: int, transfer: float
) -> float:
    """Return a step's time over the time of its computing alone, without any bubble.

    Args:
        schedule: A name of SCHEDULES.
        channel: How transfers are ordered.
        stages: Pipeline stages, one per rank.
        micro_batches: Micro-batches per step.
        transfer: Time of one transfer over that of one forward task; backward takes two.
    """
    plan = SCHEDULES[schedule](stages=stages, micro_batches=micro_batches)
    costs = Costs(1.0, 2.0, nbytes=transfer, rate=1.0)
    return simulate(plan, costs, channel=channel).seconds / (3.0 * micro_batches)


def at_scale(
    *,
    stages: tuple[int, ...] = (4, 8, 16, 32, 64),
    micro_batches: int = 32,
    transfer: float = 0.5,
    ax: Axes | None = None,
) -> Axes:
    """Draw the slowness of schedules and channels over the number of stages."""
    ax = new_axes(
        "More stages: the bubble grows, and the wrong order adds to it",
        x="Stages", y="Step time / computing alone", xscale="log", ax=ax, size=(8.6, 4.6),
    )  # fmt: skip
    for series, (schedule, channel) in enumerate(COURSES[::2]):
        values = [
            slowness(schedule, channel, stages=s, micro_batches=micro_batches, transfer=transfer)
            for s in stages
        ]
        line(ax, stages, values, label=f"{schedule}, {channel.value}", series=series)
    bubble = [1 / (1 - ideal_bubble(stages=s, micro_batches=micro_batches)) for s in stages]
    line(ax, stages, bubble, label="bubble alone", series=6)
    ax.set_xticks(stages, [str(s) for s in stages])
    ax.minorticks_off()
    describe(
        ax,
        f"With {micro_batches} micro-batches and transfers of {transfer:g} forward tasks, from "
        f"{stages[0]} to {stages[-1]} stages.",
    )
    return stamp(
        ax,
        Tier.MODELLED,
        note=f"{micro_batches} micro-batches, transfer = {transfer:g} forward, backward = 2",
    )


def explore_scale(stages: int, micro_batches: int, transfer: float) -> Axes:
    """Draw the slowness of schedules and channels for one pipeline; for `widgets.explore`."""
    names = [f"{schedule}, {channel.value}" for schedule, channel in COURSES]
    values = [
        slowness(schedule, channel, stages=stages, micro_batches=micro_batches, transfer=transfer)
        for schedule, channel in COURSES
    ]
    bubble = 1 / (1 - ideal_bubble(stages=stages, micro_batches=micro_batches))
    ax = new_axes(
        f"{stages} stages, {micro_batches} micro-batches", x="Step time / computing alone",
        size=(8.6, 3.4),
    )  # fmt: skip
    bars(ax, ["bubble alone", *names], [bubble, *values], series=[6, 0, 1, 2, 3, 4])
    best = min(zip(values, names, strict=True))
    describe(ax, f"The best is {best[1]} with {best[0]:.2f}; the bubble alone costs {bubble:.2f}.")
    return stamp(ax, Tier.MODELLED, note=f"transfer = {transfer:g} forward, backward = 2 forward")
