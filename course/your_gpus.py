"""The questions of the five threads, asked of the GPUs that are here: the rows of `course gpus`.

    for row in ROWS:
        records = row.measure(place, sizes)      # on all ranks, by the lessons' own programs
        for what, here, elsewhere in row.lines(records): ...
        picture = row.picture(records)

The same programs run by NCCL on GPUs and by gloo on CPUs, since they take their device from
`device()`. Between two GPUs nothing of it was run: it was rehearsed on CPUs.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course import published
from course.comm import buckets, shapes
from course.comm.collectives import event, free_bytes, synchronize, take_turns
from course.lessons.coalesced_broadcast import programs as broadcasts
from course.lessons.equivalent_collectives import model as puzzle
from course.lessons.equivalent_collectives.programs import WAYS
from course.lessons.gloo_scaling.programs import accounted
from course.lessons.gradient_all_reduce.programs import vgg11
from course.place import Place
from labkit import device, time_calls
from labkit.measure.records import Record, bus_factor
from labkit.show import plots

NAME = "your GPUs"
MIB = 2**20
PER_SECOND = {"ms": 1e3, "µs": 1e6}
SMALL = 20  # small sums in a row, so that a call is timed as a job makes it
SLOW = 0.75  # a pair whose rate is below this share of the fastest one's is called slow
TIMEOUT = 180  # seconds for all of a row
SHARE = 0.8  # of a GPU's free memory: nothing here takes more

Samples = dict[str, list[float]]
"""By case: this rank's seconds, round by round."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is moved: what a GPU has room for, or what a laptop moves in a moment."""

    copied: int  # bytes from one GPU to another
    message: int  # bytes of each of ten messages
    summed: int  # bytes of the largest sum
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


@dataclass(frozen=True)
class Row:
    """A question, the program that measures it on every rank, and what others published of it."""

    question: str
    program: Callable[[Sizes], Samples]
    nbytes: Callable[[Sizes], int] | None = None  # that its records note
    theirs: Mapping[str, str] = field(default_factory=dict)  # by case
    recorded_as: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Case -> experiment and case in the recording of ranks that shared an H200."""
    unit: str = "ms"

    def measure(self, place: Place, sizes: Sizes) -> list[Record]:
        """Run the program on all ranks of a place that is up."""
        ranks = place.launch(self.program, sizes, timeout=TIMEOUT)
        fields = {"nbytes": self.nbytes(sizes)} if self.nbytes else {}
        return [
            place.record(case, [rank[case] for rank in ranks], experiment=NAME, **fields)
            for case in ranks[0]
        ]

    def recorded(self, library: Iterable[Record]) -> list[Record]:
        """Return what was recorded of this question, by the names that it has here."""
        by_name = {(record.experiment, record.case): record for record in library}
        return [replace(by_name[there], case=case) for case, there in self.recorded_as.items()]

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Return what was measured, its figure, and a published one beside it."""
        first = records[0].summary.median
        for number, record in enumerate(records):
            seconds = record.summary.median
            compared = f", {seconds / first:.2f} times" if number else ""
            figure = in_words(seconds, self.unit) + compared
            yield record.case, figure, self.theirs.get(record.case, "")

    def picture(self, records: Sequence[Record]) -> Any:
        """Draw the records as bars."""
        return plots.ladder(records, title=self.question, unit=self.unit)


def networks(width: float) -> int:
    """Return how many bytes the row of VGG11, or that of ResNet50, holds on a rank at a time."""
    gradients = _nbytes(vgg11_tensors(width, "meta"))  # each tensor, DDP's buckets, all flat
    return max(3 * gradients, 4 * _nbytes(shapes.resnet50(width=width)))  # states, and packed ones


def in_words(seconds: float, unit: str) -> str:
    """Write a time with three digits."""
    return f"{float(f'{seconds * PER_SECOND[unit]:.3g}'):,.10g} {unit}"


def room() -> tuple[int, int] | None:
    """Return the bytes that this rank may fill of its GPU, and those filled; None on a CPU."""
    if device().type == "cpu":
        return None
    free, whole = torch.cuda.mem_get_info()
    return int(SHARE * free_bytes()), whole - free


def in_turn(ways: Mapping[str, Callable[[], Any]], rounds: int) -> Samples:
    """Time ways in turn, round by round, on every rank; the first round is left out.

    In it a group makes its communicator, pairs connect, and libraries load.
    """
    samples = take_turns(list(ways.values()), 1 + rounds)
    return {way: seconds[1:] for way, seconds in zip(ways, samples, strict=True)}


def nothing() -> None:
    """Do nothing, while others are timed."""


# Which pairs are near? (lesson 04)


def pairs_of_gpus(sizes: Sizes) -> Samples:
    """Copy between every two GPUs of this host; one rank of each host does it.

    The first copy of a pair opens the way between the two, and is left out.
    """
    if device().index != 0:
        return {}
    gpus = range(torch.cuda.device_count())
    data = [torch.ones(sizes.copied // 4, device=f"cuda:{gpu}") for gpu in gpus]
    samples: Samples = {}
    for src, dst in itertools.permutations(gpus, 2):
        with torch.cuda.device(src):
            took = []
            for _ in range(1 + sizes.rounds):
                begin, end = event(), event()
                begin.record()
                data[dst].copy_(data[src], non_blocking=True)
                end.record()
                end.synchronize()
                took.append(begin.elapsed_time(end) / 1e3)
        samples[f"{src} to {dst}"] = took[1:]
    return samples


def pairs_of_ranks(sizes: Sizes) -> Samples:
    """Send a message between every two ranks, one pair after the other."""
    rank, x, samples = dist.get_rank(), torch.ones(sizes.copied // 4), {}
    for src, dst in itertools.permutations(range(dist.get_world_size()), 2):
        calls = {src: partial(dist.send, x, dst), dst: partial(dist.recv, x, src)}
        call = calls.get(rank, nothing)
        samples[f"{src} to {dst}"] = time_calls(call, warmup=1, iters=sizes.rounds)
    return samples


class Pairs(Row):
    """A copy between every two GPUs; by gloo a message between every two ranks."""

    def measure(self, place: Place, sizes: Sizes) -> list[Record]:
        """Move the same bytes over one pair after the other."""
        program = pairs_of_gpus if place.backend == "nccl" else pairs_of_ranks
        ranks = [rank for rank in place.launch(program, sizes, timeout=TIMEOUT) if rank]
        return [
            place.record(pair, [r[pair] for r in ranks], experiment=NAME, nbytes=sizes.copied)
            for pair in ranks[0]
        ]

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Tell the fastest pair, the slowest one, and which ones are slow."""
        matrix = published.load("p2p_topology")["p2p_on"].value
        theirs = [rate for place, rate in enumerate(matrix) if place % 9]  # without the diagonal
        here = {record.case: record.algbw / 1e9 for record in records}
        slow = [pair for pair, rate in here.items() if rate < SLOW * max(here.values())]
        for what, choose in (("fastest", max), ("slowest", min)):
            pair, elsewhere = choose(here, key=here.__getitem__), choose(theirs)
            yield f"the {what}, {pair}", f"{here[pair]:.3g} GB/s", f"{elsewhere:.3g} GB/s"
        of_theirs = sum(rate < SLOW * max(theirs) for rate in theirs)
        count = f"{len(slow)} of {len(here)}"
        yield f"slow: below {SLOW:.0%} of the fastest", count, f"{of_theirs} of 56 (puzzler 1)"
        if slow:
            named = slow if len(slow) <= 6 else [*slow[:6], "..."]
            yield "these are slow", ", ".join(named), ""

    def picture(self, records: Sequence[Record]) -> Any:
        """Draw the rates as a matrix, from the row to the column."""
        here = {record.case: record.algbw / 1e9 for record in records}
        count = math.isqrt(len(here)) + 1
        rates = [[here.get(f"{a} to {b}", math.nan) for b in range(count)] for a in range(count)]
        names = [str(number) for number in range(count)]
        ax = plots.new_axes("GB/s, from the row to the column", size=(7.2, 1.8 + 0.4 * count))
        plots.matrix(ax, rates, rows=names, columns=names, value_format="{:.3g}")
        told = [f"{what} {figure}" for what, figure, _ in self.lines(records)]
        plots.describe(ax, f"{self.question} {'; '.join(told)}.")
        return plots.stamp(ax, records[0].tier, records[0].provenance)


# What does a sum cost, with two ranks to all? (lessons 02 and 06)


def sums(sizes: Sizes) -> Samples:
    """Sum one number, and many, among the first two ranks, the first three, ... all."""
    rank, ways = dist.get_rank(), {}
    one, many = (torch.ones(n, device=device()) for n in (1, sizes.summed // 16))

    def small(group: Any) -> None:
        for _ in range(SMALL):
            dist.all_reduce(one, group=group)

    for count in range(2, dist.get_world_size() + 1):
        group = dist.new_group(range(count))
        large = partial(dist.all_reduce, many, group=group)
        ways[f"{count} ranks"] = partial(small, group) if rank < count else nothing
        ways[f"{count} ranks, large"] = large if rank < count else nothing
    return in_turn(ways, sizes.rounds)


class Sums(Row):
    """All_reduces by more and more ranks: a small call's time, and what a large one carries."""

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Tell both, by number of ranks."""
        for small, large in zip(records[::2], records[1::2], strict=True):
            count = int(small.case.split()[0])
            busbw = large.algbw * bus_factor("all_reduce", count) / 1e9
            call = in_words(small.summary.median / SMALL, "µs")
            figure = f"{call} a small call, {busbw:.3g} GB/s (busbw)"
            yield small.case, figure, self.theirs.get(small.case, "")

    def picture(self, records: Sequence[Record]) -> Any:
        """Draw what a large sum takes."""
        size = f"{records[0].nbytes / MIB:.3g} MiB"
        return plots.ladder(records[1::2], title=f"An all_reduce of {size}, by ranks")


# Do many calls cost what the benchmark's one does not? (lesson 02)


def vgg11_tensors(width: float, place: Any) -> list[torch.Tensor]:
    """Return VGG11's 22 parameters, for a thousand classes as in the thread, on a device."""
    with torch.device(place):
        return [p.detach() for p in vgg11(width=width, classes=1000).parameters()]


def gradients(sizes: Sizes) -> Samples:
    """Sum as many bytes as VGG11's gradients have: in 22 calls, in DDP's buckets, in one."""
    tensors = vgg11_tensors(sizes.width, device())
    first, *_ = buckets.plan(tensors, cap=MIB, reverse=True)  # DDP's first bucket is small
    others = buckets.plan(tensors[: min(first.members)], cap=25 * MIB, reverse=True)
    in_buckets = [torch.ones(b.nbytes // 4, device=device()) for b in (first, *others)]
    flat = torch.ones(_nbytes(tensors) // 4, device=device())

    def one_by_one() -> None:
        for tensor in tensors:
            dist.all_reduce(tensor)

    ways = {
        "a call each, 22": one_by_one,
        f"DDP's {len(in_buckets)} buckets": lambda: [
            dist.all_reduce(bucket, async_op=True) for bucket in in_buckets
        ],
        "one flat tensor": lambda: dist.all_reduce(flat),
    }
    return in_turn(ways, sizes.rounds)


class Gradients(Row):
    """A call for each tensor, DDP's buckets, or one call; and what a further call takes."""

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Tell also the price of a call, which follows from the first way and the last."""
        yield from super().lines(records)
        each, flat = records[0].summary.median, records[-1].summary.median
        if each > flat:
            yield "so a further call takes", in_words((each - flat) / 21, "µs"), ""


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


# One broadcast or three hundred, and what does packing cost? (lesson 03)


def broadcast_state(sizes: Sizes) -> Samples:
    """Give ResNet50's 320 tensors to all in each way; then pack and unpack without sending."""
    ways: broadcasts.Ways = {
        "one by one, 320": {"cap": 0, "in_flight": 1},
        "in buckets of 10 MiB": {"cap": 10 * MIB},
        "all in one": {"cap": None},
        "a flat state": {"cap": None, "in_flight": 1, "flat": True},
    }
    timed = broadcasts.time_ways(broadcasts.broadcast, ways, sizes.width, sizes.rounds)
    tensors = broadcasts.state(sizes.width)
    plan = buckets.plan(tensors, cap=10 * MIB)

    def pack() -> None:
        for bucket in plan:
            members = [tensors[place] for place in bucket.members]
            buckets.unpack(buckets.flatten(members), members)

    packing = in_turn({"packing and unpacking alone": pack}, sizes.rounds)
    return {way: told["samples"] for way, told in zip(ways, timed, strict=True)} | packing


# Do three ways to sum take the same time? (lesson 06)


def three_ways(sizes: Sizes) -> Samples:
    """Sum a tensor, whose length the ranks divide, in each way; no group is made meanwhile."""
    ranks = dist.get_world_size()
    x = torch.zeros(sizes.summed // 4 // ranks * ranks, device=device())
    return in_turn({name: partial(way, x) for name, way in WAYS.items()}, sizes.rounds)


def puzzle_times() -> dict[str, str]:
    """Return the puzzle's times for 1 GB by a ring, each way's steps added up."""
    steps = [step for step in puzzle.steps() if (step.algorithm, step.nbytes) == ("Ring", 1e9)]
    whole = {way: sum(step.seconds for step in steps if step.way == way) for way in WAYS}
    first = whole["all_reduce"]
    times = {w: f"{in_words(s, 'ms')}, {s / first:.2f} times" for w, s in whole.items()}
    return times | {"all_reduce": f"{in_words(first, 'ms')} (16 GPUs, 1 GB)"}


# A copy, a send or a batch? (lesson 05)


def ten_messages(sizes: Sizes) -> Samples:
    """Hand ten tensors to one or two others in each way; who was sent one looks at it."""
    rank = dist.get_rank()
    gpus = torch.cuda.device_count() if device().type == "cuda" else 0
    others = range(1, min(3, gpus or 3, dist.get_world_size()))
    to = {k: others[k % len(others)] for k in range(10)}
    mine = [k for k in to if rank in (0, to[k])]
    start = [float(-1 if rank else k) for k in mine]
    tensors = [torch.full((sizes.message // 4,), value, device=device()) for value in start]

    def copies() -> None:
        if rank == 0:
            for k, x in zip(mine, tensors, strict=True):
                x.to(torch.device("cuda", to[k]))

    def sends() -> None:
        for k, x in zip(mine, tensors, strict=True):
            dist.recv(x, 0) if rank else dist.send(x, to[k])

    def one_batch() -> None:
        call, peer = (dist.irecv, dict.fromkeys(to, 0)) if rank else (dist.isend, to)
        calls = [dist.P2POp(call, x, peer[k]) for k, x in zip(mine, tensors, strict=True)]
        if calls:
            for work in dist.batch_isend_irecv(calls):
                work.wait()

    ways = {"copies": copies} if gpus > 1 else {}
    samples = in_turn(ways | {"sends": sends, "one batch": one_batch}, sizes.rounds)
    if not all(bool(x.eq(k).all()) for k, x in zip(mine, tensors, strict=True)):
        raise ArithmeticError(f"rank {rank} did not get what was sent to it")
    return samples


# Does a pair slow down others that it never talks to? (lesson 01)


def never_talk(sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Account for the calls of one pair, of two at the same time, ... of all."""
    rank, pairs, accounts = dist.get_rank(), dist.get_world_size() // 2, {}
    groups = [dist.new_group([2 * pair, 2 * pair + 1]) for pair in range(pairs)]
    x = torch.zeros(100, device=device())

    def calls(calling: int, count: int) -> None:
        for _ in range(count if rank < 2 * calling else 0):
            dist.all_reduce(x, group=groups[rank // 2])
        synchronize()

    calls(pairs, sizes.calls)  # connects
    for calling in range(1, pairs + 1):
        accounts[_pairs(calling)] = accounted(partial(calls, calling), sizes.calls)
    return accounts


def _pairs(count: int) -> str:
    return f"{count} pair{'s' if count > 1 else ''}"


class NeverTalk(Row):
    """Pairs that never talk to each other: the time of a call, and how long it keeps a CPU."""

    def measure(self, place: Place, sizes: Sizes) -> list[Record]:
        """Let more and more pairs call; keep each rank's time and its CPU time."""
        ranks, made = place.launch(self.program, sizes, timeout=TIMEOUT), []
        for case in ranks[0]:
            samples = [rank[case]["samples"] for rank in ranks]
            on_cpu = [max(rank[case]["on_cpu"] for rank in ranks)]
            made.append(place.record(case, samples, experiment=NAME, values={"on_cpu": on_cpu}))
        return made

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Tell also how long a call keeps a CPU."""
        for record, (case, figure, theirs) in zip(records, super().lines(records), strict=True):
            busy = in_words(statistics.median(record.values["on_cpu"]), "µs")
            yield case, f"{figure}; {busy} on a CPU", theirs


def theirs(lesson: str, name: str) -> Any:
    """Return a figure that a lesson's source published."""
    return published.load(lesson)[name].value


ROWS: tuple[Row, ...] = (
    Pairs("Which pairs are near? (lesson 04)", pairs_of_gpus),
    Sums(
        "What does a sum cost, with two ranks to all? (lessons 02 and 06)",
        sums,
        nbytes=lambda sizes: sizes.summed // 4,
        theirs={"8 ranks": "367 GB/s by a ring, 480 where the switch adds (8 H200)"},
    ),
    Gradients(
        "Do many calls cost what the benchmark's one does not? (lesson 02)",
        gradients,
        nbytes=lambda sizes: _nbytes(vgg11_tensors(sizes.width, "meta")),
        theirs={
            "a call each, 22": f"{theirs('gradient_all_reduce', 'in_training'):.0f} ms in training",
            "one flat tensor": f"{theirs('gradient_all_reduce', 'benchmark'):.0f} ms (16 V100)",
        },
        recorded_as={
            "a call each, 22": ("step", "VGG11's 22, a call each"),
            "one flat tensor": ("step", "VGG11's 22, flat"),
        },
    ),
    Row(
        "One broadcast or three hundred, and what does packing cost? (lesson 03)",
        broadcast_state,
        theirs={
            "one by one, 320": in_words(theirs("coalesced_broadcast", "original"), "ms"),
            "all in one": in_words(theirs("coalesced_broadcast", "coalesced"), "ms"),
        },
        recorded_as={
            "320 sums of 320 kB, one by one": ("step", "320 of 320 kB, a call each"),
            "the same bytes, flat": ("step", "320 of 320 kB, flat"),
            "packing 102 MB into a new buffer": ("packing", "cuda, new"),
        },
    ),
    Row(
        "Do three ways to sum take the same time? (lesson 06)",
        three_ways,
        nbytes=lambda sizes: sizes.summed,
        theirs=puzzle_times(),
        recorded_as={
            way: ("algorithms", f"nothing asked for, {there}")
            for way, there in zip(
                WAYS, ("all_reduce", "reduce and broadcast", "two steps"), strict=True
            )
        },
    ),
    Row(
        "A copy, a send or a batch? (lesson 05)",
        ten_messages,
        nbytes=lambda sizes: sizes.message,
        theirs={
            "copies": f"{theirs('pipeline_p2p', 'interleaved'):.3g} ms",
            "sends": f"{theirs('pipeline_p2p', 'send'):.3g} ms",
            "one batch": f"{theirs('pipeline_p2p', 'batch'):.3g} ms",
        },
    ),
    NeverTalk(
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
