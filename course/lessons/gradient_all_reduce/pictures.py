"""Pictures of lesson 2: the thread's figures, the tensors, the ladder, the sweep, the scale."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm import buckets, costs
from course.comm.buckets import MB
from course.comm.costs import AlphaBeta
from course.comm.shapes import TensorSpec, vgg11
from course.lessons.gradient_all_reduce import experiment as problem
from course.lessons.gradient_all_reduce import model
from course.lessons.gradient_all_reduce.programs import FINAL, LADDER, THREAD
from course.published import load
from course.runs import by_case
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.show import timeline
from labkit.show.plots import (
    SOFT,
    bars,
    describe,
    line,
    model_line,
    new_axes,
    new_figure,
    stamp,
    stamp_published,
    style,
)

PARTS = ("waiting", "moving", "packing")


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw what the thread measured: the training's all_reduce beside the benchmark's."""
    published = load("gradient_all_reduce")
    figures = {"in training": published["in_training"], "in a benchmark": published["benchmark"]}
    ax = new_axes("The same 471 MiB between the same 16 GPUs", x="Time", xunit="ms", ax=ax,
                  size=(8, 2.4))  # fmt: skip
    bars(ax, list(figures), [figure.value for figure in figures.values()], series=[1, 0])
    stamp_published(ax, *figures.values())
    describe(ax, "In training the classifier's six all_reduces take 280.7 ms; a benchmark of as "
             "many bytes takes about 60.")  # fmt: skip
    return ax


def tensors(specs: Sequence[TensorSpec], link: AlphaBeta, ax: Axes | None = None) -> Axes:
    """Draw each tensor's bytes against the size at which latency and bandwidth cost the same."""
    ax = new_axes(
        "Which of the calls pay for latency?",
        x="Tensor, in the order of use", y="Size", yunit="bytes", yscale="log", ax=ax,
    )  # fmt: skip
    place = np.arange(len(specs))
    small = np.array([spec.nbytes < link.half_nbytes for spec in specs])
    nbytes = np.array([spec.nbytes for spec in specs])
    for mask, series, name in ((small, 1, "latency-bound"), (~small, 0, "bandwidth-bound")):
        look = style(series)
        ax.plot(place[mask], nbytes[mask], look.marker, color=look.color, label=name)
    ax.axhline(link.half_nbytes, color=SOFT, linestyle=":", label="alpha / beta")
    ax.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    describe(
        ax,
        f"{small.sum()} of {len(specs)} tensors are below {link.half_nbytes / 1e3:.0f} kB, where "
        "an all_reduce spends more than half of its time on latency.",
        table=Table(["tensor", "bytes"], [[spec.name, spec.nbytes] for spec in specs]),
    )
    return ax


def apart(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw exposed communication per step, taken apart into waiting, moving and packing."""
    ax = new_axes("What rank 0's timer calls communication", x="Time per step, rank 0", xunit="ms",
                  ax=ax, size=(9, 1.3 + 0.5 * len(records)))  # fmt: skip
    place, left = np.arange(len(records)), np.zeros(len(records))
    for part, series in zip(PARTS, (1, 0, 3), strict=True):
        look = style(series)
        width = np.array([1e3 * record.values[part] for record in records])
        ax.barh(place, width, left=left, height=0.6, color=look.color, hatch=look.hatch,
                edgecolor="white", linewidth=0.3, label=part)  # fmt: skip
        left += width
    for at, total in zip(place, left, strict=True):
        ax.annotate(f"{total:.0f}", (total, at), (5, 0), textcoords="offset points", va="center")
    ax.set_yticks(place, [record.case for record in records])
    ax.set_ylim(len(records) - 0.5, -0.5)
    ax.margins(x=0.1)
    ax.grid(visible=False, axis="y")
    ax.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    _stamp(ax, records)
    rows = [[r.case, *(round(1e3 * r.values[part], 1) for part in PARTS)] for r in records]
    told = "; ".join(f"{r.case}: {total:.0f} ms" for r, total in zip(records, left, strict=True))
    describe(ax, f"Communication that rank 0 cannot hide, per step. {told}.",
             table=Table(["case", *PARTS], rows))  # fmt: skip
    return ax


def exposed(records: Sequence[Record], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw exposed communication for each record, with how many times less than for the first."""
    ax = new_axes(title, x="Exposed communication per step", xunit="ms", ax=ax,
                  size=(9, 1.3 + 0.5 * len(records)))  # fmt: skip
    values = [1e3 * record.values["exposed"] for record in records]
    labels = [f"{r.case}  ({values[0] / e:.1f}x)" for r, e in zip(records, values, strict=True)]
    bars(ax, labels, values, value_format="{:.0f}")
    _stamp(ax, records, "in brackets: how many times less than in the first row")
    told = "; ".join(f"{r.case} {e:.0f} ms" for r, e in zip(records, values, strict=True))
    describe(ax, f"{title}. Exposed communication: {told}.")
    return ax


def latest(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw what a step loses to the latest of n ranks, measured and by the model."""
    ax = new_axes("The more ranks, the later the latest", x="Ranks", y="Lost per step", yunit="ms",
                  ax=ax)  # fmt: skip
    told = []
    for series, name in enumerate(dict.fromkeys(r.params["delays"] for r in records)):
        found = [record for record in records if record.params["delays"] == name]
        ranks = [record.world_size for record in found]
        lost = [1e3 * record.values["lost"] for record in found]
        line(ax, ranks, lost, label=f"late {name}", series=series)
        expected = [1e3 * (record.predicted - record.values["calm"]) for record in found]
        model_line(ax, ranks, expected, label=f"late {name}: expected", series=series)
        told.append(f"late {name}: {lost[0]:.1f} ms on {ranks[0]} ranks, {lost[-1]:.1f} on "
                    f"{ranks[-1]}")  # fmt: skip
    ax.set_xticks(ranks)
    stamp(ax, (*{r.tier for r in records}, Tier.MODELLED), records[0].provenance,
          note="every rank is late by 3 ms on average")  # fmt: skip
    describe(ax, "; ".join(told) + ".")
    return ax


def at_scale(
    *,
    alpha: float = 10e-6,
    bandwidth: float = 15.5e9,
    backward: float = 0.25,
    cap_mb: float = 25.0,
    ax: Axes | None = None,
) -> Axes:
    """Draw the modelled exposed communication of the real VGG11 for 8 to 4096 ranks.

    Seconds, and bytes per second of each rank's link. Gradients become ready in proportion to each
    layer's share of backward (`model.vgg11_backward_shares`).
    """
    ranks = [8 * 2**k for k in range(10)]
    ax = new_axes("When does overlap stop hiding?", x="Ranks", y="Exposed communication",
                  yunit="ms", xscale="log", ax=ax)  # fmt: skip
    specs = vgg11()
    plan = buckets.plan(specs, cap=int(cap_mb * MB), reverse=True)
    nbytes = [spec.nbytes for spec in specs]
    seconds = [share * backward for share in model.vgg11_backward_shares()]
    ready, sizes = model.ready_times(nbytes, seconds, [bucket.members for bucket in plan])
    curves = {"buckets during backward": [], "buckets after backward": [], "one call each": []}
    for n in ranks:
        cost = partial(costs.ring_all_reduce(n).seconds, alpha=alpha, beta=1 / bandwidth)
        during = model.exposed(ready, sizes, cost, backward=backward)
        after, each = sum(map(cost, sizes)), sum(map(cost, nbytes))
        for curve, exposed_time in zip(curves.values(), (during, after, each), strict=True):
            curve.append(1e3 * exposed_time)
    for series, (label, values) in enumerate(curves.items()):
        model_line(ax, ranks, values, label=label, series=series)
    ax.set_xticks(ranks, [str(n) for n in ranks])
    ax.set_ylim(bottom=0)
    note = (
        f"ring all_reduce, alpha {1e6 * alpha:.3g} µs, {bandwidth / 1e9:.3g} GB/s, backward "
        f"{1e3 * backward:.0f} ms, cap {cap_mb:.3g} MB"
    )
    stamp(ax, Tier.MODELLED, note=note)
    during = curves["buckets during backward"]
    describe(ax, f"Exposed with overlap: {during[0]:.0f} ms on 8 ranks, {during[-1]:.0f} ms on "
             "4096.")  # fmt: skip
    return ax


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: the ladder, and the first and last rung as timelines."""
    found = by_case(records)
    figure, (top, left, right) = new_figure(3, 1, size=(10, 10.5), title=problem.TITLE)
    rungs = [found[name] for name in LADDER if name in found]
    exposed(rungs, title="Exposed communication, rung by rung", ax=top)
    for ax, name, before in ((left, THREAD, ""), (right, FINAL, "buckets during backward, ")):
        title = f"Two steps: {before}{name}"
        timeline.draw_timeline(problem.timeline(found[name]), title=title, ax=ax)
        _stamp(ax, [found[name]])
    return figure


def _stamp(ax: Axes, records: Sequence[Record], *notes: str) -> None:
    rate = records[0].params.get("rate")
    where = [f"{records[0].world_size} hosts, {rate}"] if rate else []
    stamp(ax, records[0].tier, records[0].provenance, note="; ".join([*where, *notes]))
