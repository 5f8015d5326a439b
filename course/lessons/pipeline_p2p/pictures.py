"""Pictures of lesson 05: timelines of a step, the queues and what waits in them, step times."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.comm.sharing import Activity, play
from course.lessons.pipeline_p2p import experiment, schedules
from course.lessons.pipeline_p2p.schedules import NAMES, SCHEDULES, Channel, Program, Task, Transfer
from course.lessons.pipeline_p2p.simulator import StepTimeline, find_cycle, find_deadlock, waits
from course.published import load
from labkit.measure.records import Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots
from labkit.show.plots import bars, describe, new_axes, new_figure, stamp, style
from labkit.show.timeline import Arrow, Bar, draw_lanes

KINDS = {"F": "F forward", "B": "B backward"}
LOOKS = {"F forward": replace(style(5), hatch=""), "B backward": style(4)}
IN_CYCLE = "in the circle"
QUEUE_LOOKS = {
    "computes": replace(style(6), hatch="", color="#d0d0d0"),
    "receives": replace(style(0), hatch=""),
    "sends": style(1),
    IN_CYCLE: replace(style(3), hatch="xxx", color="#d62728"),
}
DOWN, UP, UP_TO_OTHER = range(3)  # lanes of a copy: to the host, and from it to either GPU
F2, F1 = schedules.activation(0, 2), schedules.activation(1, 1)
CHAIN = [(1, F2), (1, F1), (2, F1), (2, Task("B", 2, 0))]
"""Who waits for whom in the lesson's program: rank and thing, from F2's receive to B0."""


def step(seen: StepTimeline, *, gap: tuple[int, float, float] | None = None, **how) -> Axes:
    """Draw one row per rank: its tasks as boxes, transfers as arrows between the rows.

    `gap` frames an idle stretch: (rank, begin, end). `how` is as of `draw_lanes`: title, until, ax.
    """
    boxes = [
        Bar(rank, KINDS[task.kind], at.begin, at.end, label=str(task))
        for rank, task, at in seen.tasks
    ]
    arrows = [
        Arrow(t.src, at.begin, t.dst, at.end, KINDS[t.task.kind], label=str(t.task))
        for t, at in seen.transfers
    ]
    description = (
        f"Timeline of {seen.world_size} ranks: {len(boxes)} tasks and {len(arrows)} transfers in "
        f"{1e3 * seen.seconds:.0f} ms."
    )
    if gap:
        rank, begin, end = gap
        description += f" Rank {rank} stands idle from {1e3 * begin:.0f} to {1e3 * end:.0f} ms."
    ranks = [f"rank {rank}" for rank in range(seen.world_size)]
    ax = draw_lanes(ranks, boxes, arrows=arrows, looks=LOOKS, description=description, **how)
    if gap:
        frame = {"fill": False, "edgecolor": "#d62728", "linewidth": 2.2, "linestyle": "--"}
        ax.barh(rank, 1e3 * (end - begin), left=1e3 * begin, height=0.62, **frame)
    return ax


def steps(
    seen: Sequence[tuple[str, StepTimeline]],
    *,
    tier: Tier | str,
    provenance=None,
    framed: bool = False,
    **options,
) -> Figure:
    """Draw timelines below each other on one time axis, each with its title.

    `framed` draws the lesson's frame, in which rank 1 stands idle, into each.
    """
    figure, panels = new_figure(len(seen), 1, size=(10, 0.5 + 2.1 * len(seen)))
    until = max(timeline.seconds for _, timeline in seen)
    for panel, (name, timeline) in zip(panels, seen, strict=True):
        title = f"{name}: {1e3 * timeline.seconds:.0f} ms"
        idle = experiment.frame(timeline) if framed else None
        gaps = {"gap": (1, idle.begin, idle.end)} if idle else {}
        step(timeline, title=title, ax=panel, until=1.01 * until, **options, **gaps)
        stamp(panel, tier, provenance)
    return figure


def frames(records: Sequence[Record], *, names: Sequence[str], title: str) -> Axes:
    """Draw how long the lesson's frame lasts in each run, in the median of its rounds."""
    lasting = [1e3 * median(x["frame"] for x in record.values["rounds"]) for record in records]
    ax = new_axes(title, x="Time", xunit="ms", size=(9, 1.1 + 0.4 * len(names)))
    bars(ax, list(names), lasting, value_format="{:.1f}")
    return stamp(ax, records[0].tier, records[0].provenance)


def modelled(arms: Mapping[str, Mapping], *, leg: float, watched: str) -> tuple[Table, str, Figure]:
    """Simulate each schedule in each arm, where a message takes `leg` seconds.

    Returns a table of step times, and of the first arm that never ends who waits for whom, in words
    and drawn. Where all end, there are no words, and the steps of the schedule `watched` are drawn.
    """
    circles, rows, drawn = experiment.never_ending(arms), [], []
    for schedule in SCHEDULES:
        row = [NAMES[schedule]]
        for arm, how in arms.items():
            case = experiment.Case(schedule, **how)
            if find_deadlock(case.ranks, channel=case.channel):
                row.append("never ends")
                continue
            simulated = experiment.modelled(case, leg=leg)
            row.append(round(1e3 * simulated.seconds))
            if schedule == watched:
                drawn.append((f"{NAMES[schedule]}, {arm}", simulated))
        rows.append(row)
    table = Table(["a step, ms", *arms], rows, "MODELLED")
    if not circles:
        return table, "", steps(drawn, tier=Tier.MODELLED)
    stuck = next(iter(circles.values()))
    figure, (ax,) = new_figure(size=(11.5, 2.8))
    queues(stuck.ranks, ax=ax)
    return table, find_deadlock(stuck.ranks, channel=stuck.channel), figure


def every_schedule(by_schedule: Mapping[str, Mapping[str, Record]]) -> Figure:
    """Draw the step times of each schedule in a panel of its own, a bar an arm."""
    arms = max(map(len, by_schedule.values()))
    figure, panels = new_figure(len(by_schedule), 1, size=(9, 2.1 * arms))
    for panel, (schedule, runs) in zip(panels, by_schedule.items(), strict=True):
        times(list(runs.values()), title=NAMES[schedule], names=list(runs), ax=panel)
    return figure


def queues(ranks: Sequence[Program], *, ax: Axes, title: str = "", chain: Sequence = ()) -> None:
    """Draw what stands in each rank's queue, first to last, and a cycle in red.

    Of a `chain`, of (rank, task or transfer), each is framed, with an arrow to what it waits for.
    """
    cycle = find_cycle(waits(ranks, channel=Channel.ORDERED))
    boxes, places = [], {}
    for rank, program in enumerate(ranks):
        at = 0.0
        for entry in program:
            for part in schedules.parts(entry):
                task = part if isinstance(part, Task) else part.task
                kind = IN_CYCLE if part in cycle else _does(rank, part)
                boxes.append(Bar(rank, kind, at / 1e3, (at + 1) / 1e3, label=str(task)))
                places[rank, part] = at
                at += 1
            at += 0.35
    order = "; ".join(f"rank {r}: {', '.join(map(str, p))}" for r, p in enumerate(ranks))
    names = [f"rank {rank}" for rank in range(len(ranks))]
    title = title or ("A circle: nothing in it can start" if cycle else "Who stands where in line")
    text = f"{title}. From first to last, {order}."
    draw_lanes(names, boxes, looks=QUEUE_LOOKS, description=text, title=title, ax=ax)
    red = {"edgecolor": "#d62728", "linewidth": 2.2}
    for rank, part in chain:
        ax.barh(rank, 1, left=places[rank, part], height=0.62, fill=False, zorder=4, **red)
    for waiting, awaited in itertools.pairwise(chain):
        start, end = ((places[place] + 0.5, place[0]) for place in (waiting, awaited))
        arrow = {"arrowstyle": "-|>", "color": "#d62728", "linewidth": 2.2, "shrinkB": 9}
        arrow["connectionstyle"] = f"arc3,rad={0.6 if start[1] == end[1] else 0}"
        ax.annotate("", end, start, arrowprops=arrow, zorder=5)
    ax.set_xlim(0, max(places.values()) + 1.35)
    ax.set_xticks([])
    ax.set_xlabel("first in line → last; boxes that touch start together")


def _does(rank: int, part: Task | Transfer) -> str:
    """Say what a rank does in a part of its program."""
    if isinstance(part, Task):
        return "computes"
    return "receives" if part.dst == rank else "sends"


def chain_times(seen: StepTimeline, tier: Tier | str) -> Table:
    """Return when each link of `CHAIN` ran in a step, in the order in which they should have ended.

    First what makes F2's input, then what was waited for, and at last F2's transfer.
    """
    ran, moved = {(rank, task): at for rank, task, at in seen.tasks}, dict(seen.transfers)
    tasks = (F2.src, F2.task), CHAIN[-1]
    links = {f"{task} on rank {rank}": ran[rank, task] for rank, task in tasks}
    links |= {str(transfer): moved[transfer] for transfer in (F1, F2)}
    rows = [[name, round(1e3 * at.begin, 1), round(1e3 * at.end, 1)] for name, at in links.items()]
    return Table(["in the mystery's step", "begins, ms", "ends, ms"], rows, str(tier))


def times(records: Sequence[Record], *, title: str, **how) -> Axes:
    """Draw the times of records as bars, each beside its prediction; `how` as of `plots.ladder`."""
    look = {"series": list(range(len(records))), "value_format": "    {:.0f}"}
    return plots.ladder(records, title=title, x="Time of a step", **look, **how)


_WAYS = {
    "ordered": "one queue, as in the mystery",
    "edge": "a communicator per pair",
    "direction": "per pair and direction",
    "tagged": "tags",
    "ordered, by_begin": "one queue, one good order",
    "ordered, receives 1 early": "one queue, receives one task earlier",
    "ordered, receives (1, 1, 0) early": "the same on the first two ranks only",
}
"""What a record's case is called in the lesson."""


def draw(records: Sequence[Record]) -> Figure:
    """Draw each schedule's step time on each channel, measured and predicted."""
    title = "The order of transfers decides the step time"
    figure, panels = new_figure(len(SCHEDULES), 1, title=title, size=(9, 8.4))
    rates = [record.params["rate"] for record in records]  # under torchrun none is the lesson's
    rate = experiment.RATE if experiment.RATE in rates else rates[0]
    usual = {"rate": rate, "slow": 1, "longer_b0": 0}  # what all of the picture share
    for panel, name in zip(panels, SCHEDULES, strict=True):
        wanted = usual | {"schedule": name}
        alike = [record for record in records if wanted.items() <= record.params.items()]
        ways = {record.case.removeprefix(f"{name}, "): record for record in alike}
        chosen = [ways[way] for way in ways if way in _WAYS]  # torchrun's links have one rate
        names = [_WAYS[way] for way in ways if way in _WAYS]
        times(chosen, title=NAMES[name], names=names, ax=panel)
    return figure


def ten_copies() -> Axes:
    """Draw the thread's ways to make ten transfers."""
    figures = load("pipeline_p2p")
    ways = {
        "copies, all to one GPU": figures["memcpy"].value[0],
        "copies, to two in turn": figures["interleaved"].value,
        "copies, a stream for each of two": figures["overlapped"].value,
        "NCCL send, all to one": figures["apart"].value[0],
        "NCCL send, to two": figures["send"].value,
        "NCCL batches, to two": figures["batch"].value,
    }
    ax = new_axes("Ten transfers of 64 MiB", x="Time", xunit="ms", size=(9, 3.6))
    bars(ax, list(ways), list(ways.values()), series=[0, 0, 0, 1, 1, 1], value_format="{:.0f}")
    described = ", ".join(f"{name} {value:.0f} ms" for name, value in ways.items())
    describe(ax, f"Ten transfers of 64 MiB from one GPU: {described}.")
    return plots.stamp_published(ax, figures["send"], note="8x RTX 3090")


def _legs(ups: Sequence[int], leg: float, *, streams: int = 1, ends: str = "up") -> list[Bar]:
    """Play copies, each a leg down and then one up in its lane; a leg alone takes `leg` ms.

    Legs that are in a lane at once share it. The `streams` are given copies in turn, and in each a
    copy begins when the one before it `ends`: is up, or only down.
    """
    legs, after = {}, {}
    for copy, up in enumerate(ups):
        legs["down", copy] = Activity(nbytes=leg / 1e3, links=(DOWN,))
        legs["up", copy] = Activity(nbytes=leg / 1e3, links=(up,))
        after["up", copy] = [("down", copy)]
        if copy >= streams:
            after["down", copy] = [(ends, copy - streams)]
    periods = play(legs, after=after, rates=dict.fromkeys((DOWN, UP, UP_TO_OTHER), 1.0))
    copies = defaultdict(list)  # those that share a lane from begin to end are one box
    for (kind, copy), at in periods.items():
        copies[legs[kind, copy].links[0], kind, at].append(f"{copy}")
    return [
        Bar(lane, kind, at.begin, at.end, label=", ".join(some))
        for (lane, kind, at), some in copies.items()
    ]


def two_legs() -> Figure:
    """Draw which legs of the thread's copies would run when, and what was measured.

    A copy goes down into the host's memory, then up to the other GPU. A leg lasts what it would if
    ten copies to one GPU were twenty legs in a row, or ten to two GPUs in turn.
    """
    source = load("pipeline_p2p")
    figures = {key: source[key].value for key in ("interleaved", "overlapped")}
    figures["memcpy"] = source["memcpy"].value[0]
    leg, own = (figures[way] / 20 for way in ("memcpy", "interleaved"))
    two = "Two streams by the thread's model, a leg of"
    to_one, in_turn = 10 * [UP], 5 * [UP, UP_TO_OTHER]
    models = [
        ("One leg after the other, to one GPU", "memcpy", _legs(to_one, leg)),
        ("One leg after the other, to two GPUs in turn", "interleaved", _legs(in_turn, leg)),
        (f"{two} {leg:.2f} ms", "overlapped", _legs(in_turn, leg, streams=2)),
        (f"{two} {own:.2f} ms", "overlapped", _legs(in_turn, own, streams=2)),
        ("The way down is never idle", "overlapped", _legs(in_turn, leg, ends="down")),
    ]
    lanes = ["down to the host", "up to one GPU", "up to the other"]
    looks = {"down": replace(style(0), hatch=""), "up": replace(style(1), hatch="")}
    figure, panels = new_figure(len(models), 1, size=(10.5, 1.75 * len(models)))
    for panel, (title, key, boxes) in zip(panels, models, strict=True):
        ends = 1e3 * max(box.end for box in boxes)
        text = f"{title}: {ends:.0f} ms by the model, {figures[key]:.0f} ms measured."
        draw_lanes(lanes, boxes, description=text, title=text, looks=looks, until=0.14, ax=panel)
        panel.axvline(figures[key], color="#d62728", linestyle="--", linewidth=2)
        plots.stamp_published(panel, source[key], note="bars: MODELLED; dashed: measured")
    return figure
