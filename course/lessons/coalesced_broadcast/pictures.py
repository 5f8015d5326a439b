"""Pictures of lesson 3: the pull request's figures, ways side by side, time beside memory."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import evidence, experiment, programs
from course.published import load
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.timeline import Bar, draw_lanes


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw what the pull request's author measured."""
    title = "About 100 MB between two nodes"
    ax = plots.new_axes(title, x="Time", xunit="ms", size=(8, 2.4), ax=ax)
    figures = [load("coalesced_broadcast")[name] for name in ("original", "coalesced")]
    ms = [1e3 * figure.value for figure in figures]
    plots.bars(ax, ["the original logic", "one broadcast"], ms, series=[1, 0])
    plots.describe(ax, "Tensor by tensor 43.6 ms, in one coalesced broadcast 26.8 ms.")
    return plots.stamp_published(ax, *figures, note="'a rough perf evaluation'")


def side_by_side(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw the time of one broadcast of the state, each way."""
    title = f"One broadcast of {records[0].nbytes / MB:.0f} MB in 320 tensors"
    return plots.ladder(records, title=title, value_format="{:.0f}", ax=ax)


def places_of_votes(
    records: Sequence[Record], ways: Mapping[str, Mapping]
) -> dict[str, tuple[float, float]]:
    """Return where in `side_by_side` a vote on the fastest bucket points to, by its letter."""
    cases, of_cap = [record.case for record in records], evidence.by_cap(records, ways)
    voted = {"a": of_cap.get(0), "b": of_cap.get(10 * MB), "c": of_cap.get(None)}
    return {
        letter: (1e3 * record.summary.median, cases.index(record.case))
        for letter, record in voted.items()
        if record
    }


def accounts(records: Sequence[Record]) -> Table:
    """Return time, page faults and CPU time in Linux, as `experiment.compare` counted them."""
    rows = [
        [
            record.case,
            f"{1e3 * record.summary.median:.0f}",
            f"{record.values['faults']:,.0f}",
            f"{1e3 * record.values['system']:.0f}",
        ]
        for record in records
    ]
    heads = ["way", "ms", "page faults of a rank", "a rank's CPU time in Linux, ms"]
    return Table(heads, rows, title=f"{records[0].tier}: one broadcast, in pages of 4 KiB and 2 MB")


def theirs_and_ours(records: Sequence[Record]) -> Figure:
    """Draw the author's figures, and below them what the posted code takes here."""
    figure, (theirs, ours) = plots.new_figure(2, 1, size=(8, 4.8))
    puzzle(theirs)
    side_by_side(records, ours)
    return figure


SERIES = {"packing": 3, "on its way": 0, "waiting": 1, "unpacking": 2}
LOOKS = {what: plots.style(series) for what, series in SERIES.items()}
"""What `programs.watch` notes, and how it looks."""


def in_time(seen: Sequence[Mapping[str, Sequence[programs.Spans]]]) -> Figure:
    """Draw, way by way on one time axis, what became of each bucket on two ranks.

    `seen` holds what `programs.watch` returned on each rank. Of each way's broadcasts the one is
    drawn whose time is the median.
    """
    typical = {}
    for name, spans in seen[0].items():
        repeats = zip(*(rank[name] for rank in seen), strict=True)
        typical[name] = sorted(repeats, key=_end)[len(spans) // 2]
    until = max(_end(ranks) for ranks in typical.values())
    figure, axes = plots.new_figure(len(typical), size=(6.4, 1.9 * len(typical) + 0.6))
    for ax, (name, ranks) in zip(axes, typical.items(), strict=True):
        bars, sums = [], []
        for lane, rank in enumerate(ranks):
            took = dict.fromkeys(LOOKS, 0.0)
            for what, _, begin, end in rank:
                took[what] += 1e3 * (end - begin)
                bars.append(Bar(lane, what, begin, end, behind=what == "on its way"))
            parts = ", ".join(f"{what} {ms:.0f} ms" for what, ms in took.items())
            sums.append(f"rank {lane} {parts}")
        count = len({number for _, number, *_ in ranks[0]})
        words = f"{name}, {count} flat buffers: {'; '.join(sums)}."
        lanes = ["rank 0", "rank 1"]
        draw_lanes(lanes, bars, description=words, looks=LOOKS, title=name, until=until, ax=ax)
        note = f"the median of {len(seen[0][name])} broadcasts"
        plots.stamp(ax, Tier.MEASURED, Provenance.here(), note=note)
    return figure


def _end(ranks: Sequence[programs.Spans]) -> float:
    return max(end for rank in ranks for *_, end in rank)


def memory(records: Sequence[Record]) -> Axes:
    """Draw the buffers' memory beside the time of each way."""
    axes, rows = {"x": "Time", "xunit": "ms", "y": "New buffers, at most", "yunit": "MB"}, []
    ax = plots.new_axes("What a broadcast takes", **axes)
    for record in records:
        place = 1e3 * record.summary.median, record.values["peak"] / MB
        ax.plot(*place, "o", color=plots.style(0).color)
        ax.annotate(record.case, place, (6, 5), textcoords="offset points", fontsize=9)
        rows.append([record.case, *(round(figure, 1) for figure in place)])
    ax.margins(x=0.25, y=0.15)
    ax.set(xlim=(0, None), ylim=(-3, None))
    words = "; ".join(f"{case}: {ms} ms, {megabytes} MB" for case, ms, megabytes in rows)
    plots.describe(ax, f"{words}.", table=Table(["way", "ms", "MB"], rows))
    note = "counted from the tensors of one rank"
    return plots.stamp(ax, records[0].tier, records[0].provenance, note=note)


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: the curve on loopback."""
    apart = [r for r in records if "asks" not in r.params and r.params["rate"] != experiment.LINK]
    return side_by_side([record for record in apart if record.case in programs.CURVE]).figure
