"""Lesson 2: why does averaging gradients take 280 ms when the same bytes move in 60?

Four hosts run the thread's loop with a stopwatch around each of its 22 calls. Each timer is taken
apart: waiting for the last rank, and moving bytes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

from course.lessons.gradient_all_reduce import programs
from course.place import Place, launch
from course.runs import Say, quiet
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Record
from labkit.measure.timeline import Timeline
from labkit.measure.timing import slowest
from labkit.measure.trace import Kind, Span
from labkit.ranks import torchrun

NAME = "gradient-all-reduce"
HOSTS, RATE, THIN = 4, "2gbit", "430mbit"
"""The thread's two bus bandwidths are 4.7 times apart; so are these two rates."""
SMALL = 256
"""Bytes of a call that carries next to nothing. (gloo treats a single element in another way.)"""
ASLEEP = {"picture": 32, "batch": 2, "nap": 0.012}
"""Next to no computing of the CPU's: each of eight convolutions sleeps 12 ms in its backward."""
KEYS = "late", "backwards", "thin"
"""What an arm of a loop may have."""
CASES: dict[str, tuple[Callable, tuple]] = {
    "late": (programs.train, (programs.LATE,)),
    "late, backwards": (programs.train, (programs.BACKWARDS,)),
    "thin card": (programs.train, (programs.CARDS,)),
    "rungs": (programs.climb, ()),
    "rungs, asleep": (partial(programs.climb, **ASLEEP), ()),
}
"""What is recorded for machines on which no links can be made: program, arguments."""


class Timer(NamedTuple):
    """What one rank's stopwatch around one call showed, taken apart; seconds."""

    name: str
    wait: float  # until the last rank had arrived
    move: float

    @property
    def seconds(self) -> float:
        """What the stopwatch itself shows."""
        return self.wait + self.move


def hosts() -> Place:
    """Return four hosts with two network cards each: one of `RATE`, and a second one of `THIN`."""
    return Place(HOSTS, RATE, fabric=Fabric.star(hosts=HOSTS, rate=RATE, management=THIN))


def on_hosts(program: Callable, *args: Any, case: str | None = None) -> Record:
    """Run a program that returns ``tracer.trace()`` on four hosts; return a record with its spans.

    Where no links can be made, the record is what another machine measured in that `case`; without
    a case, or with other arms than it has, the program runs on loopback, which has no links that
    could be slow.
    """
    arms_of_recording = CASES[case][1] if case else ()
    if arms_of_recording:
        arms = args[0]
        for name, arm in arms.items():
            if strange := [*(arm.keys() - set(KEYS))]:
                print(f"{name!r}: nobody reads {strange[0]!r}; an arm may have {', '.join(KEYS)}.")
            if arm.get("late", 0) not in range(HOSTS):
                print(
                    f"{name!r}: nobody is late; {arm['late']!r} is none of ranks 0 to {HOSTS - 1}."
                )
        if list(arms.values()) != list(arms_of_recording[0].values()):
            case = None

    def measure(here: Place) -> list[Record]:
        whole = Timeline(here.launch(program, *args, timeout=120))
        steps = [whole.steps(step, step) for step in sorted({span.step for span in whole.spans})]
        samples = [[step.exposed(rank) for step in steps] for rank in whole.ranks]
        values = {"spans": whole.rows(), "clock_error": whole.clock_error}
        return [here.record(case or "one's own", samples, experiment=NAME, values=values)]

    try:
        say = print if case else quiet
        (record,) = hosts().records(measure, say=say, cases={case}, experiment=NAME)
    except LookupError:
        print("No links can be made here; this runs on loopback.")
        (record,) = Place(HOSTS).records(measure, experiment=NAME)
    return record


def timeline(record: Record) -> Timeline:
    """Return the timeline of a record."""
    return Timeline.from_rows(record.values["spans"], clock_error=record.values["clock_error"])


def timers(record: Record, *, rank: int = 0, every: slice = slice(2, None)) -> list[Timer]:
    """Return one rank's timers in the order of the calls, each the median over the steps.

    `every` says which steps count: the first two warm up.
    """
    kinds = (Kind.WAIT, Kind.MOVE)
    spans = timeline(record).split().of(rank, kinds=kinds)
    steps = sorted({span.step for span in spans})[every]
    seconds: dict[tuple[str, Kind, int], float] = defaultdict(float)
    for span in spans:
        seconds[span.name, span.kind, span.step] += span.seconds
    return [
        Timer(name, *(median(seconds[name, kind, step] for step in steps) for kind in kinds))
        for name in dict.fromkeys(span.name for span in spans if span.step in steps)
    ]


def arms_of(record: Record, arms: Iterable[str]) -> dict[str, list[Timer]]:
    """Return rank 0's timers in each arm of `programs.train`, but for the first round."""
    names = list(arms)
    return {
        name: timers(record, every=slice(len(names) + place, None, len(names)))
        for place, name in enumerate(names)
    }


def pairs(record: Record, arms: int = 2) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return, for each round but the first, the seconds of each call by its name in two arms.

    In the first arm, in which nothing was different, and in the second, in which one thing was.
    The median over the ranks' own timers, waiting included: what the team could have seen.
    """
    whole = timeline(record)
    by_step: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rank in whole.ranks:
        for span in whole.of(rank, kinds=(Kind.COLLECTIVE,)):
            by_step[span.step][span.name].append(span.seconds)
    steps = [{name: median(x) for name, x in calls.items()} for calls in by_step.values()]
    return list(zip(steps[arms::arms], steps[arms + 1 :: arms], strict=True))


def exposed(record: Record) -> dict[str, list[float]]:
    """Return, by rung, the seconds of moving bytes that nothing hides, in each round but the first.

    On the rank whose backward ends last: while it computes, nothing that moves makes the step any
    longer, though other ranks, of more than there are CPUs, ended theirs early. Waiting for late
    ranks is left out, which no rung can hide. The rungs take turns: compare them round by round,
    since what disturbs a machine lasts longer than one.
    """
    steps = timeline(record).split()
    return _by_rung(steps, lambda step: step.seconds(last_backward(step).rank, Kind.MOVE))


def _by_rung(steps: Timeline, of_step: Callable[[Timeline], Any]) -> dict[str, list[Any]]:
    """Return, by rung, what a function makes of each step but those of the first round."""
    numbers = range(1 + max(span.step for span in steps.spans))
    return {
        rung: [of_step(steps.steps(k, k)) for k in numbers[place :: len(programs.RUNGS)][1:]]
        for place, rung in enumerate(programs.RUNGS)
    }


def last_backward(step: Timeline) -> Span:
    """Return the backward that ends last in a step."""
    return max((x for x in step.spans if x.name == "backward"), key=lambda span: span.end)


def ends(record: Record) -> dict[str, list[tuple[float, float]]]:
    """Return, by rung and round but the first, when the last rank's backward and the step end.

    In seconds since the step's first rank began.
    """

    def of_step(step: Timeline) -> tuple[float, float]:
        end = max(span.end for span in step.spans)
        return last_backward(step).end - step.begin, end - step.begin

    return _by_rung(timeline(record), of_step)


def lengths(record: Record) -> dict[str, tuple[float, float]]:
    """Return the medians of `ends`, by rung."""
    return {
        rung: tuple(map(median, zip(*both, strict=True))) for rung, both in ends(record).items()
    }


def as_posted(program: Callable = programs.as_posted, place: Place | None = None) -> list[Record]:
    """Run the thread's loop and its benchmark, on four hosts or elsewhere; return both.

    The record ``loop`` has rank 0's seconds in the classifier's calls, step by step, ``benchmark``
    those in one call of as many bytes. The first step connects, and is left out.
    """

    def measure(here: Place) -> list[Record]:
        (steps, *_) = here.launch(program, timeout=120)
        loop = [sum(row[CLASSIFIER:-1]) / 1e3 for row in steps[1:]]
        alone = [row[-1] / 1e3 for row in steps[1:]]
        common = {"experiment": NAME, "params": {"world_size": here.world_size}}
        return [here.record("loop", [loop], **common), here.record("benchmark", [alone], **common)]

    return (place or hosts()).records(measure, cases=("loop", "benchmark"), experiment=NAME)


PARTS_OF_A_STEP = "the six", "the first call", "the whole step"
CLASSIFIER, LAST = 16, 21  # the first and the last of the classifier's six calls, in the loop


def small_calls() -> Record:
    """Time all_reduces of `SMALL` bytes in a row, with nobody late: here, or as recorded.

    ``samples[r]`` of the record holds what one call took on rank r, in each round.
    """
    case = f"all_reduce of {SMALL} bytes"

    def measure(here: Place) -> list[Record]:
        ranks = here.launch(programs.time_in_a_row, SMALL)
        return [here.record(case, ranks, experiment=NAME, collective="all_reduce", nbytes=SMALL)]

    (record,) = hosts().records(measure, cases={case}, experiment=NAME)
    return record


def lost_to_the_latest(
    program: Callable, kinds: Mapping[str, list[float]], sizes: Sequence[int]
) -> dict[tuple[str, int], list[float]]:
    """Return, by kind of lateness and number of ranks, the ms lost in a step, in three turns.

    `program` takes a kind's delays and returns the seconds of ten meetings without any, and then
    of a meeting with each. What the slowest rank took counts, in the mean over the delays, less
    the median of the ten.
    """
    lost = defaultdict(list)
    for _ in range(3):
        for n in sizes:
            ranks = launch(lambda: [program(delays) for delays in kinds.values()], world_size=n)
            for kind, by_rank in zip(kinds, zip(*ranks, strict=True), strict=True):
                seconds = slowest(by_rank)
                lost[kind, n].append(1e3 * (fmean(seconds[10:]) - median(seconds[:10])))
    return lost


def cure(program: Callable = programs.with_copies, place: Place | None = None) -> list[Record]:
    """Run the arms of `programs.CURE`, on four hosts or elsewhere; return a record for each.

    ``samples`` are rank 0's seconds in whole steps, by round; in ``values`` are those of ``the
    six`` calls of the classifier, of ``the first call`` that is made, and of ``the whole step``.
    """

    def measure(here: Place) -> list[Record]:
        (steps, *_) = here.launch(program, programs.CURE, timeout=120)
        records = []
        for number, (arm, how) in enumerate(programs.CURE.items()):
            mine = [[ms / 1e3 for ms in step] for step in steps[number :: len(programs.CURE)]]
            first = LAST if how["backwards"] else 0
            six = [sum(step[CLASSIFIER : LAST + 1]) for step in mine]
            calls, wholes = [step[first] for step in mine], [step[-1] for step in mine]
            values = dict(zip(PARTS_OF_A_STEP, (six, calls, wholes), strict=True))
            params = {"world_size": here.world_size}
            fields = {"experiment": NAME, "params": params, "values": values}
            records.append(here.record(cure_case(arm), [wholes], **fields))
        return records

    cases = set(map(cure_case, programs.CURE))
    return (place or hosts()).records(measure, cases=cases, experiment=NAME)


def cure_case(arm: tuple[str, str, str]) -> str:
    """Return the name under which an arm of `programs.CURE` is recorded."""
    return f"cure: {', '.join(arm)}"


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Run the small calls and each of `CASES`, all short: `quick` is ignored."""
    progress("calls that carry next to nothing")
    measured = [small_calls(), *as_posted()]
    for case, (program, args) in CASES.items():
        progress(case)
        if case == "thin card" and torchrun.is_here():
            progress(f"left out: a job's hosts need not have a second card, {programs.CARD}")
            continue
        measured.append(on_hosts(program, *args, case=case))
    progress("the reported cure, as arms")
    return measured + cure()
