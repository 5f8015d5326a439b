"""The questions of the five threads, asked of the GPUs that are here: the rows of `course gpus`.

    for row in ROWS:
        records = row.measure(place, sizes)
        for what, here, elsewhere in row.lines(records): ...
        picture = row.picture(records)

What ranks run is the lessons' own. It runs by NCCL on GPUs and by gloo on CPUs, since it takes its
device from `device()`. Between two GPUs nothing of it was run: it was rehearsed on CPUs.
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course import published
from course.comm import buckets, shapes
from course.comm.collectives import take_turns
from course.lessons.coalesced_broadcast import experiment as broadcasts
from course.lessons.equivalent_collectives import model as puzzle
from course.lessons.equivalent_collectives import programs as three
from course.lessons.gloo_scaling import programs as pairs_calling
from course.lessons.gradient_all_reduce.programs import time_in_a_row, vgg11
from course.lessons.p2p_topology import experiment as copies
from course.lessons.p2p_topology import pictures
from course.lessons.pipeline_p2p import experiment as messages
from course.lessons.pipeline_p2p import programs as ways_to_send
from course.place import Place
from labkit import device
from labkit.measure.records import Record
from labkit.ranks.machine import gpu_count
from labkit.show import plots

NAME = "your GPUs"
MIB = 2**20
SLOW = 0.75  # a pair whose rate is below this share of the fastest one's is called slow
TIMEOUT = 180  # seconds for all of a row
PER_SECOND = {"ms": 1e3, "µs": 1e6}
Samples = dict[str, list[float]]
"""By case: this rank's seconds, round by round."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is moved: what a GPU has room for, or what a laptop moves in a moment."""

    copied: int  # bytes from one GPU to another, and of a sum in a row of twenty
    message: int  # bytes of each of ten messages
    summed: int  # bytes of the sum that is made in three ways
    width: float  # of VGG11 and of ResNet50, as a share of their own
    rounds: int = 5
    calls: int = 200  # small calls in a row

    @classmethod
    def on_gpus(cls, room: int, ranks: int) -> "Sizes":
        """Choose sizes for ranks that may each fill so many bytes of their GPU.

        A `ValueError` says what the rows need, where there is no room for the smallest networks.
        """
        needed = {width: networks(width) for width in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)}
        fitting = [width for width, nbytes in needed.items() if nbytes <= room]
        if not fitting:
            least = min(needed.values()) / MIB
            raise ValueError(f"the rows of lessons 02 and 03 need {least:.3g} MiB for each rank.")
        return cls(
            copied=min(400_000_000, room // ranks),  # the first rank holds a tensor on every GPU
            message=min(64 * MIB, room // 20),  # ten, and ten copies of them
            summed=min(2**30, room // 4),  # a sum, its part, and NCCL's own buffers
            width=fitting[0],
        )

    @classmethod
    def on_cpus(cls, *, quick: bool) -> "Sizes":
        """Choose sizes for ranks that share a laptop."""
        if quick:
            return cls(MIB, MIB, 4 * MIB, width=1 / 8, rounds=3, calls=50)
        return cls(4 * MIB, 4 * MIB, 64 * MIB, width=1 / 2)


def networks(width: float) -> int:
    """Return how many bytes the row of VGG11, or that of ResNet50, holds on a rank at a time."""
    states = sum(tensor.nbytes for tensor in shapes.resnet50(width=width))
    return max(3 * vgg11_bytes(width), 4 * states)  # three ways; two states, and packed ones


@dataclass(frozen=True)
class Row:
    """A question, what measures it, and what others published of it."""

    question: str
    measure: Callable[[Place, Sizes], list[Record]]
    theirs: Mapping[str, str] = field(default_factory=dict)  # by case
    recorded_as: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Case -> experiment and case in the recording of ranks that shared an H200."""
    differences: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    """What follows -> a case, another one, and how many times it makes the first one longer."""
    unit: str = "ms"
    ranks: int = 2  # that it needs

    def recorded(self, library: Iterable[Record]) -> list[Record]:
        """Return what was recorded of this question, by the names that it has here."""
        by_name = {(record.experiment, record.case): record for record in library}
        return [replace(by_name[there], case=case) for case, there in self.recorded_as.items()]

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Return what was measured, its figure, and a published one beside it."""
        times = {record.case: record.summary.median for record in records}
        for record in records:
            parts = [in_words(times[record.case], self.unit)]
            if record is not records[0] and record.nbytes == records[0].nbytes:
                parts.append(f"{times[record.case] / times[records[0].case]:.2f} times")
            if record.busbw:
                parts.append(f"{record.busbw / 1e9:.3g} GB/s (busbw)")
            if "on_cpu" in record.values:
                busy = statistics.median(record.values["on_cpu"])
                parts.append(f"{in_words(busy, self.unit)} on a CPU")
            yield record.case, ", ".join(parts), self.theirs.get(record.case, "")
        for what, (longer, shorter, count) in self.differences.items():
            if times.get(longer, 0) > times.get(shorter, 0) > 0:
                yield what, in_words((times[longer] - times[shorter]) / count, "µs"), ""

    def picture(self, records: Sequence[Record]) -> Any:
        """Draw the records that moved as much as the last one, as bars."""
        alike = [record for record in records if record.nbytes == records[-1].nbytes]
        return plots.ladder(alike, title=self.question, unit=self.unit)


def in_words(seconds: float, unit: str) -> str:
    """Write a time with three digits."""
    return f"{float(f'{seconds * PER_SECOND[unit]:.3g}'):,.10g} {unit}"


def timed(
    place: Place, program: Callable[[Sizes], Samples], sizes: Sizes, **fields: Any
) -> list[Record]:
    """Run a program of this module on all ranks; return a record for each case."""
    ranks = place.launch(program, sizes, timeout=TIMEOUT)
    return [
        place.record(case, [rank[case] for rank in ranks], experiment=NAME, **fields)
        for case in ranks[0]
    ]


def in_turn(ways: Mapping[str, Callable[[], Any]], rounds: int) -> Samples:
    """Time ways in turn, round by round; the first round, in which ranks connect, is left out."""
    samples = take_turns(list(ways.values()), 1 + rounds)
    return {way: seconds[1:] for way, seconds in zip(ways, samples, strict=True)}


class Pairs(Row):
    """A copy between every two GPUs; by gloo a message between every two ranks (lesson 04)."""

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Tell the fastest pair, the slowest one, and which ones are slow."""
        matrix = theirs("p2p_topology", "p2p_on")
        there = [rate for place, rate in enumerate(matrix) if place % 9]  # without the diagonal
        here = {record.case: record.algbw / 1e9 for record in records}
        for what, choose in (("fastest", max), ("slowest", min)):
            pair = choose(here, key=here.__getitem__)
            yield f"the {what}, {pair}", f"{here[pair]:.3g} GB/s", f"{choose(there):.3g} GB/s"
        slow = [pair for pair, rate in here.items() if rate < SLOW * max(here.values())]
        of_theirs = sum(rate < SLOW * max(there) for rate in there)
        count = f"{len(slow)} of {len(here)}"
        yield f"slow: below {SLOW:.0%} of the fastest", count, f"{of_theirs} of 56 (puzzler 1)"
        if slow:
            yield "these are slow", ", ".join(slow[:6] + ["..."] * (len(slow) > 6)), ""

    def picture(self, records: Sequence[Record]) -> Any:
        """Draw the rates as a matrix, from the row to the column."""
        return pictures.by_pairs(records, self.question)


def in_groups(nbytes: int) -> dict[int, dict[int, list[float]]]:
    """Sum one number, and so many bytes, among the first two ranks, ... all; by bytes and ranks."""
    samples: dict[int, dict[int, list[float]]] = {4: {}, nbytes: {}}
    for count in range(2, dist.get_world_size() + 1):
        group = dist.new_group(range(count))
        for size, by_ranks in samples.items():
            by_ranks[count] = time_in_a_row(size, group)
    return samples


def sums(place: Place, sizes: Sizes) -> list[Record]:
    """Time all_reduces by more and more ranks, as lesson 02 times its benchmark."""
    ranks = place.launch(in_groups, sizes.copied, timeout=TIMEOUT)
    return [
        place.record(
            f"{count} ranks" + (", one number" if size == 4 else ""),
            [rank[size][count] for rank in ranks[:count]],
            experiment=NAME,
            collective=None if size == 4 else "all_reduce",  # of one number no rate is told
            nbytes=size,
        )
        for size, count in itertools.product(ranks[0], ranks[0][4])
    ]


def vgg11_bytes(width: float) -> int:
    """Return how many bytes VGG11's parameters have, for a thousand classes as in the thread."""
    return sum(bucket.nbytes for bucket in vgg11_buckets(width, cap=None))


def vgg11_buckets(width: float, cap: int | None) -> list[buckets.Bucket]:
    """Put VGG11's 22 gradients into buckets of at most so many bytes, the last ones first."""
    with torch.device("meta"):
        parameters = list(vgg11(width=width, classes=1000).parameters())
    return buckets.plan(parameters, cap=cap, reverse=True)


def gradients(sizes: Sizes) -> Samples:
    """Sum as many bytes as VGG11's gradients have: in 22 calls, in one, in buckets like DDP's."""

    def in_calls(cap: int | None) -> Callable[[], None]:
        planned = vgg11_buckets(sizes.width, cap)
        flats = [torch.ones(bucket.nbytes // 4, device=device()) for bucket in planned]

        def call() -> None:
            for flat in flats:
                dist.all_reduce(flat)

        return call

    caps = {"a call each, 22": 0, "one flat tensor": None, "buckets of 25 MiB": 25 * MIB}
    return in_turn({name: in_calls(cap) for name, cap in caps.items()}, sizes.rounds)


def states(place: Place, sizes: Sizes) -> list[Record]:
    """Give ResNet50's 320 tensors to all in each of lesson 03's ways."""
    ways: Mapping[str, Mapping[str, Any]] = {
        "one by one, 320": {"cap": 0, "in_flight": 1},
        "a flat state": {"cap": None, "in_flight": 1, "flat": True},
        "in buckets of 10 MiB": {"cap": 10 * MIB},
        "all in one": {"cap": None},
    }
    given: dict[str, Any] = {"place": place, "iters": sizes.rounds, "width": sizes.width}
    return broadcasts.compare(broadcasts.programs.broadcast, ways, **given)


def three_ways(sizes: Sizes) -> Samples:
    """Sum a tensor, whose length the ranks divide, in each way; no group is made meanwhile."""
    ranks = dist.get_world_size()
    x = torch.zeros(sizes.summed // 4 // ranks * ranks, device=device())
    return in_turn({name: partial(way, x) for name, way in three.WAYS.items()}, sizes.rounds)


def puzzle_times() -> dict[str, str]:
    """Return the puzzle's times for 1 GB by a ring, each way's steps added up."""
    steps = [step for step in puzzle.steps() if (step.algorithm, step.nbytes) == ("Ring", 1e9)]
    whole = {way: sum(step.seconds for step in steps if step.way == way) for way in three.WAYS}
    first = whole["all_reduce"]
    times = {w: f"{in_words(s, 'ms')}, {s / first:.2f} times" for w, s in whole.items()}
    return times | {"all_reduce": f"{in_words(first, 'ms')} (16 GPUs, 1 GB)"}


def ten_messages(place: Place, sizes: Sizes) -> list[Record]:
    """Hand ten tensors to two others, in each of the thread's ways; copies take a host's GPUs."""
    ways = dict(ways_to_send.WAYS)
    if place.backend != "nccl" or gpu_count() < 3:
        del ways["copies"]
    records = messages.time_messages(place, ways, sizes.message // 4)
    if lost := [record.case for record in records if not record.values["right"]]:
        raise ArithmeticError(f"{', '.join(lost)}: somebody did not get what was sent")
    return records


def in_arms(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Make the calls of lesson 01's arms, one after the other."""
    return {name: pairs_calling.calls(arm) for name, arm in arms.items()}


def never_talk(place: Place, sizes: Sizes) -> list[Record]:
    """Let more and more pairs call; keep each rank's time, and how long a call keeps a CPU."""
    pairs = place.world_size // 2
    arms = {
        _pairs(calling): {"pairs": pairs, "calling": calling, "calls": sizes.calls}
        for calling in range(1, pairs + 1)
    }
    ranks = place.launch(in_arms, arms, world_size=2 * pairs, timeout=TIMEOUT)
    records = []
    for case in arms:
        samples = [rank[case]["samples"] for rank in ranks]
        on_cpu = [max(rank[case]["on_cpu"] for rank in ranks)]
        records.append(place.record(case, samples, experiment=NAME, values={"on_cpu": on_cpu}))
    return records


def _pairs(count: int) -> str:
    return f"{count} pair{'s' if count > 1 else ''}"


def theirs(lesson: str, name: str) -> Any:
    """Return a figure that a lesson's source published."""
    return published.load(lesson)[name].value


ROWS: tuple[Row, ...] = (
    Pairs(
        "Which pairs are near? (lesson 04)",
        lambda place, sizes: copies.time_pairs(place, sizes.copied, sizes.rounds),
    ),
    Row(
        "What does a sum cost, with two ranks to all? (lessons 02 and 06)",
        sums,
        theirs={"8 ranks": "367 GB/s by a ring, 480 where the switch adds (8 H200)"},
        unit="µs",
    ),
    Row(
        "Do many calls cost what the benchmark's one does not? (lesson 02)",
        lambda place, sizes: timed(place, gradients, sizes, nbytes=vgg11_bytes(sizes.width)),
        theirs={
            "a call each, 22": f"{theirs('gradient_all_reduce', 'in_training'):.0f} ms in training",
            "one flat tensor": f"{theirs('gradient_all_reduce', 'benchmark'):.0f} ms (16 V100)",
        },
        recorded_as={
            "a call each, 22": ("step", "VGG11's 22, a call each"),
            "one flat tensor": ("step", "VGG11's 22, flat"),
        },
        differences={"so a further call takes": ("a call each, 22", "one flat tensor", 21)},
    ),
    Row(
        "One broadcast or three hundred, and what does packing cost? (lesson 03)",
        states,
        theirs={
            "one by one, 320": in_words(theirs("coalesced_broadcast", "original"), "ms"),
            "all in one": in_words(theirs("coalesced_broadcast", "coalesced"), "ms"),
        },
        recorded_as={
            "320 sums of 320 kB": ("step", "320 of 320 kB, a call each"),
            "the same bytes, flat": ("step", "320 of 320 kB, flat"),
            "packing 102 MB into a new buffer": ("packing", "cuda, new"),
        },
        differences={
            "so a further call takes": ("one by one, 320", "a flat state", 319),
            "so a further sum takes": ("320 sums of 320 kB", "the same bytes, flat", 319),
            "so packing and unpacking takes": ("all in one", "a flat state", 1),
        },
    ),
    Row(
        "Do three ways to sum take the same time? (lesson 06)",
        lambda place, sizes: timed(place, three_ways, sizes, nbytes=sizes.summed),
        theirs=puzzle_times(),
        recorded_as={
            "all_reduce": ("algorithms", "nothing asked for, all_reduce"),
            "reduce + broadcast": ("algorithms", "nothing asked for, reduce and broadcast"),
            "reduce_scatter + all_gather": ("algorithms", "nothing asked for, two steps"),
        },
    ),
    Row(
        "A copy, a send or a batch? (lesson 05)",
        ten_messages,
        theirs={
            "copies": f"{theirs('pipeline_p2p', 'interleaved'):.3g} ms",
            "sends": f"{theirs('pipeline_p2p', 'send'):.3g} ms",
            "one batch": f"{theirs('pipeline_p2p', 'batch'):.3g} ms",
        },
        ranks=3,
    ),
    Row(
        "Does a pair slow down others that it never talks to? (lesson 01)",
        never_talk,
        theirs={
            _pairs(count): in_words(seconds / theirs("gloo_scaling", "calls"), "µs")
            for count, seconds in enumerate(theirs("gloo_scaling", "seconds"), 1)
        },
        recorded_as={_pairs(p): ("calls", f"{_pairs(p)}, queued") for p in (1, 2, 4)},
        unit="µs",
    ),
)
