"""Pictures of lesson 3: the tensors, the ladder of buckets, its phases, and the start of a job."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.comm import costs
from labkit.comm.buckets import PHASES, plan
from labkit.comm.shapes import TensorSpec
from labkit.lessons.coalesced_broadcast import experiment as problem
from labkit.lessons.coalesced_broadcast.model import Coalescing
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.plots import bars, describe, model_line, new_axes, new_figure, stamp, style

SOURCE = "PyTorch pull request 4978, 2018: ResNet50 on two nodes"


def puzzle(ax: Axes | None = None) -> Axes:
    """Draw what the pull request's author measured."""
    ax = new_axes("The same 102 MB, in 320 calls or in 11", x="Time", xunit="ms", ax=ax,
                  size=(8, 2.4))  # fmt: skip
    bars(ax, ["one by one", "10 MB buckets"], [43.6, 26.8], series=[1, 0])
    stamp(ax, Tier.PUBLISHED, note=SOURCE)
    describe(ax, "One by one 43.6 ms, in buckets of 10 MB 26.8 ms: 1.63 times as fast.")
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
    stamp(ax, Tier.MODELLED, note=f"alpha {1e6 * model.alpha:.0f} us, {1e-9 / model.beta:.2g} "
          f"GB/s wire, {1e-9 / model.copy:.2g} GB/s copy")  # fmt: skip
    describe(ax, f"With fresh buffers the model's best cap is about {best:.0f} MB.")
    return ax


def start_of_a_job(
    *,
    state_gb: float = 10.0,
    bandwidth: float = 25e9,
    alpha: float = 10e-6,
    disk: float = 5e9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the modelled time from the checkpoint on one host's disk to the state on every rank.

    Args:
        state_gb: the state, in GB.
        bandwidth: each rank's link, bytes per second.
        alpha: seconds per message.
        disk: bytes per second that one reader gets, and all readers of a shared disk together.
        ax: where to draw.
    """
    ranks, nbytes = [8 * 2**k for k in range(8)], state_gb * 1e9
    ax = new_axes("One host reads the checkpoint and sends", x="Ranks", xscale="log",
                  y="Until all have the state", yunit="s", yscale="log", ax=ax)  # fmt: skip
    read = nbytes / disk
    for series, (label, cost) in enumerate(broadcasts(nbytes, alpha, 1 / bandwidth).items()):
        model_line(ax, ranks, [read + cost(n) for n in ranks], label=label, series=series)
    model_line(ax, ranks, [read * n for n in ranks], label="all read the shared disk", series=5)
    ax.set_xticks(ranks, [str(n) for n in ranks])
    stamp(ax, Tier.MODELLED, note=f"{state_gb:g} GB, link {bandwidth / 1e9:g} GB/s, alpha "
          f"{1e6 * alpha:.3g} us, disk {disk / 1e9:g} GB/s")  # fmt: skip
    chain = read + broadcasts(nbytes, alpha, 1 / bandwidth)["pipelined chain"](1024)
    describe(ax, f"On 1024 ranks the pipelined chain needs {chain:.1f} s, {read:.1f} of them to "
             "read.")  # fmt: skip
    return ax


def broadcasts(nbytes: float, alpha: float, beta: float) -> dict:
    """Return, by name, the seconds of a broadcast as a function of the number of ranks."""

    def chain(n: int) -> float:
        chunks = costs.best_chunks(nbytes, n, alpha=alpha, beta=beta)
        cost = costs.pipelined_broadcast(n, chunks=chunks)
        return cost.seconds(nbytes, alpha=alpha, beta=beta)

    def tree(n: int) -> float:
        return costs.tree_broadcast(n).seconds(nbytes, alpha=alpha, beta=beta)

    def from_the_root(n: int) -> float:
        return (n - 1) * (alpha + nbytes * beta)

    return {"the source sends to each": from_the_root, "tree": tree, "pipelined chain": chain}


def draw(records: Sequence[Record]) -> Figure:
    """Draw the experiment's picture: the ladder at every place."""
    places = list(dict.fromkeys(record.params["place"] for record in records))
    figure, panels = new_figure(len(places), 1, size=(9, 4.2 * len(places)), title=problem.TITLE)
    for ax, place in zip(panels, places, strict=True):
        ladder([record for record in records if record.params["place"] == place], ax)
    return figure
