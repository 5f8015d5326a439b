"""Pictures of lesson 01: time against pairs, where the time goes, a call's path, and the ladder."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.gloo_scaling import published
from course.lessons.gloo_scaling.experiment import PER_CALL
from course.lessons.gloo_scaling.model import Saturation
from labkit.measure.records import Record
from labkit.show import plots

_THREADS = ("Python", "pt_gloo_runloop", "gloo_tcp_loop")
_THREADS += _THREADS[::-1]
_PATH = (
    (0, 1, "1: wake, a sum to do"),
    (1, 3, "2: four notices, 48 bytes each; wake"),
    (2, 3, "3: two parts of 100 bytes; wake"),
    (3, 4, "4: wake, data are there"),
    (4, 2, "5: four notices; wake"),
    (3, 2, "6: two parts of the sum; wake"),
    (2, 1, "7: wake, data are there"),
    (1, 0, "8: wake, done"),
)
"""What rank 0 sends and gets; every arrow is there in the other direction as well. Counted with
``strace -f`` on torch 2.13: 400 bytes, two ranks, a ring with two parts for each half."""


def thread(*, ax: Axes | None = None) -> Axes:
    """Draw the thread's own figures."""
    ax = _axes("The question: independent pairs, growing time", ax)
    pairs, times = list(PER_CALL), [1e6 * t for t in PER_CALL.values()]
    plots.published(ax, pairs, times, label=f"the thread: {published.CPUS.value} logical CPUs")
    _from_zero(ax)
    plots.describe(ax, f"From {times[0]:.0f} µs with 1 pair to {times[-1]:.0f} µs with 8, in line.")
    return plots.stamp_published(
        ax, published.SECONDS[1], note="rank 0's seconds there, divided by 1024"
    )


def growth(
    records: Sequence[Record],
    *,
    title: str = "Time per call",
    beside_published: bool = False,
    law: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw time per call against the number of pairs, a line for each case of the sweep.

    Beside it the thread's figures, and what the law predicts where it does, if asked for.
    """
    chosen = [record for record in records if record.params.get("part") == "sweep"]
    ax = _axes(title, ax)
    said, tiers = [], [str(chosen[0].tier)]
    for series, case in enumerate(dict.fromkeys(record.case for record in chosen)):
        line = [record for record in chosen if record.case == case]
        middle, band = plots.spread(line, "µs")
        pairs = [record.params["pairs"] for record in line]
        plots.line(ax, pairs, middle, **band, label=case, series=series)
        said.append(f"{case}: {middle[0]:.0f} to {middle[-1]:.0f} µs")
        told = {r.params["pairs"]: 1e6 * r.predicted for r in line if r.predicted is not None}
        if law and told:
            plots.model_line(
                ax, list(told), list(told.values()), label=f"{case}, the law", series=series
            )
            tiers.append("MODELLED")
    note = ""
    if beside_published:
        times = [1e6 * t for t in PER_CALL.values()]
        plots.published(ax, list(PER_CALL), times, label="the thread (PUBLISHED)")
        note = str(published.THREAD)
    _from_zero(ax)
    plots.stamp(ax, " + ".join(dict.fromkeys(tiers)), chosen[0].provenance, note=note)
    most = chosen[-1].params["pairs"]
    plots.describe(ax, f"Time per call from 1 to {most} pairs. {'; '.join(said)}.")
    return ax


def whereabouts(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw what one call costs a rank on CPUs, and how long its threads wait for a CPU."""
    ax = _axes(f"Where a rank's time goes ({records[0].case})", ax, y="Time of all threads")
    pairs = [record.params["pairs"] for record in records]
    for series, (key, label) in enumerate(
        {"on_cpu": "on a CPU", "waiting": "ready, waiting for a CPU"}.items()
    ):
        values = [record.values[key] * 1e6 for record in records]
        plots.line(ax, pairs, values, label=label, series=series)
    plots.stamp(ax, records[0].tier, records[0].provenance)
    plots.describe(ax, f"CPU time and waiting time per call for {pairs} pairs ({records[0].case}).")
    return ax


def path(*, ax: Axes | None = None) -> Axes:
    """Draw the path of one all_reduce of two ranks through their threads, time downwards."""
    ax = plots.new_axes("One call, thread by thread", ax=ax, size=(9, 4.6))
    for x, name in enumerate(_THREADS):
        ax.plot([x, x], [0.3, len(_PATH) + 0.7], color=plots.FAINT, linewidth=6, zorder=0)
        ax.text(x, 0.1, f"{name}\nrank {x // 3}", ha="center", va="bottom", fontsize=9)
    for y, (start, end, text) in enumerate(_PATH, start=1):
        color = plots.style(abs(start - end) == 1 and start // 3 == end // 3).color
        ax.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "->", "color": color})
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        ax.text((start + end) / 2, y - 0.17, text, ha="center", fontsize=8.5, bbox=behind)
    ax.set(ylim=(len(_PATH) + 0.9, -0.7), xlim=(-0.6, 5.6), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    arrows = "; ".join(f"{_THREADS[a]} of rank {a // 3} to {_THREADS[b]} of rank {b // 3}: {text}"
                       for a, b, text in _PATH)  # fmt: skip
    plots.describe(ax, f"Eight hand-overs of one call between six threads. {arrows}.")
    return plots.stamp(ax, "RECORDED", note="system calls by strace, torch 2.13, two ranks")


def ladder(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the time per tensor of each way of summing, slowest first."""
    rungs = [record for record in records if record.params.get("part") == "ladder"]
    title = f"Summing one 10 x 10 tensor, {rungs[0].params['pairs']} pairs at once"
    return plots.ladder(rungs, title=title, x="Time per tensor", unit="µs", xscale="log", ax=ax)


def explorer(
    records: Sequence[Record], *, cores: float, cpu_per_call: float, latency: float
) -> Axes:
    """Draw the law's curve over the measured points. Times in microseconds."""
    law = Saturation(latency * 1e-6, cpu_per_call * 1e-6, cores)
    ax = growth(records)
    pairs = list(range(1, max(record.params["pairs"] for record in records) + 1))
    curve = [law.time(2 * count) * 1e6 for count in pairs]
    label = f"max({latency:.0f}, 2p/{cores:g} x {cpu_per_call:.0f}) µs (MODELLED)"
    plots.model_line(ax, pairs, curve, label=label)
    knee = f"the knee is at {law.knee / 2:.2g} pairs"
    plots.describe(ax, f"The law over the measured points; {knee}.")
    return ax


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `labkit run gloo-scaling` saves: the growth and the ladder."""
    figure, (left, right) = plots.new_figure(
        1, 2, title="Why does gloo slow down with every pair?", size=(13, 4.6)
    )
    sweep = [record for record in records if record.params.get("part") == "sweep"]
    growth(sweep, beside_published=True, ax=left)
    ladder(records, ax=right)
    return figure


def _axes(title: str, ax: Axes | None, *, y: str = "Time per call") -> Axes:
    return plots.new_axes(title, x="Pairs of ranks", y=y, yunit="µs", ax=ax)


def _from_zero(ax: Axes) -> None:
    """Let both axes begin at zero: whether a line points there is what the lesson asks."""
    ax.update_datalim([(0, 0)])
    ax.autoscale_view()
