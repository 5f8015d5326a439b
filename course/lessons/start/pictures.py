"""Pictures of lesson 0: five clocks, and messages with a line through them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.costs import AlphaBeta
from course.lessons.start.experiment import fitted
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.timing import summarize
from labkit.show import plots
from labkit.show.timeline import Bar, draw_lanes


def clocks(samples: Mapping[str, Sequence[float]]) -> Axes:
    """Draw each colleague's samples, in seconds, and their median, on an axis of powers of ten."""
    title = "Five clocks, one all_reduce of 4 MiB"
    ax = plots.new_axes(title, x="Time", xunit="ms", xscale="log", size=(9, 2.8))
    color, shown = plots.style(0).color, []
    for place, (name, seconds) in enumerate(samples.items()):
        times, median = [1e3 * value for value in seconds], 1e3 * summarize(seconds).median
        ax.plot(times, [place] * len(times), "|", color=color, markersize=11, alpha=0.45)
        ax.plot(median, place, "o", color=color, markersize=9)
        above = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
        ax.annotate(f"{median:.3g}", (median, place), **above)
        shown.append(f"{name} {median:.3g} ms, {min(times):.3g} to {max(times):.3g}")
    what = CLOCKS | {"Dan": "the whole launch"}
    ax.set_yticks(range(len(samples)), [f"{name}: {what[name]}" for name in samples])
    ax.set_ylim(len(samples) - 0.5, -0.7)
    ax.margins(x=0.12)
    ax.grid(visible=True, axis="x", color=plots.FAINT)
    plots.describe(ax, f"Times of the same call, median and range: {'; '.join(shown)}.")
    note = "a stroke a sample, a dot their median"
    return plots.stamp(ax, Tier.MEASURED, Provenance.here(), note=note)


CLOCKS = {"Ada": "first call", "Ben": "only started", "Cleo": "with a late rank", "Eve": "aligned"}
"""Whose clock -> the stretch of rank 0, in `programs.five_clocks`, that it times."""


def stations(ranks: Sequence[Mapping[str, tuple]], began: float, ended: float) -> Axes:
    """Draw two ranks on one time axis, and above them from where to where each clock runs.

    `ranks` holds what `programs.five_clocks` returned on each of two ranks; `began` and `ended` are
    ``time.perf_counter()`` before and after the launch: Dan's start and stop.
    """
    bars = [
        Bar(lane, "late" if name == "late" else "all_reduce", begin - began, end - began)
        for lane, rank in enumerate(ranks, start=1 + len(CLOCKS))
        for name, (begin, end) in rank.items()
        if name != "only started"
    ]
    runs = {"Dan": (began, ended)} | {name: ranks[0][CLOCKS[name]] for name in CLOCKS}
    clocks = {name: (begin - began, end - began) for name, (begin, end) in runs.items()}
    waits = Bar(1 + len(CLOCKS), "waits for rank 1", clocks["Cleo"][0], ranks[1]["late"][1] - began)
    bars += [waits, *(Bar(i, "a clock runs", *run) for i, run in enumerate(clocks.values()))]
    series = {"a clock runs": 0, "all_reduce": 2, "waits for rank 1": 1, "late": 3}
    looks = {what: plots.style(number) for what, number in series.items()}
    times = {name: 1e3 * (end - begin) for name, (begin, end) in clocks.items()}
    lengths = ", ".join(f"{name}'s {value:.3g} ms" for name, value in times.items())
    words = (
        f"Two ranks on one time axis, and how long each clock runs: {lengths}. Dan's covers all; "
        "Ada's the ranks' first call; Ben's only the start of a call; Cleo's also the wait for "
        "rank 1, which is late; Eve's a call that both begin together."
    )
    lanes, ax = [f"{name}'s clock" for name in clocks], plots.new_axes(size=(6, 3.6))
    how = {"looks": looks, "title": "One launch, five clocks", "description": words, "ax": ax}
    draw_lanes([*lanes, "rank 0", "rank 1"], bars, **how)
    beside = {"xytext": (4, 0), "ha": "left", "color": plots.INK}
    inside = {"xytext": (-4, 0), "ha": "right", "color": "white", "fontweight": "bold"}
    for lane, (name, (_, end)) in enumerate(clocks.items()):
        stop = 1e3 * end, lane
        ax.plot(*stop, "|", color=looks["a clock runs"].color, markersize=14)  # Ben's, too
        look = inside if name == "Dan" else beside
        shown = f"{times[name]:.3g} ms"
        ax.annotate(shown, stop, textcoords="offset points", va="center", fontsize=9, **look)
    return plots.stamp(ax, Tier.MEASURED, Provenance.here())


def ping_pong(messages: Sequence[Record], link: AlphaBeta | None = None) -> Axes:
    """Draw the time of one message against its size, the fastest as well, and a model's line."""
    sizes = [record.nbytes for record in messages]
    axes = {"x": "Message", "xunit": "bytes", "y": "Time one way", "yunit": "µs", "xscale": "log"}
    ax = plots.new_axes("One message between two ranks", yscale="log", **axes)
    medians, band = plots.spread(messages, "µs")
    plots.line(ax, sizes, medians, **band, label="median, 10th to 90th percentile")
    fastest = [min(record.seconds) * 1e6 for record in messages]
    plots.line(ax, sizes, fastest, label="the fastest message", series=2)
    text = f"Time grows from {medians[0]:.0f} to {medians[-1]:.0f} µs over {len(sizes)} sizes."
    if link is not None:
        curve = [link.time(nbytes) * 1e6 for nbytes in sizes]
        label = f"α + β S: α = {link.alpha * 1e6:.4g} µs, 1/β = {link.bandwidth / 1e9:.3g} GB/s"
        plots.line(ax, sizes, curve, label=label, kind=Tier.MODELLED)
        half = link.half_nbytes
        bend = f"{half / 1e3:,.3g} kB" if half >= 100 else f"{half:.3g} bytes"
        ax.axvline(half, color=plots.SOFT, linewidth=1, linestyle=":")
        corner, beside = (half, ax.get_ylim()[0]), {"xytext": (5, 6), "textcoords": "offset points"}
        ax.annotate(f"α/β = {bend}", corner, color=plots.SOFT, fontsize=9, **beside)
        bends = f"bends at {bend}" if half >= 1 else "does not bend: these times fit no fixed cost"
        text += f" The line α + β S {bends}."
    plots.describe(ax, text)
    return plots.stamp(ax, messages[0].tier, messages[0].provenance, others=messages[0].others)


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `course run passport` saves: the line is that of `fitted`."""
    return ping_pong(records, fitted(records)).figure
