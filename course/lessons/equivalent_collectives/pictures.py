"""Lesson 6's pictures: the puzzle, ways to sum, bytes, and the table on trial."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.equivalent_collectives import model
from course.lessons.equivalent_collectives.model import FIGURES
from course.runs import by_case, in_world
from labkit.measure import wire
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots

_LIMIT = FIGURES["NVLink"]
WHY_480 = (
    "the source of the 480 GB/s says that NVLS was in use: the switch between the GPUs does the "
    "sums. Then each link carries (n+1)/n S each way, 1.125 S for 8 GPUs; the formula assumes a "
    "ring's 1.75 S"
)
"""Why the published 480 GB/s are possible."""


def puzzle() -> Axes:
    """Draw the published table: the time of each way to sum, steps one after another."""
    ax = plots.new_axes("16 GPUs, the same sum, three ways", x="Time", xunit="ms", size=(9, 4.4))
    calls = {"first call": plots.style(0), "second call": plots.style(1)}
    ends, labels = defaultdict(float), {}
    for step in model.steps():
        column = model.COLUMNS.index((step.algorithm, step.nbytes))
        place = column * 3.6 + model.ROWS.index(step.way)
        call = "second call" if ends[place] else "first call"
        look = {"color": calls[call].color, "hatch": calls[call].hatch, "edgecolor": "white"}
        look |= {"linewidth": 0, "height": 0.8, "label": call if place == 1 else None}
        ax.barh(place, step.seconds * 1e3, left=ends[place], **look)
        ends[place] += step.seconds * 1e3
        labels[place] = f"{step.way}  ({step.nbytes / 1e9:.0f} GB, {step.algorithm})"
    for place, ms in ends.items():
        ax.text(ms + 2, place, f"{ms:.3g}", va="center", fontsize=9, color=plots.INK)
    ax.set_yticks([*labels], labels.values())
    ax.invert_yaxis()
    ax.legend(loc="upper right")
    ax.set_xlim(0, 235)
    ax.grid(visible=False, axis="y")
    rows = [f"{way}: {', '.join(map(str, FIGURES[way].value))} ms" for way in model.ROWS]
    plots.describe(ax, f"A published table of times on 16 GPUs, by columns. {'; '.join(rows)}.")
    return plots.stamp_published(ax, *(FIGURES[way] for way in model.ROWS))


def times(records: Mapping[str, Record], *, title: str) -> Axes:
    """Draw the time of each way, beside what a byte model predicts where it was asked."""
    shown = list(records.values())
    first = shown[0]
    links, size = f"links of {first.params['rate']}", f"S = {first.nbytes / 2**20:g} MiB"
    return plots.ladder(shown, title=title, note=f"{first.world_size} ranks, {links}, {size}")


def printed(records: Sequence[Record], how: str) -> Axes:
    """Draw the time of each printed function."""
    return times(by_case(records), title=f"The printed functions, {how}")


def done_after(records: Mapping[str, Record]) -> Table:
    """Lay out when each rank had the tensor, in each way."""
    medians = [[median(samples) for samples in record.samples] for record in records.values()]
    rows = [
        [rank, *(1e3 * s for s in seconds)]
        for rank, seconds in enumerate(zip(*medians, strict=True))
    ]
    columns = ["rank", *(f"{way}: done after, ms" for way in records)]
    return Table(columns, rows, "medians of rounds")


def draw(records: Sequence[Record]) -> Figure:
    """Draw a whole run."""
    mine = in_world(records, "")  # the others are for the board
    most = max(record.nbytes for record in mine)
    largest = by_case(record for record in mine if record.nbytes == most)
    return times(largest, title="Equal results, unequal bytes").figure


def sent(by_way: Mapping[str, np.ndarray], *, title: str) -> Axes:
    """Draw what each rank sends in each way, in units of S, with the figure written in.

    `by_way` has the matrix of each way: row = sender, column = receiver.
    """
    ax = plots.new_axes(title, x="Rank that sends", size=(7.5, 1.4 + 0.5 * len(by_way)))
    shares = np.array([np.sum(matrix, axis=1) for matrix in by_way.values()])
    columns = [f"rank {rank}" for rank in range(shares.shape[1])]
    plots.matrix(ax, shares, rows=list(by_way), columns=columns, value_format="{:.3g} S")
    pairs = zip(by_way, shares, strict=True)
    rows = [f"{way} {', '.join(f'{share:.3g}' for share in row)} S" for way, row in pairs]
    plots.describe(ax, f"{title}. Sent by rank 0, 1, ...: {'; '.join(rows)}.")
    tier = Tier.RECORDED if wire.unavailable() else Tier.MEASURED
    return plots.stamp(ax, tier, note="bytes, as the operating system counted them")


def on_trial(first: float, last: float) -> Axes:
    """Draw the busbw of the table's twenty steps, if the rows moved these shares of their labels.

    `first` is for the first two rows, `last` for the last, in units of S.
    """
    rates = model.rates(first, last)
    above, worst = model.judged(rates)
    title = f"{above} of 20 above the fastest link; in a column they differ up to {worst:.3g} times"
    ax = plots.new_axes(title, x="busbw", xunit="GB/s", xscale="log", size=(9, 3.8))
    for series, way in enumerate(model.ROWS):
        mine = {step: rate for step, rate in rates.items() if step.way == way}
        columns = np.array([model.COLUMNS.index((s.algorithm, s.nbytes)) for s in mine])
        style = plots.style(series)
        look = {"color": style.color, "markersize": 8, "markeredgecolor": "white", "label": way}
        ax.plot(list(mine.values()), columns + 0.2 * (series - 1), style.marker, **look)
    ax.axvline(_LIMIT.value, color=plots.INK, linewidth=1.6)
    ax.set_yticks(range(4), [f"{a}, {nbytes / 1e9:.0f} GB" for a, nbytes in model.COLUMNS])
    ax.set(xlim=(0.5, 20000), ylim=(3.6, -0.6))
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    note = f"divided by a hypothesis: first rows {first:.3g} S, last row {last:.3g} S"
    moved = f"If the first rows moved {first:.3g} S and the last {last:.3g} S: {above} of 20 are "
    moved += f"above {_LIMIT.value:g} GB/s, and a column differs up to {worst:.3g} times."
    plots.describe(ax, moved)
    return plots.stamp_published(ax, *(FIGURES[way] for way in model.ROWS), _LIMIT, note=note)
