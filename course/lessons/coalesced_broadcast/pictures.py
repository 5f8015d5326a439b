"""Pictures of lesson 3: the tensors, the ladder of buckets, its phases, and the start of a job."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm import costs
from course.comm.buckets import MB, PHASES, plan
from course.comm.shapes import TensorSpec
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast.model import Coalescing
from course.published import load
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.plots import (
    bars,
    describe,
    model_line,
    new_axes,
    new_figure,
    stamp,
    stamp_published,
    style,
)


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw what the pull request's author measured."""
    ax = new_axes("About 100 MB between two nodes", x="Time", xunit="ms", ax=ax, size=(8, 2.4))
    published = load("coalesced_broadcast")
    figures = {"the original logic": published["original"], "one broadcast": published["coalesced"]}
    bars(ax, list(figures), [1e3 * figure.value for figure in figures.values()], series=[1, 0])
    stamp_published(ax, *figures.values(), note="'a rough perf evaluation'")
    describe(ax, "Tensor by tensor 43.6 ms, in one coalesced broadcast 26.8 ms: 1.63 times as "
             "fast.")  # fmt: skip
    return ax


def tensors(specs: Sequence[TensorSpec], ax: Axes | None = None) -> Axes:
    """Draw how many tensors there are, and how many of the bytes, up to each size."""
    sizes = np.sort([spec.nbytes for spec in specs])
    ax = new_axes("Most tensors are small, most bytes are in few", x="Tensor size", xunit="bytes",
                  xscale="log", y="Share of all, up to this size", yunit="%", ax=ax)  # fmt: skip
    for series, (label, share) in enumerate(
        {
            "tensors": np.arange(1, len(sizes) + 1) / len(sizes),
            "bytes": np.cumsum(sizes) / sizes.sum(),
        }.items()
    ):
        look = style(series)
        ax.step(sizes, 100 * share, where="post", color=look.color, linestyle=look.linestyle,
                linewidth=1.9, label=label)  # fmt: skip
    ax.legend(fontsize=9)
    small = sizes < 16 * 1024
    told = (
        f"{small.sum()} of {len(sizes)} tensors are below 16 KiB; together they hold "
        f"{100 * sizes[small].sum() / sizes.sum():.1f} % of the bytes."
    )
    describe(ax, told, table=Table(["tensor", "bytes"], [[s.name, s.nbytes] for s in specs]))
    return ax


def ladder(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw the time of one broadcast of the state for each case, and what the model expects."""
    cases = [record for record in records if record.case != problem.PARTS]
    title = f"One broadcast of the state: {cases[0].params['place']}"
    return plots.ladder(cases, title=title, value_format="{:.0f}", ax=ax)


def phases(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw packing on the source, sending and unpacking on a receiver, one under the other."""
    records = [r for r in records if r.predicted is not None]  # not torch's own code
    ax = new_axes("Packing, sending and unpacking apart", x="Time", xunit="ms", ax=ax,
                  size=(9, 1.4 + 0.55 * len(records)))  # fmt: skip
    for offset, (phase, series) in enumerate(zip(PHASES, (3, 0, 2), strict=True)):
        look = style(series)
        place = np.arange(len(records)) + 0.24 * (offset - 1)
        ax.barh(place, [1e3 * r.values[phase] for r in records], height=0.22, color=look.color,
                hatch=look.hatch, edgecolor="white", linewidth=0.3, label=phase)  # fmt: skip
    ax.set_yticks(range(len(records)), [record.case for record in records])
    ax.set_ylim(len(records) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.legend(fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    stamp(ax, records[0].tier, records[0].provenance,
          note="pack: the source; send, unpack: a receiver")  # fmt: skip
    rows = [[r.case, *(round(1e3 * r.values[p], 1) for p in PHASES)] for r in records]
    worst = max(records, key=lambda record: record.values["pack"])
    said = f"Packing costs most in the case '{worst.case}': {1e3 * worst.values['pack']:.0f} ms."
    describe(ax, said, table=Table(["case", *PHASES], rows))
    return ax


def optimum(model: Coalescing, specs: Sequence[TensorSpec], ax: Axes | None = None) -> Axes:
    """Draw what the model expects of every cap, with buffers that are fresh or kept."""
    caps = np.geomspace(1e4, 4e8, 45)
    ax = new_axes("Where the best bucket lies", x="Bucket cap", xunit="MB", xscale="log",
                  y="One broadcast", yunit="ms", ax=ax)  # fmt: skip
    for series, (label, kept) in enumerate({"fresh buffers": False, "kept buffers": True}.items()):
        curve = []
        for cap in caps:
            sizes = [[specs[i].nbytes for i in b.members] for b in plan(specs, cap=int(cap))]
            curve.append(1e3 * model.seconds(sizes, kept=kept))
        model_line(ax, caps / 1e6, curve, label=label, series=series)
        if not kept:
            best = caps[int(np.argmin(curve))] / 1e6
    ax.set_ylim(bottom=0)
    stamp(ax, Tier.MODELLED, note=f"alpha {1e6 * model.alpha:.0f} µs, {1e-9 / model.beta:.2g} "
          f"GB/s wire, {1e-9 / model.copy:.2g} GB/s copy")  # fmt: skip
    describe(ax, f"With fresh buffers the model's best cap is about {best:.0f} MB.")
    return ax


def memory(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw the flat buffers' memory beside the time, for each case that was measured with it."""
    records = [record for record in records if "peak" in record.values]
    ax = new_axes("What a broadcast takes: time and memory", x="Time", xunit="ms",
                  y="Flat buffers, at most", yunit="MB", ax=ax)  # fmt: skip
    places = [(1e3 * r.summary.median, r.values["peak"] / MB) for r in records]
    wide, high = (max(values) for values in zip(*places, strict=True))
    taken = [(x / wide, x / wide, y / high) for x, y in places]  # from, to, height; in shares
    for record, (x, y) in zip(records, places, strict=True):
        look = style(1 if record.predicted is None else 0)  # torch's own code has no prediction
        ax.plot(x, y, look.marker, color=look.color)
        room = 0.015 * len(record.case)
        for right, up in product((True, False), repeat=2):  # the first spot that is free
            begin = x / wide + (0.02 if right else -0.02 - room)
            spot = begin, begin + room, y / high + (0.04 if up else -0.04)
            if spot[0] > 0 and not any(
                spot[0] < to and at < spot[1] and abs(h - spot[2]) < 0.05 for at, to, h in taken
            ):
                break
        taken.append(spot)
        ax.annotate(record.case, (x, y), (6 if right else -6, 4 if up else -10), fontsize=8.5,
                    textcoords="offset points", ha="left" if right else "right")  # fmt: skip
    ax.margins(x=0.15, y=0.1)
    ax.set_xlim(left=0)
    stamp(ax, records[0].tier, records[0].provenance, note="counted from the tensors of one rank")
    rows = [[r.case, round(x, 1), y] for r, (x, y) in zip(records, places, strict=True)]
    largest = max(records, key=lambda record: record.values["peak"])
    describe(ax, f"'{largest.case}' takes most memory, {largest.values['peak'] / MB:.0f} MB.",
             table=Table(["case", "ms", "MB"], rows))  # fmt: skip
    return ax


def start_of_a_job(
    *,
    state_gb: float = 10.0,
    bandwidth: float = 25e9,
    alpha: float = 10e-6,
    reader: float = 2e9,
    storage: float = 100e9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the modelled time from a checkpoint in shared storage to the state on every rank.

    Bytes per second: of each rank's link, of one `reader`, and of all readers of the `storage`.
    """
    ranks, nbytes = [8 * 2**k for k in range(8)], state_gb * 1e9
    ways = start_up_seconds(nbytes, alpha, 1 / bandwidth, reader=reader, storage=storage)
    ax = new_axes("Who reads the checkpoint?", x="Ranks", xscale="log",
                  y="Until all have the state", yunit="s", yscale="log", ax=ax)  # fmt: skip
    for series, (label, seconds) in enumerate(ways.items()):
        model_line(ax, ranks, [seconds(n) for n in ranks], label=label, series=series)
    ax.set_xticks(ranks, [str(n) for n in ranks])
    note = f"{state_gb:g} GB, link {bandwidth / 1e9:.3g} GB/s, alpha {1e6 * alpha:.3g} µs, a reader"
    note += f" {reader / 1e9:.3g} GB/s, all readers {storage / 1e9:.3g} GB/s"
    stamp(ax, Tier.MODELLED, note=note)
    told = "; ".join(f"{label} {seconds(1024):.1f} s" for label, seconds in ways.items())
    describe(ax, f"On 1024 ranks: {told}.")
    return ax


def start_up_seconds(
    nbytes: float, alpha: float, beta: float, *, reader: float, storage: float
) -> dict[str, Callable[[int], float]]:
    """Return, by name of the way, the seconds until n ranks have the state: a function of n."""

    def then(cost: costs.Cost) -> float:
        return cost.seconds(nbytes, alpha=alpha, beta=beta)

    def chain(n: int) -> costs.Cost:
        chunks = costs.best_chunks(nbytes, n, alpha=alpha, beta=beta)
        return costs.pipelined_broadcast(n, chunks=chunks)

    return {
        "all read everything": lambda n: n * nbytes / min(storage, n * reader),
        "one reads, then a tree": lambda n: nbytes / reader + then(costs.tree_broadcast(n)),
        "one reads, then a chain": lambda n: nbytes / reader + then(chain(n)),
        "each reads a share, then all_gather": lambda n: (
            nbytes / min(storage, n * reader) + then(costs.ring_all_gather(n))
        ),
    }


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: the ladder at every place."""
    places = list(dict.fromkeys(record.params["place"] for record in records))
    figure, panels = new_figure(len(places), 1, size=(9, 4.2 * len(places)), title=problem.TITLE)
    for ax, place in zip(panels, places, strict=True):
        ladder([record for record in records if record.params["place"] == place], ax)
    return figure
