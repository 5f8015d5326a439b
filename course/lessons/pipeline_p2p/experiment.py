"""Lesson 05: what the order of transfers costs a pipeline, predicted and measured.

Three stages train for real on three hosts; the same programs go through channels that order their
transfers differently. A model, calibrated by one message between two of the hosts, predicts each
step's time first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from course.comm.collectives import ping_pong
from course.comm.sharing import Period
from course.lessons.pipeline_p2p.programs import StepNotes, Workload, train
from course.lessons.pipeline_p2p.schedules import (
    SCHEDULES,
    Channel,
    Program,
    activation,
    eager_1f1b,
    programs,
)
from course.lessons.pipeline_p2p.simulator import Costs, StepTimeline, simulate
from course.place import Place
from course.runs import Say, quiet, watched
from labkit.fabric.errors import FabricUnavailable
from labkit.measure.records import Record

NAME = "pipeline-p2p"
TITLE = "What the order of transfers costs a pipeline"
STAGES, MICRO_BATCHES = 3, 6
RATE, FAST = "200mbit", "800mbit"
RECORDING = Path(__file__).with_name("recording.json")
PLAN = eager_1f1b(stages=STAGES, micro_batches=MICRO_BATCHES)
"""The schedule of the mystery."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline that is measured."""

    schedule: str
    channel: Channel
    ahead: int | tuple[int, ...] = 0
    """By how many tasks receives stand early: on all ranks, or on each."""
    rate: str = RATE
    """Of each host's link."""

    @property
    def ranks(self) -> tuple[Program, ...]:
        """Return every rank's program."""
        plan = SCHEDULES[self.schedule](stages=STAGES, micro_batches=MICRO_BATCHES)
        return programs(plan, ahead=self.ahead)

    def __str__(self) -> str:
        early = f", receives {self.ahead} early" if self.ahead else ""
        return f"{self.schedule}, {self.channel.value}{early}" + (
            f", {self.rate}" if self.rate != RATE else ""
        )


FASTER = Case("eager 1f1b", Channel.ORDERED, rate=FAST)
EARLIER = Case("eager 1f1b", Channel.ORDERED, 1)
UNNAMED = Case("eager 1f1b", Channel.ORDERED, (1, 1, 0))
"""A fault to find: rank 2 posts its receives late."""
EVERY = (
    *(Case(name, c) for name in SCHEDULES for c in Channel if c is not Channel.BLOCKING),
    EARLIER, Case("eager 1f1b", Channel.EDGE, 1), UNNAMED, FASTER,
)  # fmt: skip


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Measure every schedule on every channel, and the lesson's own cases.

    `quick`: one step per case instead of three.

    Returns:
        EMULATED records; where no fabric can be built, the RECORDED ones. Under torchrun, with
        three ranks at least, MEASURED ones on the network that is there. Timelines are then to be
        trusted on one node only, because nodes have clocks of their own, and predictions only
        where every link is as fast as the one between ranks 0 and 1, which is the one measured.
    """
    return pipelines(*EVERY, steps=1 if quick else 3, say=progress)


def pipelines(*cases: Case, steps: int = 2, say: Say = quiet) -> list[Record]:
    """Predict and measure some cases on three hosts, or return what was recorded.

    Args:
        *cases: What to measure.
        steps: Training steps of each.
        say: Told each case.
    """
    records = []
    for rate, group in groupby(cases, key=lambda case: case.rate):
        asked = list(group)
        records += Place(STAGES, rate).records(
            lambda here, asked=asked: _pipelines(asked, here, steps=steps, say=say),
            recording=RECORDING, experiment=NAME, cases=[str(case) for case in asked], say=say,
        )  # fmt: skip
    return records


def compare(*cases: Case, steps: int = 2, say: Say = print) -> list[Record]:
    """Measure cases that nobody recorded: on links, or on loopback where none can be made."""
    try:
        with Place(STAGES, RATE).up() as here:
            return _pipelines(cases, here, steps=steps)
    except FabricUnavailable as reason:
        say(f"{reason}\nMeasured on loopback instead, where messages take next to no time.")
        return _pipelines(cases, Place(STAGES), steps=steps)


def modelled(case: Case, *, leg: float) -> StepTimeline:
    """Simulate a case. `leg`, the seconds of one message, is the model's only parameter."""
    costs = Costs(Workload().forward, Workload().backward, leg)
    return simulate(case.ranks, costs, channel=case.channel)


def step(record: Record) -> StepTimeline:
    """Return the timeline of the step that a pipeline's record holds."""
    return StepTimeline.from_lists(record.values["timeline"], world_size=record.params["stages"])


def frame(record: Record) -> Period | None:
    """Return when rank 1 stands idle and F2's input lies ready and does not move; None: never."""
    seen, input_of_f2 = step(record), activation(0, 2)
    ran = {task: at for _, task, at in seen.tasks}
    starts = ran[input_of_f2.use].begin
    free = max((at.end for rank, _, at in seen.tasks if rank == 1 and at.end <= starts), default=0)
    moves = dict(seen.transfers)[input_of_f2].begin
    idle = Period(max(ran[input_of_f2.task].end, free), moves)
    return idle if idle.seconds > 0 else None


def _pipelines(cases: Sequence[Case], here: Place, *, steps: int, say: Say = quiet) -> list[Record]:
    leg = median(here.launch(ping_pong, Workload().nbytes, world_size=2)[0])
    records = []
    for case in cases:
        say(str(case))
        records += watched(lambda case=case: [_pipeline(case, here, leg, steps)])
    return records


def _pipeline(case: Case, here: Place, leg: float, steps: int) -> Record:
    work, predicted = Workload(), modelled(case, leg=leg)
    results = here.launch(train, case.ranks, case.channel, work, steps, world_size=STAGES)
    samples = [[notes.seconds for notes in steps_of_rank] for steps_of_rank in results]
    totals = [max(times) for times in zip(*samples, strict=True)]
    by_time = sorted(range(steps), key=totals.__getitem__)
    middle = by_time[(steps - 1) // 2]  # of two the one less disturbed
    seen = side_by_side([steps_of_rank[middle] for steps_of_rank in results])
    params = {"schedule": case.schedule, "channel": case.channel.value, "ahead": case.ahead}
    params |= {"leg": leg, "stages": STAGES, "micro_batches": MICRO_BATCHES}
    params |= {"forward": work.forward, "backward": work.backward}
    values = {"bubble": seen.bubble}
    values["gradients"] = [steps_of_rank[middle].digest for steps_of_rank in results]
    values["timeline"] = seen.as_lists()
    fields = {"nbytes": work.nbytes, "values": values, "predicted": predicted.seconds}
    return here.record(str(case), samples, experiment=NAME, params=params, **fields)


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
