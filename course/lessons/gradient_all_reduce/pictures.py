"""Pictures of lesson 2: the thread's figures, timers by call, who waits, the rungs."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.gradient_all_reduce import experiment as problem
from course.lessons.gradient_all_reduce.experiment import Timer
from course.published import load
from course.runs import by_case
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.measure.timeline import Timeline
from labkit.measure.trace import MAIN, Kind
from labkit.show.plots import (
    INK,
    SOFT,
    bars,
    describe,
    matrix,
    new_axes,
    new_figure,
    stamp,
    stamp_published,
    style,
)
from labkit.show.timeline import Bar, draw_lanes

CLASSIFIER = 16
"""The first call of the classifier: six of the 22 follow, this one included."""
_LOOKS = {Kind.COMPUTE: style(5), Kind.PACK: style(3), Kind.WAIT: style(1), Kind.MOVE: style(0)}
"""How the kinds of spans look: by colour and hatching, so that colours are not needed."""


def puzzle() -> Axes:
    """Draw what the thread measured: the training's all_reduces beside the benchmark's."""
    published = load("gradient_all_reduce")
    figures = {"in training": published["in_training"], "in a benchmark": published["benchmark"]}
    ax = new_axes("As many bytes between the same 16 GPUs", x="Time", xunit="ms", size=(8, 2.4))
    bars(ax, list(figures), [figure.value for figure in figures.values()], series=[1, 0])
    stamp_published(ax, *figures.values())
    describe(ax, "In training the classifier's six all_reduces take 280.7 ms; a benchmark of as "
             "many bytes takes about 60.")  # fmt: skip
    return ax


def by_call(runs: Mapping[str, Sequence[Timer]], record: Record, ax: Axes | None = None) -> Axes:
    """Draw rank 0's stopwatch around each call, two runs side by side; waiting is hatched."""
    ax = new_axes("Rank 0's stopwatch, call by call", x="Call, in the order of the loop",
                  y="Time in the call", yunit="ms", ax=ax, size=(10, 4))  # fmt: skip
    columns: list[list] = []
    for series, (label, timers) in enumerate(runs.items()):
        at = np.arange(len(timers)) + 0.42 * series - 0.21
        wait, move = (
            1e3 * np.array([getattr(t, part) for t in timers]) for part in ("wait", "move")
        )
        look = {"width": 0.38, "edgecolor": style(series).color, "color": style(series).color}
        ax.bar(at, move, label=f"{label}: moving", **look)
        look |= {"color": "white", "hatch": "//////"}
        ax.bar(at, wait, bottom=move, label=f"{label}: waiting", **look)
        columns += [wait.round(1).tolist(), move.round(1).tolist()]
    names = [timer.name for timer in timers]
    ax.axvspan(CLASSIFIER - 0.5, len(names) - 0.5, color=SOFT, alpha=0.12, linewidth=0)
    ax.text(CLASSIFIER - 0.4, 0.87, "the classifier's six calls:\nthe thread's 280 ms",
            transform=ax.get_xaxis_transform(), va="top", fontsize=9, color=INK)  # fmt: skip
    ax.set_xticks(range(len(names)), [str(place) for place in range(len(names))])
    ax.set_ylim(top=1.35 * ax.get_ylim()[1])  # room for the words in the shaded field
    ax.legend(fontsize=9, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    _stamp(ax, record)
    heads = ["tensor", *(f"{label}, {part} ms" for label in runs for part in ("waiting", "moving"))]
    first = "; ".join(f"{label}: {1e3 * calls[0].wait:.0f} ms" for label, calls in runs.items())
    last = "; ".join(
        f"{label}: {1e3 * sum(t.seconds for t in calls[CLASSIFIER:]):.0f} ms"
        for label, calls in runs.items()
    )
    describe(ax, f"Waiting in the first call: {first}. The last six calls together: {last}.",
             table=Table(heads, list(zip(names, *columns, strict=True))))  # fmt: skip
    return ax


def timers(record: Record) -> Axes:
    """Draw every rank's stopwatch around every call as a heat map."""
    ranks = problem.timeline(record).ranks
    values = [[1e3 * t.seconds for t in problem.timers(record, rank=rank)] for rank in ranks]
    calls = list(map(str, range(len(values[0]))))
    ax = new_axes("What each rank's stopwatch shows, in ms", x="Call", size=(11, 2.8))
    names = [f"rank {rank}" for rank in ranks]
    matrix(ax, values, rows=names, columns=calls, value_format="{:.0f}")
    _stamp(ax, record)
    describe(ax, "Milliseconds in each call, by rank: medians over the steps.")
    return ax


def arrivals(
    *,
    rank_0_ms: int = 0,
    rank_1_ms: int = 0,
    rank_2_ms: int = 60,
    rank_3_ms: int = 20,
) -> Axes:
    """Draw what four stopwatches show when ranks arrive at these times and moving takes 20 ms."""
    move, come = 20, (rank_0_ms, rank_1_ms, rank_2_ms, rank_3_ms)
    last, shown = max(come), [max(come) - at + move for at in come]
    ax = new_axes("One all_reduce, four stopwatches", x="Time", xunit="ms", size=(9, 3))
    places = np.arange(4)
    look = {"height": 0.6, "edgecolor": style(1).color}
    ax.barh(places, [last - at for at in come], left=come, color="white", hatch="//////",
            label="waiting for the last rank", **look)  # fmt: skip
    ax.barh(places, [move] * 4, left=last, height=0.6, color=style(0).color, label="moving bytes")
    for place, seconds in zip(places, shown, strict=True):
        ax.annotate(f"its timer: {seconds} ms", (last + move, place), (6, 0), va="center",
                    textcoords="offset points", fontsize=9)  # fmt: skip
    ax.axvline(last, color=SOFT, linestyle=":")
    ax.set(xlim=(0, 165), ylim=(3.6, -0.6))  # fixed, so that nothing jumps while a slider moves
    ax.set_yticks(places, [f"rank {place}" for place in places])
    ax.grid(visible=False, axis="y")
    ax.legend(fontsize=9, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)
    stamp(ax, Tier.MODELLED, note="moving takes 20 ms, and begins when the last rank is there")
    worst, guilty = shown.index(max(shown)), come.index(last)
    describe(
        ax,
        f"Worst timer: rank {worst}, {max(shown)} ms. Last to arrive: rank {guilty}, whose timer "
        f"shows {min(shown)} ms.",
    )
    return ax


def rungs(record: Record) -> Figure:
    """Draw the moving that each rung leaves exposed, and the last round as a timeline."""
    exposed, whole = problem.exposed(record), problem.timeline(record)
    third, last = list(exposed.values())[2], max(span.step for span in whole.spans)
    shares = [
        100 * median(here / there for here, there in zip(seconds, third, strict=True))
        for seconds in exposed.values()
    ]
    figure, (top, bottom) = new_figure(2, 1, size=(10, 6.4))
    ax = new_axes("Moving that nothing hides", x="Of rung 3 in the same round", xunit="%", ax=top)
    labels = [f"{rung}  ({1e3 * median(seconds):.0f} ms)" for rung, seconds in exposed.items()]
    bars(ax, labels, shares, value_format="{:.0f}")
    ax.set_ylim(3.6, -1.1)  # room for the learner's mark
    shown = whole.steps(last - 3, last)
    _draw_round(shown, bottom)
    bottom.set_ylim(4.1, -0.6)
    for number, step in enumerate(range(last - 3, last + 1), 1):
        spans = whole.steps(step, step).spans
        begin, end = min(s.begin for s in spans), max(s.end for s in spans)
        bottom.axvline(1e3 * (begin - shown.begin), color=SOFT, linestyle=":", linewidth=1)
        bottom.text(1e3 * ((begin + end) / 2 - shown.begin), 3.95, f"rung {number}", ha="center",
                    fontsize=9, color=INK)  # fmt: skip
    for panel in (top, bottom):
        _stamp(panel, record)
    describe(ax, f"Moving that nothing hides, per step: {'; '.join(labels)}.")
    return figure


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: what a late rank does to each call."""
    late = by_case(records)["late"]
    figure, (panel,) = new_figure(size=(10, 4.2), title=problem.TITLE)
    by_call(late_and_calm(late), late, ax=panel)
    return figure


def late_and_calm(record: Record) -> dict[str, list[Timer]]:
    """Return rank 0's timers of the steps with nobody late, and of those with rank 2 late."""
    steps = {"nobody late": slice(2, None, 2), "rank 2 late by 100 ms": slice(3, None, 2)}
    return {label: problem.timers(record, every=every) for label, every in steps.items()}


def _stamp(ax: Axes, record: Record) -> None:
    stamp(ax, record.tier, record.provenance, note="4 hosts", others=record.others)


def _draw_round(timeline: Timeline, ax: Axes) -> None:
    """Draw each rank's own thread and, thin below it, the collectives in the background."""
    split, table = timeline.split(), timeline.time_by_rank()
    bars = [
        Bar(lane, span.kind, span.begin - split.begin, span.end - split.begin,
            behind=span.channel != MAIN)
        for lane, rank in enumerate(split.ranks)
        for span in split.of(rank)
    ]  # fmt: skip
    ranks, wait = [str(rank) for rank in split.ranks], table.columns.index("wait ms")
    waits = "; ".join(f"rank {row[0]} waits {row[wait]:.0f} ms" for row in table.rows)
    title = "One round: the four rungs in turn"
    draw_lanes(ranks, bars, description=f"{title}. {waits}.", looks=_LOOKS, table=table,
               title=title, y="Rank", ax=ax)  # fmt: skip
