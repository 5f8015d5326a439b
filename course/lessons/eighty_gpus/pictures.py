"""Pictures of lesson 07: bus bandwidth by cards, rings over cards, pairs of hosts, a law judged."""

import itertools
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course import published
from course.lessons.eighty_gpus import logs
from course.lessons.eighty_gpus.experiment import in_cards
from labkit.measure.records import Record
from labkit.show import plots

_PUBLISHED = published.load("eighty_gpus")
_GPUS = (1, 2, 4, 8)


def _at_largest(collective: str) -> list[float]:
    """Return the ten hosts' bus bandwidth at the largest size, by GPUs per host. GB/s."""
    rows = logs.pick(logs.h100(), collective=collective, hosts=10)
    largest = {row["gpus_per_host"]: row["busbw_gbs"] for row in rows}  # sizes ascend
    return [largest[gpus] for gpus in _GPUS]


def _over_gpus(title: str, *, x: str, unit: str, top: float) -> Axes:
    """Make axes for bus bandwidths with one, two, four and eight of something."""
    ax = plots.new_axes(title, x=x, xscale="log", y="Bus bandwidth", yunit=unit)
    ax.set_xticks(_GPUS, [str(gpus) for gpus in _GPUS])
    ax.minorticks_off()
    ax.set_ylim(0, top)
    return ax


def busbw_by_gpus(collectives: Sequence[str]) -> Axes:
    """Draw the ten hosts' bus bandwidth at 16 GiB against the GPUs per host."""
    title, texts = "Ten hosts, 16 GiB: what nccl-tests reports", []
    ax = _over_gpus(title, x="GPUs per host", unit="GB/s", top=340)
    for series, name in enumerate(collectives):
        values = _at_largest(name)
        plots.line(ax, _GPUS, values, label=name, series=series)
        texts.append(f"{name} {', '.join(f'{value:.0f}' for value in values)} GB/s")
    card = _PUBLISHED["one_card"]
    ax.axhline(card.value, color=plots.INK, linewidth=1.2)
    look = {"ha": "right", "textcoords": "offset points", "fontsize": 8.5, "color": plots.INK}
    ax.annotate("with one GPU per host: 49 GB/s", (8, card.value), (0, -13), **look)
    plots.describe(ax, f"With 1, 2, 4 and 8 GPUs per host: {'; '.join(texts)}.")
    return plots.stamp_published(ax, card, _PUBLISHED["eight_cards"])


def by_cards(arms: Mapping[str, Record]) -> Axes:
    """Draw the bus bandwidth against the cards of a server, in cards: the ten hosts' and ours."""
    title = "Bus bandwidth, in units of what one card carries"
    ax = _over_gpus(title, x="Cards in each server (ten hosts: GPUs)", unit="cards", top=7.4)
    theirs = [busbw / _PUBLISHED["one_card"].value for busbw in _at_largest("all_reduce")]
    plots.line(ax, _GPUS, theirs, label="the ten hosts, by their GPUs", series=0)
    texts = [f"the ten hosts {', '.join(f'{value:.1f}' for value in theirs)}"]
    ways: dict[str, dict[int, float]] = {}
    for record in arms.values():
        way = ways.setdefault(record.case, {})
        way[record.params["cards"]] = statistics.median(in_cards(record))
    for series, (name, way) in enumerate(ways.items(), 1):
        cards, reached = zip(*sorted(way.items()), strict=True)
        plots.line(ax, cards, reached, label=f"here: {name}", series=series)
        texts.append(f"{name}: " + ", ".join(f"{way[c]:.2f} with {c}" for c in cards))
    plots.describe(ax, f"Bus bandwidth in units of one card's: {'; '.join(texts)}.")
    first, *_ = arms.values()
    return plots.stamp(ax, first.tier, first.provenance, note="ours", others=first.others)


def draw(records: Sequence[Record]) -> Figure:
    """Draw the whole run: the bus bandwidth of each way, by cards."""
    return by_cards({f"{r.case}, {r.params['cards']} cards": r for r in records}).figure


def pairs(
    order: Sequence[int], *, collective: str, gpus_per_host: int, shades_from: Sequence[float] = ()
) -> Axes:
    """Draw the seventeen hosts' pairs at 16 GiB as a matrix, with the hosts in this order.

    A cross is a test that failed. The shades start at 0 if not told otherwise.
    """
    kind = collective, gpus_per_host
    tests = [t for t in logs.seventeen_hosts() if (t.collective, t.gpus_per_host) == kind]
    place, names = {host: at for at, host in enumerate(order)}, list(map(str, order))
    matrix = np.full((len(order), len(order)), np.nan)
    title = f"{collective}, GPUs per host: {gpus_per_host}. GB/s at 16 GiB"
    ax = plots.new_axes(title, x="Host", y="Host", size=(8, 6.6))
    for test in tests:
        for i, j in itertools.permutations(place[host] for host in test.pair):
            if test.busbw:
                matrix[i, j] = test.busbw["16GiB"]
            else:
                ax.text(j, i, "×", ha="center", va="center", color=plots.SOFT)
    low, high = np.nanmin(matrix), np.nanmax(matrix)
    shades = shades_from or (0.0, high)
    plots.matrix(ax, matrix, rows=names, columns=names, value_format="{:.1f}", shades_from=shades)
    half, failed = (matrix < 0.5 * high).sum() // 2, sum(not test.busbw for test in tests)
    words = f"{low:.1f} to {high:.1f}; {half} pairs below half of the best, {failed} failed"
    plots.describe(ax, f"{title}: {words}.")
    return plots.stamp_published(ax, _PUBLISHED["pairs"], note="× failed; blank: not tested")


def kinds(
    tests: Mapping[str, Sequence[logs.PairTest]], *, title: str, above: float | None = None
) -> Axes:
    """Draw each test at 16 GiB as a dot, a line of dots for each kind; or in % `above` a busbw."""
    x = f"Above {above:.1f} GB/s at 16 GiB" if above else "Bus bandwidth at 16 GiB"
    ax = plots.new_axes(title, x=x, xunit="%" if above else "GB/s", size=(9, 2.6))
    texts = []
    for at, (name, some) in enumerate(tests.items()):
        values = sorted(test.busbw["16GiB"] for test in some)
        shown = [100 * (value / above - 1) for value in values] if above else values
        color = plots.style(at).color
        ax.plot(shown, [at] * len(values), "o", color=color, alpha=0.35, markersize=9)
        reach = f", {values[0]:.2f} to {values[-1]:.2f} GB/s" if values else ""
        texts.append(f"{name}: {len(values)} tests{reach}")
    ax.set_yticks(range(len(tests)), [f"{name} ({len(some)})" for name, some in tests.items()])
    ax.set_ylim(-0.6, len(tests) - 0.4)
    plots.describe(ax, f"{title}. {'; '.join(texts)}.")
    return plots.stamp_published(ax, _PUBLISHED["pairs"])


def errors(by_name: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, title: str) -> Axes:
    """Draw predicted over measured times, a line for each name -> (sizes in bytes, ratios)."""
    ax = plots.new_axes(title, x="Size", xunit="bytes", xscale="log", y="Predicted / measured")
    worst = []
    for series, (name, (sizes, ratios)) in enumerate(by_name.items()):
        plots.line(ax, sizes, ratios, label=name, series=series)
        worst.append(f"{name} off by up to {max(abs(ratio - 1) for ratio in ratios):.0%}")
    ax.axhline(1.0, color=plots.INK, linewidth=1.0)
    ax.axhspan(0.9, 1.1, color=plots.FAINT, zorder=0)
    ax.set_ylim(0, 2)
    plots.describe(ax, f"{title}: {'; '.join(worst)}. The band is 10 %.")
    return plots.stamp(ax, "MODELLED", note=f"measured: {_PUBLISHED['one_card'].source}")
