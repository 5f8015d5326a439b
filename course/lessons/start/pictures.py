"""Pictures of lesson 0: five clocks, and messages with a line through them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.costs import AlphaBeta
from course.lessons.start.experiment import fitted
from labkit.measure.records import Provenance, Record, Tier
from labkit.show import plots


def clocks(seconds: Mapping[str, float]) -> Axes:
    """Draw each colleague's figure as a point; an axis of powers of ten has no room for bars."""
    title = "Five clocks, one all_reduce of 4 MiB"
    ax = plots.new_axes(title, x="Time", xunit="ms", xscale="log", size=(9, 2.8))
    figures = [1e3 * value for value in seconds.values()]
    ax.plot(figures, range(len(figures)), "o", color=plots.style(0).color, markersize=9)
    for place, value in enumerate(figures):
        ax.annotate(f"{value:.3g}", (value, place), (9, 0), textcoords="offset points", va="center")
    ax.set_yticks(range(len(figures)), list(seconds))
    ax.set_ylim(len(figures) - 0.5, -0.5)
    ax.margins(x=0.12)
    ax.grid(visible=True, axis="x", color=plots.FAINT)
    plots.stamp(ax, Tier.MEASURED, Provenance.here())
    shown = "; ".join(
        f"{name} {value:.3g} ms" for name, value in zip(seconds, figures, strict=True)
    )
    plots.describe(ax, f"Times of the same call: {shown}.")
    return ax


def ping_pong(messages: Sequence[Record], link: AlphaBeta | None = None) -> Axes:
    """Draw the time of one message against its size, the fastest as well, and a model's line."""
    sizes = [record.nbytes for record in messages]
    axes = {"x": "Message", "xunit": "bytes", "y": "Time one way", "yunit": "µs"}
    axes |= {"xscale": "log", "yscale": "log"}
    ax = plots.new_axes("One message between two ranks", **axes)
    medians, band = plots.spread(messages, "µs")
    plots.line(ax, sizes, medians, **band, label="median, 10th to 90th percentile")
    fastest = [min(record.seconds) * 1e6 for record in messages]
    plots.line(ax, sizes, fastest, label="the fastest message", series=2)
    text = f"Time grows from {medians[0]:.0f} to {medians[-1]:.0f} µs over {len(sizes)} sizes."
    if link is not None:
        curve = [link.time(nbytes) * 1e6 for nbytes in sizes]
        label = f"α + β S: α = {link.alpha * 1e6:.4g} µs, 1/β = {link.bandwidth / 1e9:.3g} GB/s"
        plots.model_line(ax, sizes, curve, label=label)
        half = link.half_nbytes
        ax.axvline(half, color=plots.SOFT, linewidth=1, linestyle=":")
        ax.annotate(
            f"α/β = {half / 1e3:,.4g} kB",
            (half, ax.get_ylim()[0]),
            xytext=(5, 6),
            textcoords="offset points",
            color=plots.SOFT,
            fontsize=9,
        )
        text += f" The line α + β S bends at {half / 1e3:.0f} kB."
    plots.stamp(ax, messages[0].tier, messages[0].provenance, others=messages[0].others)
    plots.describe(ax, text)
    return ax


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `course run passport` saves: the line is that of `fitted`."""
    return ping_pong(records, fitted(records)).figure
