"""`python -m course class FILES...`: one HTML page from what the learners of a class handed in."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course import progress
from course.progress import HandIn
from labkit.logs.page import Page
from labkit.measure.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="+", type=Path, help="what the learners handed in (JSON)")
    parser.add_argument("--out", type=Path, default=Path("class.html"), help="page to write")


def main(options: argparse.Namespace) -> int:
    """Write the page; return 0 unless no file could be read."""
    hand_ins = []
    for path in options.files:
        try:
            hand_ins.append(progress.load(path))
        except ValueError as error:
            print(f"left out: {error}", file=sys.stderr)
    if not hand_ins:
        return 1
    options.out.write_text(str(page(hand_ins)), encoding="utf-8")
    print(f"{len(hand_ins)} hand-ins: {options.out}")
    return 0


def page(hand_ins: Sequence[HandIn]) -> Page:
    """Build the page: predictions, machines, exercises."""
    result = Page(f"A class of {len(hand_ins)}: predictions, machines, exercises")
    result.heading("What was predicted, and what came")
    entries = [entry for hand_in in hand_ins for entry in hand_in.entries]
    questions = {entry.key: entry.question for entry in entries}
    for key in sorted(questions):
        pairs = [(e.answer, e.measured) for e in entries if e.key == key and e.counts]
        if pairs:
            result.picture(draw_predictions(questions[key], pairs))
    result.heading("The machines")
    figures = [
        (hand_in.machine, hand_in.passport["alpha"], hand_in.passport["beta"])
        for hand_in in hand_ins
        if hand_in.passport.get("alpha", 0) > 1e-12 and hand_in.passport.get("beta", 0) > 1e-18
    ]
    if figures:
        result.picture(draw_machines(figures))
    result.text(f"{len(figures)} of {len(hand_ins)} machines have a passport (lesson 00).")
    result.heading("How far people came")
    for title, lists in (
        ("lesson run to its end", [hand_in.finished for hand_in in hand_ins]),
        ("exercise passed", [hand_in.passed for hand_in in hand_ins]),
    ):
        counts = Counter(number for numbers in lists for number in set(numbers))
        rows = [(n, counts[n], f"{counts[n] / len(hand_ins):.0%}") for n in sorted(counts)]
        result.table(Table([title, "learners", "of the class"], rows))
    if named := [hand_in for hand_in in hand_ins if hand_in.name]:
        result.heading("By name, of those who gave one")
        rows = [(h.name, len(h.finished), ", ".join(h.passed)) for h in named]
        result.table(Table(["name", "lessons", "exercises passed"], sorted(rows)))
    return result


def draw_predictions(question: str, pairs: Sequence[tuple[float, float]]) -> Axes:
    """Draw a histogram of prediction / measurement, in steps of a factor of two.

    Pairs are `(predicted, measured)` of each learner, both positive; there is one at least.
    """
    import numpy as np

    from labkit.show import plots

    predicted, measured = np.log2(pairs).T
    steps = np.clip(np.round(predicted - measured), -7, 7).astype(int)
    places = range(min(steps.min(), -2), max(steps.max(), 2) + 1)
    counts = [int((steps == place).sum()) for place in places]
    names = [f"{2**place}×" if place > 0 else f"1/{2**-place}" for place in places]
    names[places.index(0)] = "right size"
    ax = plots.new_axes(question, x="Prediction / measurement", y="Learners", size=(7.2, 3.2))
    looks = [plots.style(int(place != 0)) for place in places]
    drawn = ax.bar(range(len(places)), counts, 0.8, color=[look.color for look in looks])
    for bar, look in zip(drawn, looks, strict=True):
        bar.set(hatch=look.hatch, edgecolor="white", linewidth=0)
    ax.bar_label(drawn, [str(count) if count else "" for count in counts], fontsize=9)
    ax.set_xticks(range(len(places)), names)
    ax.yaxis.get_major_locator().set_params(integer=True)
    plots.describe(
        ax,
        f"{counts[places.index(0)]} of {len(pairs)} predictions have the right size (within a "
        "factor of 1.4).",
        table=Table(
            ["prediction / measurement", "learners"], list(zip(names, counts, strict=True))
        ),
    )
    return ax


def draw_machines(figures: Sequence[tuple[str, float, float]]) -> Axes:
    """Draw alpha against bandwidth for each `(machine, alpha in seconds, beta in s per byte)`."""
    from labkit.show import plots

    ax = plots.new_axes(
        "The machines of this class", x="Latency alpha", xunit="µs", y="Bandwidth 1 / beta",
        yunit="GB/s", xscale="log", yscale="log",
    )  # fmt: skip
    rows = [(name, alpha * 1e6, 1e-9 / beta) for name, alpha, beta in figures]
    kinds = list(dict.fromkeys(name for name, _, _ in rows))
    for series, kind in enumerate(kinds):
        look = plots.style(series)
        mine = [figures for name, *figures in rows if name == kind]
        ax.plot(*zip(*mine, strict=True), look.marker, color=look.color, alpha=0.75, label=kind)
    if 0 < len(kinds) <= len(plots.STYLES):
        ax.legend(frameon=False, fontsize=8)
    plots.describe(
        ax,
        f"{len(rows)} machines of {len(kinds)} kinds.",
        table=Table(["machine", "alpha [µs]", "bandwidth [GB/s]"], rows),
    )
    return ax
