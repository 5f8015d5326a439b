"""Pictures of lesson 3: the pull request's figures, ways side by side, time beside memory."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast import programs
from course.published import load
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.plots import bars, describe, new_axes, stamp, stamp_published


def puzzle() -> Axes:
    """Draw what the pull request's author measured."""
    ax = new_axes("About 100 MB between two nodes", x="Time", xunit="ms", size=(8, 2.4))
    published = load("coalesced_broadcast")
    figures = {"the original logic": published["original"], "one broadcast": published["coalesced"]}
    bars(ax, list(figures), [1e3 * figure.value for figure in figures.values()], series=[1, 0])
    stamp_published(ax, *figures.values(), note="'a rough perf evaluation'")
    describe(ax, "Tensor by tensor 43.6 ms, in one coalesced broadcast 26.8 ms.")
    return ax


def side_by_side(records: Sequence[Record]) -> Axes:
    """Draw the time of one broadcast of the state, each way."""
    title = f"One broadcast of {records[0].nbytes / MB:.0f} MB in 320 tensors"
    return plots.ladder(records, title=title, value_format="{:.0f}")


def memory(records: Sequence[Record]) -> Axes:
    """Draw the buffers' memory beside the time of each way."""
    ax = new_axes(
        "What a broadcast takes", x="Time", xunit="ms", y="New buffers, at most", yunit="MB"
    )
    rows = []
    for record in records:
        x, y = 1e3 * record.summary.median, record.values["peak"] / MB
        ax.plot(x, y, "o", color=plots.style(0).color)
        ax.annotate(record.case, (x, y), (6, 5), textcoords="offset points", fontsize=9)
        rows.append([record.case, round(x, 1), round(y, 1)])
    ax.margins(x=0.25, y=0.15)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=-3)
    stamp(ax, records[0].tier, records[0].provenance, note="counted from the tensors of one rank")
    words = "; ".join(f"{case}: {ms} ms, {megabytes} MB" for case, ms, megabytes in rows)
    describe(ax, f"{words}.", table=Table(["way", "ms", "MB"], rows))
    return ax


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: the curve on loopback."""
    curve = [r for r in records if r.case in programs.CURVE and r.params["rate"] != problem.LINK]
    return side_by_side(curve).figure
