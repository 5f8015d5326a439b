"""Pictures of lesson 07: bus bandwidth by cards, rings over cards, pairs of hosts, a law judged."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course import published
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.programs import ring_order
from labkit.measure.records import Record
from labkit.show import plots

_PUBLISHED = published.load("eighty_gpus")
_GPUS = (1, 2, 4, 8)


def busbw_by_gpus(collectives: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw the ten hosts' bus bandwidth at 16 GiB against the GPUs per host."""
    ax = plots.new_axes(
        "Ten hosts, 16 GiB: what nccl-tests reports",
        x="GPUs per host",
        xscale="log",
        y="Bus bandwidth",
        yunit="GB/s",
        ax=ax,
    )
    texts = []
    for series, name in enumerate(collectives):
        rows = logs.pick(logs.h100(), collective=name, hosts=10)
        largest = {row["gpus_per_host"]: row["busbw_gbs"] for row in rows}  # sizes ascend
        values = [largest[gpus] for gpus in _GPUS]
        plots.line(ax, _GPUS, values, label=name, series=series)
        texts.append(f"{name} {', '.join(f'{value:.0f}' for value in values)} GB/s")
    card = _PUBLISHED["one_card"]
    ax.axhline(card.value, color=plots.INK, linewidth=1.2)
    ax.annotate(
        "with one GPU per host: 49 GB/s",
        (8, card.value),
        (0, -13),
        ha="right",
        textcoords="offset points",
        fontsize=8.5,
        color=plots.INK,
    )
    ax.set_xticks(_GPUS, [str(gpus) for gpus in _GPUS])
    ax.minorticks_off()
    ax.set_ylim(0, 340)
    plots.stamp_published(ax, card, _PUBLISHED["eight_cards"])
    plots.describe(ax, f"With 1, 2, 4 and 8 GPUs per host: {'; '.join(texts)}.")
    return ax


def rings(count: int, ax: Axes | None = None) -> Axes:
    """Draw one ring or two through three servers of two ranks, and the cards that they leave by."""
    servers, cards = 3, 2
    ax = plots.new_axes(f"{count} ring{'s' * (count > 1)} through three servers", ax=ax)
    place = {rank: (3 * (rank // cards) + 0.5, 0.6 - rank % cards) for rank in range(6)}
    for server in range(servers):
        box = {"facecolor": plots.FAINT, "edgecolor": plots.SOFT, "zorder": 0}
        ax.add_patch(Rectangle((3 * server - 0.5, -1.0), 2.2, 2.2, **box))
        ax.text(3 * server + 0.6, -1.42, f"server {server}", ha="center", va="top", fontsize=9)
    leaving = set()
    for ring in range(count):
        order = sorted(place) if count == 1 else ring_order(ring, servers=servers, cards=cards)
        look = plots.style(ring)
        for src, dst in zip(order, [*order[1:], order[0]], strict=True):
            crosses = src // cards != dst // cards
            back = crosses and dst < src
            bend = (-0.62 if src % cards == 0 else 0.62) if back else 0.12
            arrow = {"arrowstyle": "-|>", "color": look.color, "linewidth": 2.2 if crosses else 1.0}
            arrow |= {"shrinkA": 11, "shrinkB": 11, "connectionstyle": f"arc3,rad={bend}"}
            ax.annotate("", place[dst], place[src], arrowprops=arrow)
            leaving |= {src} if crosses else set()
    for rank, (x, y) in place.items():
        used = rank in leaving
        ax.plot(x, y, "o", markersize=19, color="white", markeredgecolor=plots.INK)
        ax.text(x, y, str(rank), ha="center", va="center", fontsize=9)
        height = y + (0.38 if y > 0 else -0.38)
        color = plots.INK if used else plots.SOFT
        word = "card in use" if used else "card idle"
        ax.text(x, height, word, fontsize=7.5, ha="center", va="center", color=color)
    ax.set(xlim=(-0.7, 8), ylim=(-1.9, 1.8))
    ax.axis("off")
    idle = sorted(set(place) - leaving)
    plots.stamp(ax, "MODELLED", note="thick: from server to server, by the sender's card")
    plots.describe(
        ax, f"{count} rings leave by the cards of ranks {sorted(leaving)}; idle: {idle}."
    )
    return ax


def ways(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """Draw the time of each way to use the cards beside what the cards' speed allows."""
    names = [f"{record.case}, {record.params['cards']} per server" for record in records]
    return plots.ladder(
        records,
        title="The same tensor, and the cards that carry it",
        names=names,
        ax=ax,
        value_format="{:.0f}",
    )


def draw(records: Sequence[Record]) -> Figure:
    """Draw the whole run: the ways to use the cards."""
    return ways(records).get_figure(root=True)


def pairs(
    order: Sequence[int],
    *,
    collective: str,
    gpus_per_host: int,
    shades_from: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the seventeen hosts' pairs at 16 GiB as a matrix, with the hosts in this order.

    A cross is a test that failed. The shades start at 0 if not told otherwise.
    """
    place = {host: at for at, host in enumerate(order)}
    matrix = np.full((len(order), len(order)), np.nan)
    title = f"{collective}, GPUs per host: {gpus_per_host}. GB/s at 16 GiB"
    ax = plots.new_axes(title, x="Host", y="Host", ax=ax, size=(8, 6.6))
    failed = 0
    for test in logs.seventeen_hosts():
        if (test.collective, test.gpus_per_host) == (collective, gpus_per_host):
            ends = place[test.first], place[test.second]
            for i, j in (ends, ends[::-1]):
                if test.busbw:
                    matrix[i, j] = test.busbw["16GiB"]
                else:
                    ax.text(j, i, "×", ha="center", va="center", color=plots.SOFT)
            failed += not test.busbw
    names = [str(host) for host in order]
    shades = shades_from or (0.0, float(np.nanmax(matrix)))
    plots.matrix(ax, matrix, rows=names, columns=names, value_format="{:.1f}", shades_from=shades)
    plots.stamp_published(ax, _PUBLISHED["pairs"], note="× failed; blank: not tested")
    low, high = np.nanmin(matrix), np.nanmax(matrix)
    half = (matrix < 0.5 * high).sum() // 2
    plots.describe(
        ax,
        f"{title}: {low:.1f} to {high:.1f}; {half} pairs below half of the best, {failed} failed.",
    )
    return ax


def errors(by_name: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, title: str) -> Axes:
    """Draw predicted over measured times, a line for each name -> (sizes in bytes, ratios)."""
    ax = plots.new_axes(title, x="Size", xunit="bytes", xscale="log", y="Predicted / measured")
    for series, (name, (sizes, ratios)) in enumerate(by_name.items()):
        plots.line(ax, sizes, ratios, label=name, series=series)
    ax.axhline(1.0, color=plots.INK, linewidth=1.0)
    ax.axhspan(0.9, 1.1, color=plots.FAINT, zorder=0)
    ax.set_ylim(0, 2)
    plots.stamp(ax, "MODELLED", note=f"measured: {_PUBLISHED['one_card'].source}")
    worst = {name: max(abs(ratio - 1) for ratio in ratios) for name, (_, ratios) in by_name.items()}
    errors = "; ".join(f"{name} off by up to {value:.0%}" for name, value in worst.items())
    plots.describe(ax, f"{title}: {errors}. The band is 10 %.")
    return ax
