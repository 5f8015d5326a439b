"""Lesson 6's pictures: ways to sum side by side, a published table on trial."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm import costs
from course.lessons.equivalent_collectives.published import ROWS, Step
from course.published import Published
from labkit.measure.records import Record, Tier
from labkit.show import plots

_SHOWN = ("ring", "tree", "doubling", "halving-doubling")


def times(records: Sequence[Record], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw the time of each case of one setting, beside that of the least possible bytes."""
    setting = _setting(records[0])
    note = "" if setting == title else setting
    return plots.ladder(records, title=title, series=[_by(r) for r in records], note=note, ax=ax)


def draw(records: Sequence[Record]) -> Figure:
    """Draw a whole run: a panel for each setting that was measured."""
    settings: dict[str, list[Record]] = {}
    for record in records:
        settings.setdefault(_setting(record), []).append(record)
    heights = [1 + len(cases) for cases in settings.values()]
    figure, panels = plots.new_figure(len(settings), 1, size=(8.5, 1 + 0.45 * sum(heights)))
    panels[0].get_gridspec().set_height_ratios(heights)
    for ax, (setting, cases) in zip(panels, settings.items(), strict=True):
        times(cases, title=setting, ax=ax)
    return figure


def on_trial(
    rates: Mapping[str, Sequence[tuple[Step, float]]], *, limit: Published, ax: Axes | None = None
) -> Axes:
    """Draw the bus bandwidths that a table's steps would have had under each hypothesis.

    `rates` has each step and its GB/s by hypothesis; `limit` is what the fastest link carried.
    """
    ax = plots.new_axes(
        "Twenty published steps, and what each hypothesis makes of them",
        x="Bus bandwidth", xunit="GB/s", xscale="log", ax=ax, size=(9, 1.6 + 0.9 * len(rates)),
    )  # fmt: skip
    ways = list(dict.fromkeys(step.way for found in rates.values() for step, _ in found))
    for series, way in enumerate(ways):
        look = plots.style(series)
        for place, found in enumerate(rates.values()):
            values = [rate for step, rate in found if step.way == way]
            height = place + 0.24 * (series - 1)
            ax.plot(
                values, [height] * len(values), look.marker, color=look.color, markersize=7,
                markeredgecolor="white", label=way if place == 0 else None,
            )  # fmt: skip
    ax.axvline(limit.value, color=plots.INK, linewidth=1.6)
    ax.annotate(
        f"{limit.value:g} GB/s, the fastest\nGPU's links one way in 2023",
        (limit.value, len(rates) - 0.5), (5, 4), textcoords="offset points", fontsize=8.5,
        color=plots.INK, va="bottom",
    )  # fmt: skip
    ax.set_yticks(range(len(rates)), list(rates))
    ax.set_ylim(len(rates) - 0.5, -0.5)
    ax.legend(framealpha=0.85, edgecolor="none", fontsize=9, loc="upper left",
              bbox_to_anchor=(0, -0.16), ncols=3)  # fmt: skip
    plots.stamp_published(ax, *ROWS.values(), limit, note="divided by hypotheses of ours")
    told = []
    for name, found in rates.items():
        values = [rate for _, rate in found]
        above = sum(rate > limit.value for rate in values)
        told.append(
            f"{name}: {min(values):.0f} to {max(values):.0f} GB/s, {above} of {len(values)} above "
            f"{limit.value:g}"
        )
    plots.describe(ax, f"Bus bandwidth of a published table's steps. {'; '.join(told)}.")
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

    `alpha` is seconds per message between hosts, a tenth of it inside; `bandwidth`, bytes per
    second of a rank's link between hosts, eight times that inside.
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
    # a link per rank: the host has as many
    links = {"within": (alpha / 10, beta / 8), "across": (alpha, beta / ranks_per_host)}
    links["ranks_per_host"] = ranks_per_host
    hosts = [int(n) // ranks_per_host for n in ranks]
    two_level = [costs.hierarchical_seconds(nbytes, hosts=count, **links) for count in hosts]
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
    link, ranks = named.get(rate, f"links of {rate}"), f"{record.world_size} ranks"
    if record.params["hosts"] < record.world_size:
        ranks += f" on {record.params['hosts']} hosts"
    return f"{ranks}, {link}, S = {record.nbytes / 2**20:g} MiB"
