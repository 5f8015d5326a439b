"""Pictures of lesson 05: timelines of pipelines, ladders of channels, copies on links."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch

from labkit.lessons.pipeline_p2p import experiment
from labkit.lessons.pipeline_p2p.simulator import Timeline
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.show.plots import bars, describe, new_axes, new_figure, spread, stamp, style

__all__ = ["compare", "copies", "draw", "ladder", "timeline"]

LOOK = {"F": style(5), "B": style(4)}  # light blue and orange, told apart by hatching and letter
ARROW = {"F": style(0), "B": style(1)}


def timeline(
    seen: Timeline,
    *,
    title: str = "",
    ax: Axes | None = None,
    until: float | None = None,
    names: bool = True,
    arrows: bool = True,
) -> Axes:
    """Draw one row per rank: its tasks as boxes, transfers as arrows between the rows.

    Args:
        seen: The timeline, measured or simulated.
        title: What it shows.
        ax: Where to draw.
        until: End of the time axis in seconds, to put two pictures on one scale.
        names: Write F3 or B3 into each box.
        arrows: Draw the transfers.
    """
    ax = new_axes(title, x="Time", xunit="ms", y="Rank", ax=ax, size=(10, 3.0))
    ax.grid(visible=False)
    for rank, task, span in seen.tasks:
        look = LOOK[task.kind]
        ax.barh(
            rank, 1e3 * span.seconds, left=1e3 * span.begin, height=0.62, color=look.color,
            hatch="////" if task.kind == "B" else "", edgecolor="white", linewidth=0.8,
        )  # fmt: skip
        if names:
            _name(ax, str(task), x=500 * (span.begin + span.end), y=rank)
    for transfer, span in seen.transfers if arrows else ():
        look = ARROW[transfer.task.kind]
        down = 1 if transfer.dst > transfer.src else -1
        ends = [
            (1e3 * span.begin, transfer.src + 0.31 * down),
            (1e3 * span.end, transfer.dst - 0.31 * down),
        ]
        ax.add_patch(
            FancyArrowPatch(
                *ends,
                arrowstyle="-|>",
                mutation_scale=8,
                color=look.color,
                linewidth=1.1,
                linestyle=look.linestyle,
                shrinkA=0,
                shrinkB=0,
                alpha=0.85,
            )
        )
    ax.set_yticks(range(seen.world_size), [f"rank {rank}" for rank in range(seen.world_size)])
    ax.set_ylim(seen.world_size - 0.5, -0.5)
    ax.set_xlim(0, 1e3 * (until or seen.seconds))
    ax.legend(
        handles=[
            Patch(fc=LOOK["F"].color, label="F forward"),
            Patch(fc=LOOK["B"].color, hatch="////", ec="white", label="B backward"),
        ],
        loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False, ncols=2,
    )  # fmt: skip
    describe(
        ax,
        f"Timeline of {seen.world_size} ranks: {len(seen.tasks)} tasks and "
        f"{len(seen.transfers)} transfers in {1e3 * seen.seconds:.0f} ms; the ranks do not "
        f"compute for {seen.bubble:.0%} of the time.",
        table=_rows(seen),
    )
    return ax


def compare(
    seen: Sequence[tuple[str, Timeline]], *, tier: Tier | str, provenance=None, note: str = ""
) -> Figure:
    """Draw timelines below each other on one time axis, each with its title."""
    figure, panels = new_figure(len(seen), 1, size=(10, 0.5 + 2.5 * len(seen)))
    until = max(one.seconds for _, one in seen)
    for panel, (title, one) in zip(panels, seen, strict=True):
        ax = timeline(
            one, title=f"{title}: {1e3 * one.seconds:.0f} ms", ax=panel, until=1.01 * until,
            names=until < 1.1,
        )  # fmt: skip
        stamp(ax, tier, provenance, note=note)
    return figure


def ladder(records: Sequence[Record], *, schedule: str, ax: Axes | None = None) -> Axes:
    """Draw a schedule's step time on each channel: measured as bars, predicted as crosses."""
    chosen = [record for record in records if record.params.get("schedule") == schedule]
    return _bars_with_model(
        chosen,
        names=[record.params["channel"] for record in chosen],
        title=schedule,
        ax=ax,
    )


def copies(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the times of copies to two destinations, measured and predicted."""
    chosen = [record for record in records if "mode" in record.params]
    return _bars_with_model(
        chosen,
        names=[record.params["mode"] for record in chosen],
        title="Ten copies, two destinations",
        ax=ax,
    )


def draw(records: Sequence[Record]) -> Figure:
    """Draw all ladders of the experiment in one picture."""
    schedules = [
        name
        for name in experiment.SCHEDULES
        if any(record.params.get("schedule") == name for record in records)
    ]
    figure, panels = new_figure(
        2, 2, title="The order of transfers decides the step time", size=(11, 6.4)
    )
    for panel, name in zip(panels, schedules, strict=False):
        ladder(records, schedule=name, ax=panel)
    copies(records, ax=panels[3])
    return figure


def _bars_with_model(
    records: Sequence[Record], *, names: Sequence[str], title: str, ax: Axes | None
) -> Axes:
    ax = new_axes(title, x="Time of a step", xunit="ms", ax=ax)
    medians, band = spread(records, "ms")
    predicted = [1e3 * record.predicted for record in records]
    bars(
        ax,
        names,
        medians,
        **band,
        series=list(range(len(names))),
        value_format="    {:.0f}",
    )
    look = {"markersize": 8, "markeredgecolor": "white", "linestyle": "none"}
    ax.plot(predicted, range(len(names)), "X", color="black", **look)
    said = "; ".join(
        f"{name}: {median:.0f} ms measured, {expected:.0f} ms predicted"
        for name, median, expected in zip(names, medians, predicted, strict=True)
    )
    describe(ax, f"{title}. {said}.")
    stamp(ax, records[0].tier, records[0].provenance, note="crosses: MODELLED")
    return ax


def _name(ax: Axes, text: str, *, x: float, y: float) -> None:
    box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
    ax.text(x, y, text, ha="center", va="center", fontsize=7.5, bbox=box)


def _rows(seen: Timeline) -> Table:
    rows = [
        [f"rank {rank}", str(task), 1e3 * span.begin, 1e3 * span.end]
        for rank, task, span in seen.tasks
    ]
    rows += [
        [f"{transfer.src}→{transfer.dst}", str(transfer.task), 1e3 * span.begin, 1e3 * span.end]
        for transfer, span in seen.transfers
    ]
    return Table(["where", "what", "begin ms", "end ms"], rows)
