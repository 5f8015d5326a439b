"""Lesson 05: what the order of transfers costs a pipeline, predicted and measured.

Four stages train for real on four hosts; the same programs go through channels that order their
transfers differently. A model, calibrated by one message between two of the hosts, predicts each
step's time first.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from course.comm.collectives import ping_pong
from course.comm.sharing import Activity, Period, play
from course.lessons.pipeline_p2p import overlap
from course.lessons.pipeline_p2p.exchange import in_order
from course.lessons.pipeline_p2p.programs import (
    DESTINATIONS,
    MODES,
    Copies,
    StepNotes,
    Workload,
    copy_to_two,
    train,
    wait_ends_early,
)
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, Program, Schedule, programs
from course.lessons.pipeline_p2p.simulator import Costs, StepTimeline, simulate_programs
from course.runs import (
    Say,
    measured_or_recorded,
    quiet,
    repeat_if_disturbed,
    watched,
)
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks.launcher import launch

NAME = "pipeline-p2p"
TITLE = "What the order of transfers costs a pipeline"
STAGES, MICRO_BATCHES, CREDITS = 4, 8, 2
PIPELINE_RATE = "200mbit"
COPY_RATES = ("400mbit", "1.6gbit", "400mbit", "400mbit")
DISTURBED = 0.25
"""CPUs: a run beside which other programs used more was disturbed."""
Case = tuple[str, Channel, int]
RECORDING = Path(__file__).with_name("recording.json")


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Measure every schedule on every channel, two destinations, and computing beside messages.

    `quick`: one step per case instead of three.

    Returns:
        EMULATED records; where no fabric can be built, the RECORDED ones. Under torchrun, with
        four ranks at least, MEASURED ones on the network that is there. Timelines are then to be
        trusted on one node only, because nodes have clocks of their own, and predictions only
        where every link is as fast as the one between ranks 0 and 1, which is the one measured.
    """
    every = [(name, c, 0) for name in SCHEDULES for c in Channel if c is not Channel.BLOCKING]
    every += [("eager 1f1b", channel, 1) for channel in (Channel.ORDERED, Channel.EDGE)]
    repeats = 1 if quick else 3
    return [
        *pipelines(every, steps=repeats, say=progress),
        *destinations(repeats=repeats, say=progress),
        *compute_beside_messages(say=progress),
    ]


def pipelines(
    cases: Sequence[Case],
    *,
    steps: int = 2,
    say: Say = quiet,
    write: Callable[..., Sequence[Program]] = programs,
    queue: Callable = in_order,
) -> list[Record]:
    """Predict and measure some cases on four hosts, or return what was recorded.

    Args:
        cases: (schedule, channel, by how many tasks receives stand early) for each.
        steps: Training steps of each.
        say: Told each case.
        write: Writes the ranks' programs: write(schedule, ahead=...).
        queue: Works through a queue of transfers; see `exchange.in_order`.
    """

    def measure(fabric: Fabric | None) -> list[Record]:
        leg = median(launch(ping_pong, Workload().nbytes, world_size=2, fabric=fabric)[0])
        records = []
        for case in cases:
            say(case_name(*case))
            one = partial(_pipeline, case, fabric, leg=leg, steps=steps, write=write, queue=queue)
            records.append(_settled(one, say))
        return records

    names = [case_name(*case) for case in cases]
    return _here_or_recorded(measure, Fabric.star(hosts=STAGES, rate=PIPELINE_RATE), names, say)


def case_name(schedule: str, channel: Channel, ahead: int = 0) -> str:
    """Return how records call a case."""
    early = f", receives {ahead} early" if ahead else ""
    return f"{schedule}, {channel.value}{early}"


def destinations(*, repeats: int = 3, say: Say = quiet) -> list[Record]:
    """Predict and measure the copies to two destinations, or return what was recorded."""

    def measure(fabric: Fabric | None) -> list[Record]:
        say("two destinations")
        leg = median(launch(ping_pong, Copies("").nbytes, world_size=2, fabric=fabric)[0])
        one = partial(_copies, fabric=fabric, leg=leg, repeats=repeats)
        return [_settled(partial(one, mode), say) for mode in MODES]

    names = [f"two destinations, {mode}" for mode in MODES]
    return _here_or_recorded(measure, Fabric.star(hosts=4, rate=COPY_RATES), names, say)


def compute_beside_messages(*, say: Say = quiet) -> list[Record]:
    """Compute beside messages over loopback, then over a link, or return what was recorded."""
    say("computing beside messages")

    def measure(fabric: Fabric | None) -> list[Record]:
        return watched(lambda: [_overlap(fabric)], say=say) if fabric else []

    link, cases = Fabric.star(hosts=2, rate=COPY_RATES[0]), ["computing beside messages, link"]
    loopback = watched(lambda: [_overlap(None)], say=say)
    return loopback + _here_or_recorded(measure, link, cases, say)


def modelled(schedule: str, channel: Channel, ahead: int = 0, *, leg: float) -> StepTimeline:
    """Simulate the step that is measured, with receives so many tasks early.

    `leg`: seconds of one message between two hosts, the model's only parameter.
    """
    return _simulated(programs(_plan(schedule), ahead=ahead), channel, leg)


def _plan(schedule: str) -> Schedule:
    return SCHEDULES[schedule](stages=STAGES, micro_batches=MICRO_BATCHES)


def _simulated(ranks: Sequence[Program], channel: Channel, leg: float) -> StepTimeline:
    costs = Costs(Workload().forward, Workload().backward, nbytes=1.0, rate=1 / leg)
    credits = CREDITS if channel is Channel.TAGGED else None
    return simulate_programs(ranks, costs, channel=channel, credits=credits)


def modelled_copies(mode: str, *, each: int, leg: float) -> float:
    """Return the seconds of `each` copies to both destinations, if a leg alone takes `leg`."""
    activities, after = {}, {}
    order = [(dst, k) for k in range(each) for dst in DESTINATIONS]
    for place, (dst, k) in enumerate(order):
        down, up = (dst, k, 1), (dst, k, 2)
        in_turn = "source" if mode == "in turn" else None
        activities[down] = Activity(nbytes=leg, links=("source",), queue=in_turn)
        activities[up] = Activity(nbytes=leg, links=(("to", dst),))
        after[up] = [down]
        before = order[place - 1] if mode == "interleaved" else (dst, k - 1)
        after[down] = [(*before, 2)] if place and before[1] >= 0 else []
    rates = dict.fromkeys(["source", *(("to", dst) for dst in DESTINATIONS)], 1.0)
    return max(period.end for period in play(activities, after=after, rates=rates).values())


def step(record: Record) -> StepTimeline:
    """Return the timeline of the step that a pipeline's record holds."""
    return StepTimeline.from_lists(record.values["timeline"], world_size=record.params["stages"])


def table(records: Sequence[Record]) -> Table:
    """Lay out what has a prediction: step time, its error, bubbles."""
    columns = ["schedule", "channel", "receives early", "predicted ms", "measured ms", "error %"]
    rows = []
    for record in records:
        if record.predicted is None:
            continue
        took, expected = record.summary.median, record.predicted
        params, off = record.params, round(100 * (took / expected - 1), 1)
        names = (
            params.get("schedule", "two destinations"),
            params.get("channel", params.get("mode")),
        )
        bubbles = (_rounded(record.values.get(key)) for key in ("predicted_bubble", "bubble"))
        times = round(1e3 * expected, 1), round(1e3 * took, 1), off
        rows.append([*names, params.get("ahead", 0), *times, *bubbles])
    return Table([*columns, "predicted bubble", "bubble"], rows)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _here_or_recorded(
    measure: Callable, fabric: Fabric, cases: Sequence[str], say: Say
) -> list[Record]:
    return measured_or_recorded(
        measure, fabric, recording=RECORDING, experiment=NAME, cases=cases, say=say
    )


def _settled(measure: Callable[[], Record], say: Say) -> Record:
    """Measure; while other programs use the CPUs measure again, twice at most."""
    (record,) = repeat_if_disturbed(
        lambda: watched(lambda: [measure()], say=say),
        unrest=lambda found: found[0].others or 0.0,
        limit=DISTURBED,
        say=say,
    )
    return record


def _record(
    case: str, fabric: Fabric | None, params: dict, samples: list[list[float]], **about: Any
) -> Record:
    tier = Tier.EMULATED if fabric else Tier.MEASURED
    return Record(NAME, case, params, samples, tier, Provenance.here("gloo"), **about)


def _pipeline(
    case: Case, fabric: Fabric | None, *, leg: float, steps: int, write: Callable, queue: Callable
) -> Record:
    schedule, channel, ahead = case
    work = Workload()
    ranks = write(_plan(schedule), ahead=ahead)
    predicted = _simulated(ranks, channel, leg)
    job = (train, ranks, channel, work, steps, CREDITS, queue)
    results = launch(*job, world_size=STAGES, fabric=fabric)
    samples = [[notes.seconds for notes in steps_of_rank] for steps_of_rank in results]
    totals = [max(times) for times in zip(*samples, strict=True)]
    middle = sorted(range(steps), key=totals.__getitem__)[steps // 2]
    seen = side_by_side([steps_of_rank[middle] for steps_of_rank in results])
    params = {"schedule": schedule, "channel": channel.value, "ahead": ahead, "leg": leg}
    params |= {"stages": STAGES, "micro_batches": MICRO_BATCHES}
    params |= {"forward": work.forward, "backward": work.backward}
    params["rate"] = PIPELINE_RATE if fabric else "as it is"
    values = {"bubble": seen.bubble, "predicted_bubble": predicted.bubble}
    values["gradients"] = [steps_of_rank[middle].digest for steps_of_rank in results]
    values["timeline"] = seen.as_lists()
    more = {"nbytes": work.nbytes, "values": values, "predicted": predicted.seconds}
    return _record(case_name(*case), fabric, params=params, samples=samples, **more)


def side_by_side(ranks: Sequence[StepNotes]) -> StepTimeline:
    """Put the ranks' notes of one step side by side, to the microsecond.

    All ranks read one kernel's clock. A transfer runs from when both ends want it until the
    receiver has it.
    """
    start = min(begin for notes in ranks for _, begin, _ in notes.tasks)

    def period(begin: float, end: float) -> Period:
        return Period(round(begin - start, 6), round(end - start, 6))

    tasks = [
        (rank, task, period(begin, end))
        for rank, notes in enumerate(ranks)
        for task, begin, end in notes.tasks
    ]
    transfers = [
        (transfer, period(max(begin, ranks[transfer.src].transfers[transfer][0]), end))
        for rank, notes in enumerate(ranks)
        for transfer, (begin, end) in notes.transfers.items()
        if transfer.dst == rank
    ]
    tasks.sort(key=lambda item: item[2].begin)
    transfers.sort(key=lambda item: item[1].begin)
    return StepTimeline(len(ranks), tuple(tasks), tuple(transfers))


def _copies(mode: str, *, fabric: Fabric | None, leg: float, repeats: int) -> Record:
    copies = Copies(mode)
    results = [launch(copy_to_two, copies, world_size=4, fabric=fabric) for _ in range(repeats)]
    params = {"mode": mode, "copies": len(DESTINATIONS) * copies.each, "leg": leg}
    params["rates"] = list(COPY_RATES) if fabric else "as it is"
    samples = [[result[rank] for result in results] for rank in range(4)]
    predicted = modelled_copies(mode, each=copies.each, leg=leg)
    more = {"nbytes": copies.nbytes, "predicted": predicted}
    return _record(f"two destinations, {mode}", fabric, params, samples, **more)


def _overlap(fabric: Fabric | None) -> Record:
    seen = launch(overlap.measure, world_size=2, fabric=fabric)
    where = "link" if fabric else "loopback"
    params = {"where": where, "rate": COPY_RATES[0] if fabric else None}
    values = {
        "ranks": [asdict(one) for one in seen],
        "slow_down": median(one.slow_down for one in seen),
        "cpu_share": median(one.cpu_share for one in seen),
        "wait_ends_early_by": launch(wait_ends_early, world_size=2, fabric=fabric)[0],
    }
    samples = [[one.compute_beside] for one in seen]
    return _record(f"computing beside messages, {where}", fabric, params, samples, values=values)
