"""Lesson 6's pictures: ways to sum side by side, a published table on trial, who wins when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.comm import costs
from labkit.measure.records import Record, Tier
from labkit.show import plots

_SHOWN = ("ring", "tree", "doubling", "halving-doubling")


def times(records: Sequence[Record], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw the time of each case of one setting, beside what the least possible bytes would take.

    Args:
        records: such as `compare` returns.
        title: what the picture says.
        ax: where to draw; axes of its own if not given.
    """
    return plots.ladder(
        records, title=title, series=[_by(r) for r in records], note=_setting(records[0]), ax=ax
    )


def draw(records: Sequence[Record]) -> Figure:
    """Draw a whole run: who wins when, or a panel for each setting that was measured."""
    if records and records[0].experiment == "rounds-or-bytes":
        return crossover(records).get_figure(root=True)
    settings: dict[tuple, list[Record]] = {}
    for record in records:
        key = (record.params["rate"], record.world_size, record.nbytes)
        settings.setdefault(key, []).append(record)
    heights = [1 + len(cases) for cases in settings.values()]
    figure, panels = plots.new_figure(len(settings), 1, size=(8.5, 1 + 0.45 * sum(heights)))
    panels[0].get_gridspec().set_height_ratios(heights)
    for ax, cases in zip(panels, settings.values(), strict=True):
        times(cases, title=_setting(cases[0]), ax=ax)
    return figure


def on_trial(
    busbw: Mapping[str, float], *, limit: float, limit_name: str, ax: Axes | None = None
) -> Axes:
    """Draw claimed bus bandwidths against what one link can carry.

    Args:
        busbw: bytes per second, by the name of the claim.
        limit: bytes per second that a link carries one way.
        limit_name: what that is.
        ax: where to draw; axes of its own if not given.
    """
    over = sum(value > limit for value in busbw.values())
    title = f"{over} of {len(busbw)} published figures are above the wire's speed"
    ax = plots.new_axes(
        title, x="Bus bandwidth", xunit="GB/s", ax=ax, size=(8, 1.5 + 0.4 * len(busbw))
    )
    plots.bars(
        ax,
        list(busbw),
        [value / 1e9 for value in busbw.values()],
        label="bus bandwidth (GB/s)",
        series=[1 if value > limit else 0 for value in busbw.values()],
        value_format="{:.0f}",
    )
    ax.axvline(limit / 1e9, color=plots.INK, linewidth=1.6)
    ax.annotate(
        f"{limit_name}: {limit / 1e9:.0f} GB/s", (limit / 1e9, len(busbw) - 0.52), (4, 2),
        textcoords="offset points", fontsize=8.5, color=plots.INK,
    )  # fmt: skip
    plots.stamp(ax, Tier.PUBLISHED, note="GPU Puzzlers (2023), 16 GPUs; hatched: above the wire")
    worst = max(busbw, key=busbw.get)
    plots.describe(
        ax, f"{title}. {limit_name} is {limit / 1e9:.0f} GB/s; {worst} claims "
        f"{busbw[worst] / 1e9:.0f} GB/s.",
    )  # fmt: skip
    return ax


def crossover(records: Sequence[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the fastest call of several algorithms over the size of the tensor, and the model's.

    Args:
        records: as `labkit.lessons.equivalent_collectives.rounds_or_bytes.sweep` returns them.
        ax: where to draw; axes of its own if not given.
    """
    ax = plots.new_axes(
        "Small tensors want few rounds, large ones few bytes",
        x="S", xunit="bytes", y="Time of the fastest call", yunit="ms",
        xscale="log", yscale="log", ax=ax,
    )  # fmt: skip
    rows: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.nbytes):
        rows.setdefault(record.case, []).append(record)
    for series, (name, row) in enumerate(rows.items()):
        nbytes = [record.nbytes for record in row]
        plots.line(ax, nbytes, [min(r.seconds) * 1e3 for r in row], label=name, series=series)
        model = [record.predicted * 1e3 for record in row]
        plots.model_line(ax, nbytes, model, label="" if series else "alpha-beta model")
    one = records[0]
    added = f"links of {one.params['rate']}, {one.params['alpha'] * 1e3:g} ms per message added"
    plots.stamp(ax, [one.tier, "MODELLED"], one.provenance, note=added)
    first, last = (min(rows, key=lambda name, i=i: min(rows[name][i].seconds)) for i in (0, -1))
    plots.describe(
        ax,
        f"Time against size, {len(rows)} algorithms. At {nbytes[0]} bytes {first} is fastest, "
        f"at {nbytes[-1] / 2**20:.3g} MiB {last}.",
    )
    return ax


def at_scale(
    *,
    nbytes: float,
    alpha: float,
    bandwidth: float,
    ranks_per_host: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Draw the model's all_reduce times for 16 to 16384 ranks, flat and in two levels.

    Args:
        nbytes: S, bytes.
        alpha: seconds per message between hosts; a tenth of it inside.
        bandwidth: bytes per second of a rank's link between hosts; eight times that inside.
        ranks_per_host: ranks on each host, for the two-level form.
        ax: where to draw; axes of its own if not given.
    """
    ranks = 2 ** np.arange(4, 15)
    beta = 1 / bandwidth
    ax = plots.new_axes(
        "What the model says for large clusters",
        x="Ranks", y="Time of one all_reduce", yunit="ms", xscale="log", yscale="log", ax=ax,
    )  # fmt: skip
    last = {}
    for series, name in enumerate(_SHOWN):
        cost = costs.ALL_REDUCES[name]
        seconds = [cost(int(n)).seconds(nbytes, alpha=alpha, beta=beta) for n in ranks]
        plots.model_line(ax, ranks, [t * 1e3 for t in seconds], label=name, series=series)
        last[name] = seconds[-1]
    two_level = [
        costs.hierarchical_seconds(
            nbytes,
            hosts=int(n) // ranks_per_host,
            ranks_per_host=ranks_per_host,
            within=(alpha / 10, beta / 8),
            across=(alpha, beta / ranks_per_host),  # a link per rank: the host has as many
        )
        for n in ranks
    ]
    label = f"two levels, {ranks_per_host} per host"
    plots.model_line(ax, ranks, [t * 1e3 for t in two_level], label=label, series=4)
    last[label] = two_level[-1]
    ax.legend(frameon=False, fontsize=8.5, loc="upper left", ncols=2)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * 6)  # room for the legend
    note = f"alpha {alpha * 1e6:.3g} µs, {bandwidth / 1e9:.3g} GB/s per rank, S {nbytes:.3g} bytes"
    plots.stamp(ax, Tier.MODELLED, note=note)
    best = min(last, key=last.get)
    plots.describe(
        ax,
        f"{note}. At {ranks[-1]} ranks the fastest is {best}, {last[best] * 1e3:.3g} ms; "
        + "; ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in last.items()),
    )
    return ax


def _by(record: Record) -> int:
    """Return the series of a case: ours apart from the library's."""
    by_hand = record.case.startswith(("ring", "tree", "pipelined", "halving"))
    return 2 if by_hand else 0


def _setting(record: Record) -> str:
    rate = record.params["rate"]
    named = {"loopback": "loopback", "torchrun": "the network between torchrun's ranks"}
    link = named.get(rate, f"links of {rate}")
    return f"{record.world_size} ranks, {link}, S = {record.nbytes / 2**20:g} MiB"
