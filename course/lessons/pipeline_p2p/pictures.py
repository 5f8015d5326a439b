"""Pictures of lesson 05: timelines of steps, times of channels and copies, pipelines at scale."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.pipeline_p2p import published
from course.lessons.pipeline_p2p.experiment import case_name
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, ideal_bubble, programs
from course.lessons.pipeline_p2p.simulator import Costs, Deadlock, StepTimeline, simulate_programs
from labkit.measure.records import Record, Tier
from labkit.show import plots
from labkit.show.plots import bars, describe, line, new_axes, new_figure, stamp, style
from labkit.show.timeline import Arrow, Bar, draw_lanes

KINDS = {"F": "F forward", "B": "B backward"}
LOOKS = {"F forward": replace(style(5), hatch=""), "B backward": style(4)}
COURSES = (
    ("gpipe", Channel.ORDERED, 0),
    ("1f1b", Channel.ORDERED, 0),
    ("eager 1f1b", Channel.ORDERED, 0),
    ("eager 1f1b", Channel.ORDERED, 1),
    ("eager 1f1b", Channel.TAGGED, 0),
)
"""Schedule, channel, by how many tasks receives stand early."""


def step(
    seen: StepTimeline,
    *,
    title: str = "",
    ax: Axes | None = None,
    until: float | None = None,
    names: bool = True,
) -> Axes:
    """Draw one row per rank: its tasks as boxes, transfers as arrows between the rows.

    `until` is the end of the time axis in seconds, to put two pictures on one scale; `names` writes
    F3 or B3 into each box.
    """
    bars = [
        Bar(rank, KINDS[task.kind], at.begin, at.end, label=str(task) if names else "")
        for rank, task, at in seen.tasks
    ]
    arrows = [
        Arrow(t.src, at.begin, t.dst, at.end, KINDS[t.task.kind], label=str(t.task))
        for t, at in seen.transfers
    ]
    said = (
        f"Timeline of {seen.world_size} ranks: {len(bars)} tasks and {len(arrows)} transfers in "
        f"{1e3 * seen.seconds:.0f} ms; the ranks do not compute for {seen.bubble:.0%} of the time."
    )
    ranks = [f"rank {rank}" for rank in range(seen.world_size)]
    more = {"arrows": arrows, "looks": LOOKS, "said": said}
    return draw_lanes(ranks, bars, **more, title=title, until=until, ax=ax)


def steps(seen: Sequence[tuple[str, StepTimeline]], *, tier: Tier | str, provenance=None) -> Figure:
    """Draw timelines below each other on one time axis, each with its title."""
    figure, panels = new_figure(len(seen), 1, size=(10, 0.5 + 2.5 * len(seen)))
    until = max(one.seconds for _, one in seen)
    for panel, (title, one) in zip(panels, seen, strict=True):
        title = f"{title}: {1e3 * one.seconds:.0f} ms"
        step(one, title=title, ax=panel, until=1.01 * until, names=until < 1.1)
        stamp(panel, tier, provenance)
    return figure


def copies(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the times of copies to two destinations, measured and predicted."""
    chosen = [record for record in records if "mode" in record.params]
    names = [record.params["mode"] for record in chosen]
    return _ladder(chosen, names, title="Ten copies, two destinations", ax=ax)


def draw(records: Sequence[Record]) -> Figure:
    """Draw each schedule's step time on each channel, and the copies, measured and predicted."""
    figure, panels = new_figure(
        2, 2, title="The order of transfers decides the step time", size=(11, 6.4)
    )
    for panel, name in zip(panels, SCHEDULES, strict=False):
        chosen = [record for record in records if record.params.get("schedule") == name]
        _ladder(chosen, [_way(record) for record in chosen], title=name, ax=panel)
    copies(records, ax=panels[3])
    return figure


def _way(record: Record) -> str:
    early = record.params.get("ahead", 0)
    return record.params["channel"] + (f", {early} early" if early else "")


def _ladder(
    records: Sequence[Record], names: Sequence[str], *, title: str, ax: Axes | None
) -> Axes:
    return plots.ladder(
        records, title=title, x="Time of a step", names=names, series=list(range(len(names))),
        value_format="    {:.0f}", ax=ax,
    )  # fmt: skip


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw the thread's four ways to make ten transfers."""
    ax = new_axes("The same ten transfers, four ways", x="Time", xunit="ms", ax=ax, size=(9, 3.2))
    times = {name: figure.value for name, figure in published.WAYS.items()}
    bars(ax, list(times), list(times.values()), series=[0, 1, 2, 3], value_format="{:.0f}")
    said = ", ".join(f"{name} {value:.0f} ms" for name, value in times.items())
    describe(ax, f"Ten transfers of 64 MB from one GPU to two others: {said}.")
    return plots.stamp_published(ax, *published.WAYS.values(), note="8x RTX 3090")


@cache
def slowness(
    schedule: str,
    channel: Channel,
    ahead: int = 0,
    *,
    stages: int,
    micro_batches: int,
    transfer: float,
) -> float:
    """Return a step's time over the time of its computing alone, without any bubble.

    NaN if it deadlocks. Receives stand `ahead` tasks early; `transfer` is the time of one over that
    of a forward task, and a backward task takes two.
    """
    ranks = programs(SCHEDULES[schedule](stages=stages, micro_batches=micro_batches), ahead=ahead)
    costs = Costs(1.0, 2.0, nbytes=transfer, rate=1.0)
    try:
        return simulate_programs(ranks, costs, channel=channel).seconds / (3.0 * micro_batches)
    except Deadlock:
        return float("nan")


def at_scale(stages: Sequence[int] = (4, 8, 16, 32), micro_batches: int = 32) -> Axes:
    """Draw the slowness of schedules and channels over the number of stages."""
    ax = new_axes(
        "More stages: the bubble grows, and the wrong order adds to it",
        x="Stages", y="Step time / computing alone", xscale="log", yscale="log", size=(8.6, 4.6),
    )  # fmt: skip
    transfer = 0.5
    sizes = {"micro_batches": micro_batches, "transfer": transfer}
    for series, course in enumerate(COURSES):
        values = [slowness(*course, stages=s, **sizes) for s in stages]
        line(ax, stages, values, label=case_name(*course), series=series)
    bubble = [1 / (1 - ideal_bubble(stages=s, micro_batches=micro_batches)) for s in stages]
    line(ax, stages, bubble, label="bubble alone", series=6)
    ax.set_xticks(stages, [str(s) for s in stages])
    ax.minorticks_off()
    describe(ax, f"With {micro_batches} micro-batches and transfers of {transfer:g} forward tasks, "
             f"from {stages[0]} to {stages[-1]} stages.")  # fmt: skip
    note = f"{micro_batches} micro-batches, transfer = {transfer:g} forward, backward = 2"
    return stamp(ax, Tier.MODELLED, note=note)


def explore_scale(stages: int, micro_batches: int, transfer: float) -> Axes:
    """Draw the slowness of schedules and channels for one pipeline; for `widgets.explore`."""
    sizes = {"stages": stages, "micro_batches": micro_batches, "transfer": transfer}
    found = {case_name(*course): slowness(*course, **sizes) for course in COURSES}
    runs = {name: value for name, value in found.items() if value == value}
    bubble = 1 / (1 - ideal_bubble(stages=stages, micro_batches=micro_batches))
    ax = new_axes(
        f"{stages} stages, {micro_batches} micro-batches", x="Step time / computing alone",
        size=(8.6, 3.4),
    )  # fmt: skip
    series = [6, *(list(found).index(name) for name in runs)]
    bars(ax, ["bubble alone", *runs], [bubble, *runs.values()], series=series)
    best = min(runs, key=runs.get)
    said = f"The best is {best} with {runs[best]:.2f}; the bubble alone costs {bubble:.2f}."
    dead = [name for name in found if name not in runs]
    note = f"transfer = {transfer:g} forward, backward = 2 forward"
    if dead:
        note += f"; deadlock: {', '.join(dead)}"
    describe(ax, f"{said} {'Deadlock: ' + ', '.join(dead) + '.' if dead else ''}")
    return stamp(ax, Tier.MODELLED, note=note)
