"""Pictures of lesson 01: time against pairs, the asker's and ours."""

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.gloo_scaling import evidence, programs
from course.predictions.ledger import mark
from course.published import load
from labkit.measure.records import Record
from labkit.show import plots

ASKER = "the asker: 48 logical CPUs"


def asker() -> dict[int, float]:
    """Return the thread's figures: pairs -> seconds per call, which it does not compute."""
    figures = load("gloo_scaling")
    calls = figures["calls"].value
    return {pairs: s / calls for pairs, s in enumerate(figures["seconds"].value, start=1)}


def theirs_and_ours(records: Sequence[Record]) -> Axes:
    """Draw the posted script's time per call, the asker's beside ours."""
    ax = plots.new_axes("The posted script", x="Pairs of ranks", y="Time per call", yunit="µs")
    lines = {ASKER: {pairs: 1e6 * seconds for pairs, seconds in asker().items()}}
    for record in records:
        lines.setdefault(record.case, {})[record.params["pairs"]] = 1e6 * record.summary.median
    texts = [f"{label}: {line[1]:.0f} to {line[max(line)]:.0f} µs" for label, line in lines.items()]
    plots.describe(ax, f"Time per call, from the fewest to the most pairs. {'; '.join(texts)}.")
    return _beside_the_asker(ax, lines, records)


def like_ours(records: Sequence[Record]) -> Axes:
    """Draw in how many CPUs like ours the asker's calls would take so long, ours, and the bet."""
    ax = plots.new_axes("How many CPUs?", x="Pairs of ranks", y="CPUs like one of ours")
    seconds, ours = {ASKER: asker()}, evidence.times(records, 1)
    for record in records:
        if record.params.get("cpus") != 1:
            seconds.setdefault(record.case, {})[record.params["pairs"]] = record.summary.median
    lines = {label: evidence.like_ours(ours, times) for label, times in seconds.items()}
    texts = [f"{label}: {evidence.cpus_of(ours, times):.1f}" for label, times in seconds.items()]
    text = f"Our time on one CPU over the time. Median from 4 pairs: {'; '.join(texts)}."
    plots.describe(ax, text)
    _beside_the_asker(ax, lines, records).set_ylim(bottom=0)
    mark(ax, "01.cpus")
    return ax


def _beside_the_asker(ax: Axes, lines: Mapping[str, dict], records: Sequence[Record]) -> Axes:
    """Draw lines, pairs -> figure, the asker's and ours."""
    tier = records[0].tier
    for series, (label, line) in enumerate(lines.items()):
        kind = "PUBLISHED" if label == ASKER else tier
        plots.line(ax, [*line], [*line.values()], label=label, series=series, kind=kind)
    return _stamped(ax, records, tier, "PUBLISHED")


def _stamped(ax: Axes, records: Sequence[Record], *tiers: str) -> Axes:
    return plots.stamp(ax, tiers, records[0].provenance, others=records[-1].others)


def arms(records: Sequence[Record], bet: str) -> Axes:
    """Draw an experiment's arms, and where the bet on it belongs: bytes a second of A, or times."""
    part = records[0].params["part"]
    title = f"{part}: {evidence.INVESTIGATION.experiments[part].what}"
    if part == "A":
        ax = _rates(records, title)
    else:
        ax = plots.ladder(records, title=title, x="Time per call", unit="µs", value_format="{:.0f}")
    try:
        scale = _of_one(records)
    except LookupError:
        return ax  # the verdict will name the arm that is missing
    mark(ax, bet, axis="x", scale=scale)
    return ax


def _rates(records: Sequence[Record], title: str) -> Axes:
    rates = [[rate / 1e6 for rate in evidence.carried(record)] for record in records]
    size = (9, 1.4 + 0.42 * len(records))
    ax = plots.new_axes(title, x="All ranks together send", xunit="MB/s", size=size)
    names, middle = [record.case for record in records], [*map(median, rates)]
    band = {"low": list(map(min, rates)), "high": list(map(max, rates))}
    plots.bars(ax, names, middle, **band, value_format="{:.0f}")
    texts = [f"{name} {rate:.0f} MB/s" for name, rate in zip(names, middle, strict=True)]
    plots.describe(ax, f"{title}. {'; '.join(texts)}.")
    return _stamped(ax, records, records[0].tier)


def _of_one(records: Sequence[Record]) -> float:
    """Return where on the axis a bet of 1 lies: in A and B it is a percentage, else a multiple."""
    part = records[0].params["part"]
    if part == "A":
        return max(median(evidence.carried(record)) for record in records) / 1e6 / 100
    return 1e6 * evidence.reference(records) / (100 if part == "B" else 1)


def growing(records: Sequence[Record]) -> Axes:
    """Draw the time per tensor of the ways to sum, against the pairs; it spans decades."""
    axes = {"x": "Pairs of ranks", "y": "Time", "yunit": "µs", "yscale": "log"}
    ax = plots.new_axes("Time per tensor, one CPU", **axes)
    records = sorted(records, key=lambda record: record.params["pairs"])
    pairs = [record.params["pairs"] for record in records]
    texts = []
    for series, way in enumerate(programs.WAYS):
        times = [1e6 * median(record.values[way]) for record in records]
        plots.line(ax, pairs, times, label=way, series=series, kind=records[0].tier)
        texts.append(f"{way}: {times[0]:.1f} to {times[-1]:.1f} µs")
    plots.describe(ax, f"From {pairs[0]} to {pairs[-1]} pairs. {'; '.join(texts)}.")
    return _stamped(ax, records, records[0].tier)


def draw(records: Sequence[Record]) -> Figure:
    """Draw the picture that `course run gloo-scaling` saves: theirs and ours."""
    posted = [record for record in records if record.params["part"] == "posted"]
    return theirs_and_ours(posted).figure
