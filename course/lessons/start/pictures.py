"""Pictures of lesson 0: messages with their fitted line, and a machine's figures."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.costs import AlphaBeta
from course.lessons.start.experiment import passport
from labkit.measure.records import Record
from labkit.show import plots


def ping_pong(
    records: Sequence[Record], link: AlphaBeta | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the time of one message against its size, with the line fitted to the fastest."""
    messages = [record for record in records if record.case == "ping-pong"]
    sizes = [record.nbytes for record in messages]
    axes = {"x": "Message", "xunit": "bytes", "y": "Time one way", "yunit": "µs"}
    axes |= {"xscale": "log", "yscale": "log"}
    ax = plots.new_axes("One message between two ranks", **axes, ax=ax)
    medians, band = plots.spread(messages, "µs")
    plots.line(ax, sizes, medians, **band, label="median, 10th to 90th percentile")
    fastest = [min(record.seconds) * 1e6 for record in messages]
    plots.line(ax, sizes, fastest, label="the fastest message", series=2)
    said = f"Time grows from {medians[0]:.0f} to {medians[-1]:.0f} µs over {len(sizes)} sizes."
    if link is not None:
        curve = [link.time(nbytes) * 1e6 for nbytes in sizes]
        label = f"α + β S: α = {link.alpha * 1e6:.3g} µs, 1/β = {link.bandwidth / 1e9:.3g} GB/s"
        plots.model_line(ax, sizes, curve, label=label)
        half = link.half_nbytes
        ax.axvline(half, color=plots.SOFT, linewidth=1, linestyle=":")
        ax.annotate(
            f"α/β = {half / 1e3:.0f} kB",
            (half, ax.get_ylim()[0]),
            xytext=(5, 6),
            textcoords="offset points",
            color=plots.SOFT,
            fontsize=9,
        )
        said += f" The line α + β S bends at {half / 1e3:.0f} kB."
    plots.stamp(ax, messages[0].tier, messages[0].provenance)
    plots.describe(ax, said)
    return ax


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `labkit run passport` saves."""
    return ping_pong(records, passport(records).link).figure
