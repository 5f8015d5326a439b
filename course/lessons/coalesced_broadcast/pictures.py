"""Pictures of lesson 3: the pull request's figures, ways side by side, time beside memory."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast import programs
from course.published import load
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.plots import bars, describe, new_axes, stamp, stamp_published
from labkit.show.timeline import Bar, draw_lanes


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw what the pull request's author measured."""
    ax = new_axes("About 100 MB between two nodes", x="Time", xunit="ms", size=(8, 2.4), ax=ax)
    published = load("coalesced_broadcast")
    figures = {"the original logic": published["original"], "one broadcast": published["coalesced"]}
    bars(ax, list(figures), [1e3 * figure.value for figure in figures.values()], series=[1, 0])
    stamp_published(ax, *figures.values(), note="'a rough perf evaluation'")
    describe(ax, "Tensor by tensor 43.6 ms, in one coalesced broadcast 26.8 ms.")
    return ax


def side_by_side(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw the time of one broadcast of the state, each way."""
    title = f"One broadcast of {records[0].nbytes / MB:.0f} MB in 320 tensors"
    return plots.ladder(records, title=title, value_format="{:.0f}", ax=ax)


def theirs_and_ours(records: Sequence[Record]) -> Figure:
    """Draw the author's figures, and below them what the posted code takes here."""
    figure, (theirs, ours) = plots.new_figure(2, 1, size=(8, 4.8))
    puzzle(theirs)
    side_by_side(records, ours)
    return figure


LOOKS = {"packing": 3, "on its way": 0, "waiting": 1, "unpacking": 2}
"""What `programs.watch` notes -> the series whose look it has."""


def in_time(seen: Sequence[Mapping[str, Sequence[programs.Spans]]]) -> Figure:
    """Draw, way by way on one time axis, what became of each bucket on two ranks.

    `seen` holds what `programs.watch` returned on each rank. Of each way's broadcasts the one is
    drawn whose time is the median.
    """
    typical = {
        name: _typical(list(zip(*(rank[name] for rank in seen), strict=True))) for name in seen[0]
    }
    until = max(_end(ranks) for ranks in typical.values())
    size = (6.4, 1.9 * len(typical) + 0.6)
    figure, axes = plots.new_figure(rows=len(typical), size=size)
    for ax, (name, ranks) in zip(axes, typical.items(), strict=True):
        bars = [
            Bar(lane, what, begin, end, behind=what == "on its way")
            for lane, rank in enumerate(ranks)
            for what, _, begin, end in rank
        ]
        sums = [
            f"rank {lane} {', '.join(f'{what} {_total(rank, what):.0f} ms' for what in LOOKS)}"
            for lane, rank in enumerate(ranks)
        ]
        count = len({number for _, number, *_ in ranks[0]})
        draw_lanes(
            ["rank 0", "rank 1"],
            bars,
            description=f"{name}, {count} flat buffers: {'; '.join(sums)}.",
            looks={what: plots.style(series) for what, series in LOOKS.items()},
            title=name,
            until=until,
            ax=ax,
        )
        times = len(seen[0][name])
        stamp(ax, Tier.MEASURED, Provenance.here(), note=f"the median of {times} broadcasts")
    return figure


def _typical(repeats: Sequence[Sequence[programs.Spans]]) -> Sequence[programs.Spans]:
    return sorted(repeats, key=_end)[len(repeats) // 2]


def _end(ranks: Sequence[programs.Spans]) -> float:
    return max(end for rank in ranks for *_, end in rank)


def _total(rank: programs.Spans, what: str) -> float:
    return 1e3 * sum(end - begin for name, _, begin, end in rank if name == what)


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
    on_loopback = [record for record in records if record.params["rate"] != problem.LINK]
    asked_nothing = [record for record in on_loopback if "asks" not in record.params]
    curve = [record for record in asked_nothing if record.case in programs.CURVE]
    return side_by_side(curve).figure
