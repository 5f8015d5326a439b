"""Lesson 05: what the order of transfers costs a pipeline, predicted and measured.

Three stages train for real on three hosts; the same programs go through channels that order their
transfers differently. A model, calibrated by one message between two of the hosts, predicts each
step's time first.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from course import catalogue
from course.comm.collectives import ping_pong
from course.comm.sharing import Period
from course.lessons.pipeline_p2p import schedules
from course.lessons.pipeline_p2p.programs import (
    StepNotes,
    Way,
    Workload,
    ten_in_turn,
    train,
    work_in_line,
)
from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, Program, Transfer, programs
from course.lessons.pipeline_p2p.simulator import StepTimeline, find_deadlock, simulate
from course.place import Place
from course.runs import Say, by_case, quiet, watched
from labkit.fabric.errors import FabricUnavailable
from labkit.measure.records import Record

NAME = "pipeline-p2p"
STAGES, MICRO_BATCHES = 3, 6
RATE, FAST = "200mbit", "800mbit"
LEG = 0.0075  # seconds of a message, where a step is simulated before any was measured
RECORDING = Path(__file__).with_name("recording.json")
QUEUES = (Channel.ORDERED, Channel.EDGE, Channel.DIRECTION, Channel.TAGGED)
PLAN = schedules.eager_1f1b(stages=STAGES, micro_batches=MICRO_BATCHES)
"""The schedule of the mystery."""

When = Mapping[Transfer, Period]  # from when to when each transfer moves
Order = Callable[[list[Transfer], When], Sequence[Transfer]]
"""Puts all transfers of a schedule in order, given when each moves if nothing queues."""


def by_begin(transfers: list[Transfer], when: When) -> list[Transfer]:
    """Put first what begins first where nothing queues: lesson 05's answer."""
    return sorted(transfers, key=lambda transfer: when[transfer].begin)


best_order = by_begin
"""The same, by the name under which the notebook's cells use it: it tells nobody how."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline that is measured."""

    schedule: str
    channel: Channel
    ahead: int | tuple[int, ...] = 0
    """By how many tasks receives stand early: on all ranks, or on each."""
    rate: str | None = RATE  # of each host's link; None: this machine's loopback
    slow: float = 1.0  # how many times as long rank 0's tasks take as the others'
    longer_b0: float = 0.0  # seconds by which B0 on rank 2 takes longer
    order: Order | None = None
    """One order of transfers for all ranks; None: each rank's program has its own."""
    leg: float = LEG  # seconds of a message in the simulated step that the order is made from

    def __post_init__(self) -> None:
        least = -self.work.backward
        if self.longer_b0 <= least:
            raise ValueError(
                f"longer_b0={self.longer_b0}: a task cannot take no time, or less; B0 takes "
                f"{-least} s, so that anything above {least} is possible."
            )

    @property
    def work(self) -> Workload:
        """Return what is trained."""
        return Workload(leg=self.leg, slow=self.slow, longer_b0=self.longer_b0)

    @property
    def ranks(self) -> tuple[Program, ...]:
        """Return every rank's program."""
        plan = SCHEDULES[self.schedule](stages=STAGES, micro_batches=MICRO_BATCHES)
        if self.order:
            when = dict(simulate(programs(plan), self.work, channel=Channel.TAGGED).transfers)
            return schedules.in_order(plan, self.order(sorted(when), when))
        return programs(plan, ahead=self.ahead)

    def __str__(self) -> str:
        early = f", receives {self.ahead} early" if self.ahead else ""
        rate = f", {self.rate or 'loopback'}" if self.rate != RATE else ""
        slow = f", rank 0 {self.slow:g} times as slow" if self.slow != 1 else ""
        longer = f", B0 {1e3 * self.longer_b0:g} ms longer" if self.longer_b0 else ""
        order = f", {self.order.__name__}" if self.order else ""
        return f"{self.schedule}, {self.channel.value}{order}{early}{rate}{slow}{longer}"


MYSTERY = Case("eager 1f1b", Channel.ORDERED)
FASTER = replace(MYSTERY, rate=FAST)
LONGER = replace(MYSTERY, longer_b0=0.05)
EARLIER = replace(MYSTERY, ahead=1)
UNNAMED = replace(MYSTERY, ahead=(1, 1, 0))  # a fault to find: rank 2 posts its receives late
_NO_QUEUE = replace(MYSTERY, channel=Channel.DIRECTION)
WORLDS = {
    guilty: (base, replace(base, rate=rate), replace(base, longer_b0=LONGER.longer_b0))
    for guilty, base, rate in (
        ("a", replace(_NO_QUEUE, rate=FAST), "3200mbit"),
        ("b", replace(_NO_QUEUE, rate="50mbit"), RATE),
        ("c", replace(_NO_QUEUE, slow=4.0), FAST),
        ("d", MYSTERY, FAST),
    )
}
"""For each suspect of the lesson's vote a world in which it is guilty: its step, the same on other
links, and the same with a longer B0 on rank 2."""
PUTS = {
    "messages": Case("eager 1f1b", Channel.ORDERED, rate=None),
    "puts that wait": Case("eager 1f1b", Channel.WAITING_PUT, rate=None),
    "puts": Case("eager 1f1b", Channel.PUT, rate=None),
}
"""The mystery's schedule on one machine, where a message takes next to no time: deeper 05."""
_CASES = [Case(name, c) for name in SCHEDULES for c in QUEUES]
_CASES += [Case(name, Channel.ORDERED, order=by_begin) for name in SCHEDULES]  # act 2's answer
_CASES += [EARLIER, UNNAMED, *(case for world in WORLDS.values() for case in world)]
EVERY = tuple(dict.fromkeys(_CASES))


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Measure every schedule on every channel and in the answer's order, and the lesson's cases.

    `quick`: one step per case instead of three.

    Returns:
        EMULATED records; where no fabric can be built, the RECORDED ones. Under torchrun, with
        three ranks at least, MEASURED ones on the network that is there. Timelines are then to be
        trusted on one node only, because nodes have clocks of their own, and predictions only
        where every link is as fast as the one between ranks 0 and 1, which is the one measured.
    """
    return pipelines(*EVERY, rounds=1 if quick else 3, say=progress)


def pipelines(
    *cases: Case, rounds: int = 3, say: Say = print, in_line: Callable[..., None] | None = None
) -> list[Record]:
    """Predict and measure cases on three hosts, in turn: a training step of each in each round.

    Where no links can be made, return what was recorded. What nobody recorded is measured on
    loopback there. `in_line` is the learner's own queue, in place of `programs.work_in_line`.
    """
    places = {case.rate: Place(STAGES, case.rate) for case in cases}
    queue = in_line or work_in_line
    try:
        with ExitStack() as links:
            up = {rate: links.enter_context(place.up()) for rate, place in places.items()}
            return watched(lambda: _in_turns(cases, up, rounds, queue))
    except FabricUnavailable as reason:
        say(str(reason))
    kept = recorded()
    if in_line is None and all(str(case) in kept for case in cases):
        say("Shown instead: what another machine measured (RECORDED).")
        return [kept[str(case)] for case in cases]
    say("Measured on loopback instead, where messages take next to no time.")
    here = dict.fromkeys(places, Place(STAGES))
    return watched(lambda: _in_turns(cases, here, rounds, queue))


def recorded() -> dict[str, Record]:
    """Load what another machine measured, by case."""
    return by_case(catalogue.experiment(NAME).recorded())


def unnamed_trace() -> Record:
    """Load the recorded step in which one rank posts its receives late."""
    return recorded()[str(UNNAMED)]


def modelled(case: Case, *, leg: float) -> StepTimeline:
    """Simulate a case. `leg`, the seconds of one message, is the model's only parameter."""
    return simulate(case.ranks, replace(case.work, leg=leg), channel=case.channel)


def never_ending(arms: Mapping[str, Mapping]) -> dict[str, Case]:
    """Name the arms in which a schedule closes a circle of waits, each with its first such case.

    `arms` are ways to make a `Case`: ``{"tags": {"channel": Channel.TAGGED}}``.
    """
    circles = {}
    for arm, how in arms.items():
        for case in (Case(schedule, **how) for schedule in SCHEDULES):
            if arm not in circles and find_deadlock(case.ranks, channel=case.channel):
                circles[arm] = case
    return circles


def every_schedule(
    arms: Mapping[str, Mapping], in_line: Callable[..., None]
) -> dict[str, dict[str, Record]]:
    """Measure each schedule in each arm, all in turns; return the records by schedule and arm.

    An arm that never ends runs in this lesson's order instead, and a line says so.
    """
    ways = dict(arms)
    for arm in never_ending(arms):
        print(f"{arm} never ends, so our order runs in its place.")
        ways[arm] = {"channel": Channel.ORDERED, "order": by_begin}
    cases = [Case(schedule, **how) for schedule in SCHEDULES for how in ways.values()]
    print(f"{len(cases)} pipelines on three ranks, in turns, three rounds: a quarter of a minute.")
    runs = iter(pipelines(*cases, in_line=in_line))
    return {schedule: {arm: next(runs) for arm in ways} for schedule in SCHEDULES}


def ten_messages(place: Place, ways: Mapping[str, Way], numel: int) -> list[Record]:
    """Time ten messages from rank 0 to two ranks in turn, each way; say whether all arrived."""
    records = time_messages(place, ways, numel)
    for record in records:
        print(f"{record.case}: every rank has its messages: {record.values['right']}")
    return records


def time_messages(place: Place, ways: Mapping[str, Way], numel: int) -> list[Record]:
    """Time ten messages, each way; a record's value `right` tells whether all arrived."""
    records = []
    for name, way in ways.items():
        with place.up() as here:
            ranks = here.launch(ten_in_turn, way, numel, world_size=3)
        seconds, right = zip(*ranks, strict=True)
        fields = {"nbytes": 4 * numel, "values": {"right": all(right)}}
        records.append(here.record(name, list(seconds), experiment="ten messages", **fields))
    return records


def step(record: Record) -> StepTimeline:
    """Return the timeline of the step that a pipeline's record holds."""
    return StepTimeline.from_lists(record.values["timeline"], world_size=record.params["stages"])


def frame(seen: StepTimeline) -> Period | None:
    """Return when rank 1 stands idle and F2's input lies ready and does not move; None: never."""
    input_of_f2 = schedules.activation(0, 2)
    ran = {task: at for _, task, at in seen.tasks}
    starts = ran[input_of_f2.use].begin
    free = max((at.end for rank, _, at in seen.tasks if rank == 1 and at.end <= starts), default=0)
    idle = Period(max(ran[input_of_f2.task].end, free), dict(seen.transfers)[input_of_f2].begin)
    return idle if idle.seconds > 0 else None


def _in_turns(
    cases: Sequence[Case], places: Mapping[str, Place], rounds: int, in_line: Callable[..., None]
) -> list[Record]:
    """Run a step of each case in turn, so many rounds; return a record for each case."""
    few = partial(ping_pong, iters=9)
    one_way = {
        rate: median(here.launch(few, Workload().nbytes, world_size=2)[0])
        for rate, here in places.items()
    }
    steps: list[list[tuple[StepNotes, ...]]] = [[] for _ in cases]
    for rate, repeats in _launches(list(places), rounds):
        numbers = [k for k, case in enumerate(cases) if case.rate == rate] * repeats
        runs = [(cases[k].ranks, cases[k].channel, cases[k].work) for k in numbers]
        limit = 30.0 + 3 * len(runs)
        ranks = places[rate].launch(train, runs, in_line, world_size=STAGES, timeout=limit)
        for k, *notes in zip(numbers, *ranks, strict=True):
            steps[k].append(tuple(notes))
    return [
        _record(case, notes, places[case.rate], one_way[case.rate])
        for case, notes in zip(cases, steps, strict=True)
    ]


def _launches(rates: Sequence[str], rounds: int) -> list[tuple[str, int]]:
    """Return the launches, each with its rate and how many rounds it runs.

    Links of one rate take all rounds in one launch. Of several rates each has a launch a round, so
    that they take turns.
    """
    if len(rates) == 1:
        return [(rates[0], rounds)]
    return [(rate, 1) for _ in range(rounds) for rate in rates]


def _record(case: Case, steps: Sequence[tuple[StepNotes, ...]], here: Place, leg: float) -> Record:
    """Make a case's record of what all ranks noted in each step."""
    totals = [max(notes.seconds for notes in ranks) for ranks in steps]
    by_time = sorted(range(len(steps)), key=totals.__getitem__)
    middle = by_time[(len(steps) - 1) // 2]  # of two the one less disturbed
    seen = [side_by_side(ranks) for ranks in steps]
    gradients = [notes.gradients.numpy().tobytes() for notes in steps[middle]]
    params = {name: getattr(case, name) for name in ("schedule", "ahead", "slow", "longer_b0")}
    params |= {"channel": case.channel.value, "leg": leg}
    params |= {"stages": STAGES, "micro_batches": MICRO_BATCHES}
    return here.record(
        str(case),
        [[notes.seconds for notes in rank] for rank in zip(*steps, strict=True)],
        experiment=NAME,
        params=params,
        nbytes=case.work.nbytes,
        predicted=modelled(case, leg=leg).seconds,
        values={
            "bubble": seen[middle].bubble,
            "rounds": [_for_the_board(timeline) for timeline in seen],
            "gradients": [hashlib.sha256(bits).hexdigest()[:16] for bits in gradients],
            "timeline": seen[middle].as_lists(),
        },
    )


def _for_the_board(seen: StepTimeline) -> dict:
    """Return what the board asks of one round's step: seconds, and the idle share of all ranks."""
    framed, ranks = frame(seen), range(seen.world_size)
    took = [[at.seconds for r, t, at in seen.tasks if (r, t.kind) == (rank, "F")] for rank in ranks]
    own = [at for rank, _, at in seen.tasks if rank == 1]  # rank 1's, between its first and last
    return {
        "bubble": seen.bubble,
        "idle": own[-1].end - own[0].begin - sum(at.seconds for at in own),
        "frame": framed.seconds if framed else 0.0,
        "forward": [median(seconds) for seconds in took],
    }


def side_by_side(ranks: Sequence[StepNotes]) -> StepTimeline:
    """Put the ranks' notes of one step side by side, to the microsecond.

    All ranks read one kernel's clock. A transfer runs from when both ends want it until the
    receiver has it.
    """
    start = min(begin for notes in ranks for _, begin, _ in notes.tasks)

    def period(begin: float, end: float) -> Period:
        return Period(round(begin - start, 6), round(end - start, 6))

    tasks, transfers = [], []
    for rank, notes in enumerate(ranks):
        tasks += [(rank, task, period(begin, end)) for task, begin, end in notes.tasks]
        for transfer, (wanted, end) in notes.transfers.items():
            if transfer.dst == rank:
                offered, _ = ranks[transfer.src].transfers[transfer]
                transfers.append((transfer, period(max(wanted, offered), end)))
    tasks.sort(key=lambda item: item[2].begin)
    transfers.sort(key=lambda item: item[1].begin)
    return StepTimeline(len(ranks), tuple(tasks), tuple(transfers))
