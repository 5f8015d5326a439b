"""The picture of lesson 05b: who waits for whom."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from course.lessons.hang_clinic.run_case import CaseReport, circle
from labkit.show.plots import describe, new_figure, stamp

WAITS, ENDED, CIRCLE = "#2b6cb0", "#9a9a9a", "#d62728"


def who_waits(report: CaseReport) -> Axes:
    """Draw the ranks of a hang, and an arrow from each that waits to each that it waits for.

    Ranks that have finished are grey squares; arrows of a circle are red and thick. Where nobody
    waits, what each rank returned stands beside it, and a rank with wrong values is red.
    """
    _, (ax,) = new_figure(size=(6.4, 4.4))
    waits, ranks = report.waits, len(report.calls)
    loop = circle(waits)
    steps = set(zip(loop, [*loop[1:], *loop[:1]], strict=True))
    turns = [2 * math.pi * rank / ranks for rank in range(ranks)]
    at = [(math.sin(turn), math.cos(turn)) for turn in turns]
    calls = {wait.rank: wait.call for wait in waits}
    for wait in waits:
        for other in wait.for_ranks:
            color, width = (CIRCLE, 3) if (wait.rank, other) in steps else (WAITS, 1.5)
            look = {"color": color, "linewidth": width, "connectionstyle": "arc3,rad=0.18"}
            look |= {"arrowstyle": "-|>", "shrinkA": 20, "shrinkB": 20}
            ax.annotate("", at[other], at[wait.rank], arrowprops=look)
    for rank, (x, y) in enumerate(at):
        shape, edge, words = _look_of(report, rank, calls)
        box = {"boxstyle": shape, "facecolor": "white", "edgecolor": edge, "linewidth": 2}
        ax.text(x, y, f"{rank}", ha="center", va="center", fontsize=14, bbox=box, zorder=3)
        side, away = ("bottom", 0.24) if y > 0 else ("top", -0.24)
        ax.text(x, y + away, words, ha="center", va=side, fontsize=10)
    ax.set(xlim=(-1.75, 1.75), ylim=(-1.55, 1.6))
    ax.set_axis_off()
    ax.set_title(_title(report), loc="left", fontweight="bold")
    describe(ax, in_words(report))
    return stamp(ax, "MEASURED")


def _look_of(report: CaseReport, rank: int, calls: Mapping[int, str]) -> tuple[str, str, str]:
    """Return the shape and the edge of a rank's box, and what stands beside it."""
    if report.returned:
        returned, right = (in_short(ended[rank]) for ended in (report.returned, report.healthy))
        if report.returned[rank] != report.healthy[rank]:
            return "square", CIRCLE, f"returned {returned}\nright: {right}"
        return "square", ENDED, f"returned {returned}"
    if rank in report.running:
        return "circle", WAITS, calls.get(rank, "still computes")
    return "square", ENDED, "has finished"


def _title(report: CaseReport) -> str:
    asks = "who returned what" if report.returned else "who waits for whom"
    return f"{report.name}: {asks}"


def in_short(values: Any) -> str:
    """Write what a rank returned, whole numbers without their dots: `[12, 21]`."""
    if not isinstance(values, list):
        return repr(values)
    return f"[{', '.join(f'{value:g}' for value in values)}]" if values else "nothing"


def in_words(report: CaseReport) -> str:
    """Say in sentences what the picture shows."""
    parts = [f"{_title(report)}."]
    for rank, values in enumerate(report.returned):
        right = report.healthy[rank]
        wrong = "" if values == right else f", right is {in_short(right)}"
        parts.append(f"Rank {rank} returned {in_short(values)}{wrong}.")
    for wait in report.waits:
        whom = " and ".join(f"rank {rank}" for rank in wait.for_ranks)
        parts.append(f"Rank {wait.rank} waits in {wait.call} for {whom}.")
    ended = [rank for rank in range(len(report.calls)) if rank not in report.running]
    if ended and not report.returned:
        parts.append(f"Finished: {', '.join(f'rank {rank}' for rank in ended)}.")
    if loop := circle(report.waits):
        parts.append("A circle: " + " → ".join(map(str, [*loop, loop[0]])) + ".")
    return " ".join(parts)
