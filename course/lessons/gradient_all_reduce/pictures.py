"""Pictures of lesson 2: the thread's figures, timers by call, who waits, the rungs."""

from collections.abc import Mapping, Sequence
from statistics import median, median_high

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.gradient_all_reduce import experiment as problem
from course.lessons.gradient_all_reduce.evidence import PART, by_copy
from course.lessons.gradient_all_reduce.experiment import Timer
from course.published import load
from course.runs import by_case
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.measure.trace import MAIN, Kind
from labkit.show import plots
from labkit.show.timeline import Bar, draw_lanes


def theirs_and_ours(records: Sequence[Record]) -> Figure:
    """Draw the classifier's all_reduces beside a benchmark's: the thread's, and ours."""
    figures = [load("gradient_all_reduce")[name] for name in ("in_training", "benchmark")]
    both, (theirs, ours) = plots.new_figure(2, 1, size=(8, 4.6))
    here = [1e3 * by_case(records)[case].summary.median for case in ("loop", "benchmark")]
    there = [figure.value for figure in figures]
    for ax, whose, ms in ((theirs, "The thread's", there), (ours, "The same loop here", here)):
        plots.new_axes(f"{whose}: {factor(ms)}", x="Time", xunit="ms", ax=ax)
        plots.bars(ax, ["in training, six calls", "in a benchmark"], ms)
        words = f"In training {ms[0]:.0f} ms, in a benchmark {ms[1]:.0f}: {factor(ms)}."
        plots.describe(ax, f"{whose}. {words}")
    plots.stamp_published(theirs, *figures)
    _stamp(ours, records[0], note=f"{records[0].world_size} ranks")
    return both


def factor(pair: Sequence[float]) -> str:
    """Say how many times as long the loop took as the benchmark."""
    return f"{pair[0] / pair[1]:.1f} times as long"


def by_call(runs: Mapping[str, Sequence[Timer]], record: Record, ax: Axes | None = None) -> Axes:
    """Draw rank 0's stopwatch around each call, the runs side by side; waiting is hatched."""
    axes = {"x": "Call, in the order of the loop", "y": "Time in the call", "yunit": "ms"}
    ax = plots.new_axes("Rank 0's stopwatch, call by call", **axes, ax=ax, size=(10, 4))
    width = 0.84 / len(runs)
    for series, (label, calls) in enumerate(runs.items()):
        at = np.arange(len(calls)) + width * (series - (len(runs) - 1) / 2)
        wait, move = 1e3 * np.array([(call.wait, call.move) for call in calls]).T
        color = plots.style(series).color
        look = {"width": 0.9 * width, "edgecolor": color, "color": color}
        ax.bar(at, move, label=f"{label}: moving", **look)
        look |= {"color": "white", "hatch": "//////"}
        ax.bar(at, wait, bottom=move, label=f"{label}: waiting", **look)
    _shade_classifier(ax, runs)
    ax.set_xticks(range(len(calls)))
    ax.set_ylim(top=1.35 * ax.get_ylim()[1])  # room for the words in the shaded field
    ax.legend(fontsize=9, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    waits = [f"{label}: {1e3 * calls[0].wait:.0f} ms" for label, calls in runs.items()]
    six = [f"{label}: {1e3 * _classifier(calls):.0f} ms" for label, calls in runs.items()]
    description = f"Waiting in the first call: {'; '.join(waits)}. "
    description += f"The classifier's six calls together: {'; '.join(six)}."
    plots.describe(ax, description, table=_table_of_calls(runs))
    return _stamp(ax, record)


def _shade_classifier(ax: Axes, runs: Mapping[str, Sequence[Timer]]) -> None:
    """Shade the classifier's calls: in two fields, where some loops run backwards."""
    fields: dict[tuple[int, int], list[str]] = {}
    for label, calls in runs.items():
        places = [place for place, call in enumerate(calls) if call.name.startswith(PART)]
        fields.setdefault((places[0], places[-1]), []).append(label)
    look = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "top", "fontsize": 9}
    for (first, last), labels in fields.items():
        ax.axvspan(first - 0.5, last + 0.5, color=plots.SOFT, alpha=0.12, linewidth=0)
        words = "the classifier's calls"
        if len(fields) > 1:
            words += ":\n" + ",\n".join(labels)
        ax.text((first + last) / 2, 0.97, words, **look)


def _classifier(calls: Sequence[Timer]) -> float:
    """Return the seconds in the classifier's calls."""
    return sum(call.seconds for call in calls if call.name.startswith(PART))


def _table_of_calls(runs: Mapping[str, Sequence[Timer]]) -> Table:
    """Return the waiting and the moving by tensor, in the first run's order."""
    heads = ["tensor", *(f"{label}, {part} ms" for label in runs for part in ("waiting", "moving"))]
    by_name = [{call.name: call for call in calls} for calls in runs.values()]
    rows = []
    for name in by_name[0]:
        row = [name]
        for calls in by_name:
            row += [round(1e3 * calls[name].wait, 1), round(1e3 * calls[name].move, 1)]
        rows.append(row)
    return Table(heads, rows)


def timers(record: Record) -> Axes:
    """Draw every rank's stopwatch around every call as a heat map."""
    ranks = problem.timeline(record).ranks
    values = [[1e3 * t.seconds for t in problem.timers(record, rank=rank)] for rank in ranks]
    rows, calls = [f"rank {rank}" for rank in ranks], list(map(str, range(len(values[0]))))
    ax = plots.new_axes("What each rank's stopwatch shows, in ms", x="Call", size=(11, 2.8))
    plots.matrix(ax, values, rows=rows, columns=calls, value_format="{:.0f}")
    plots.describe(ax, "Milliseconds in each call, by rank: medians over the steps.")
    return _stamp(ax, record)


def rungs(record: Record) -> Figure:
    """Draw the moving that each rung leaves exposed, and what leaves when on the last two rungs."""
    exposed = problem.exposed(record)
    shares = [100 * np.median(np.divide(times, exposed[AFTER])) for times in exposed.values()]
    figure, (ax, *panels) = plots.new_figure(3, 1, size=(6.6, 8.6))
    plots.new_axes("Moving that nothing hides", x="Of rung 3b in the same round", xunit="%", ax=ax)
    labels = [f"{rung}\n({1e3 * median(seconds):.0f} ms)" for rung, seconds in exposed.items()]
    plots.bars(ax, labels, shares, value_format="{:.0f}")
    ax.set_ylim(len(labels) - 0.4, -1.1)  # room for the learner's mark
    _stamp(ax, record)
    plots.describe(ax, f"Moving that nothing hides, per step: {'; '.join(labels)}.")
    for rung, panel in zip((AFTER, DURING), panels, strict=True):
        _leaving(record, rung, exposed[rung], panel)
    right = max(panel.get_xlim()[1] for panel in panels)
    for panel in panels:
        panel.set_xlim(0, right)  # one scale for both
    return figure


AFTER, DURING = problem.programs.RUNGS[3:]
LOOKS = {"backward": plots.style(5), "waits for others": plots.Style("#888888", "o", "-", "////")}
LOOKS |= {"hidden": plots.style(0), "exposed": plots.style(1)}


def _leaving(record: Record, rung: str, seconds: Sequence[float], ax: Axes) -> None:
    """Draw when each bucket leaves on one rung, and what is still to move when backward ends.

    One step of the rank whose backward ends last: of the rounds the one whose exposed moving is
    the median.
    """
    order = problem.programs.RUNGS
    number = (seconds.index(median_high(seconds)) + 1) * len(order) + order.index(rung)
    step = problem.timeline(record).split().steps(number, number)
    rank = problem.last_backward(step).rank
    spans = step.of(rank)
    begin = min(span.begin for span in spans)
    over = max(span.end for span in spans if span.kind is Kind.COMPUTE)
    sent = [span for span in spans if span.kind is not Kind.COMPUTE and span.channel != MAIN]
    names = sorted({span.name for span in sent if span.kind is Kind.MOVE})
    drawn, rows = [Bar(0, "backward", 0.0, over - begin)], []
    for lane, name in enumerate(names, 1):
        mine = [span for span in sent if span.name == name]
        for span in mine:
            before, after = (span.begin, min(span.end, over)), (max(span.begin, over), span.end)
            for (start, end), moving in ((before, "hidden"), (after, "exposed")):
                if end > start:
                    look = "waits for others" if span.kind is Kind.WAIT else moving
                    drawn.append(Bar(lane, look, start - begin, end - begin))
        leaves, ends = min(s.begin for s in mine), max(s.end for s in mine)
        rows.append([name, *(round(1e3 * (x - begin)) for x in (leaves, ends))])
    when = "; ".join(f"{name} leaves after {a} ms, arrives after {b}" for name, a, b in rows)
    left = max(0.0, max(span.end for span in sent if span.name in names) - over)
    description = (
        f"{rung}, rank {rank}: backward ends after {1e3 * (over - begin):.0f} ms; {when}. "
    )
    description += f"After backward {1e3 * left:.0f} ms are left."
    how = {"looks": LOOKS, "table": Table(["", "leaves, ms", "has arrived, ms"], rows), "ax": ax}
    draw_lanes(["backward", *names], drawn, title=f"Rung {rung}", description=description, **how)
    ax.axvline(1e3 * (over - begin), color=plots.INK, linestyle="--", linewidth=1)
    _stamp(ax, record)


def cure(records: Sequence[Record]) -> Table:
    """Show what copying aside does to the parts of a step, by order and batch: before and after."""
    rows = []
    for (order, batch), (in_step, aside) in by_copy(records).items():
        row = [f"{order}, {batch}"]
        for part in problem.PARTS_OF_A_STEP:
            before, after = (1e3 * median(arm[part]) for arm in (in_step, aside))
            row.append(f"{before:.0f} → {after:.0f}")
        rows.append(row)
    heads = ["ms, copied in the step → aside", *problem.PARTS_OF_A_STEP]
    return Table(heads, rows, str(records[0].tier))


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: what a late rank does to each call."""
    late = by_case(records)["late"]
    figure, (panel,) = plots.new_figure(title="280 ms or 60? Averaging gradients")
    by_call(problem.arms_of(late, problem.programs.LATE), late, ax=panel)
    return figure


def _stamp(ax: Axes, record: Record, note: str = "4 hosts") -> Axes:
    return plots.stamp(ax, record.tier, record.provenance, note=note, others=record.others)
