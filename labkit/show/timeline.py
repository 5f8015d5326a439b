"""Draw a timeline: one lane per rank, what each was doing, when; below it what ran on the wire."""

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from labkit.measure.timeline import Timeline
from labkit.measure.trace import MAIN, Kind
from labkit.show.plots import describe, new_axes, style

LOOKS = {
    Kind.INPUT: style(4),
    Kind.COMPUTE: style(5),
    Kind.PACK: style(3),
    Kind.WAIT: style(1),
    Kind.MOVE: style(0),
    Kind.COLLECTIVE: style(0),
}
"""By kind: colour and hatching, so that a lane can be read without colours."""


def draw(
    timeline: Timeline, *, title: str = "", ax: Axes | None = None, until: float | None = None
) -> Axes:
    """Draw the timeline, each collective split into waiting and moving.

    The upper bar of a lane is the rank's own thread, the lower and thinner one the collectives that
    run in the background.

    Args:
        timeline: what to draw; one or two steps are readable.
        title: what it shows.
        ax: where to draw.
        until: end of the time axis in seconds, to put two pictures on one scale.
    """
    split = timeline.split()
    tall = 1.1 + 0.62 * max(len(split.ranks), 2)
    ax = new_axes(title, x="Time", xunit="ms", y="Rank", ax=ax, size=(10, tall))
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x", alpha=0.4)
    for lane, rank in enumerate(split.ranks):
        for span in split.of(rank):
            look = LOOKS[span.kind]
            own = span.channel == MAIN
            ax.barh(
                lane - 0.12 if own else lane + 0.29,
                1e3 * span.seconds,
                left=1e3 * (span.begin - split.begin),
                height=0.52 if own else 0.2,
                color=look.color,
                hatch=look.hatch,
                edgecolor="white",
                linewidth=0.3,
            )
    ax.set_yticks(range(len(split.ranks)), [str(rank) for rank in split.ranks])
    ax.set_ylim(len(split.ranks) - 0.45, -0.55)
    if until is not None:
        ax.set_xlim(0, 1e3 * until)
    seen = {span.kind for span in split.spans}
    handles = [
        Patch(facecolor=look.color, hatch=look.hatch, edgecolor="white", label=str(kind))
        for kind, look in LOOKS.items()
        if kind in seen
    ]
    ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles),
              frameon=False, fontsize=9, handlelength=1.6)  # fmt: skip
    describe(ax, _told(timeline, title), table=timeline.table())
    return ax


def _told(timeline: Timeline, title: str) -> str:
    """Say the picture in words: who waits, and for whom."""
    columns, rows = timeline.table()
    waits = {row[0]: row[columns.index("wait ms")] for row in rows}
    told = f"{title}. " if title else ""
    told += "; ".join(f"rank {rank} waits {wait:.0f} ms" for rank, wait in waits.items())
    blame = timeline.blame()
    latest = max(blame, key=blame.get, default=None)
    if latest is not None and blame[latest] > 0:
        told += f". The others lose {1e3 * blame[latest]:.0f} ms waiting for rank {latest} alone"
    return f"{told}."
