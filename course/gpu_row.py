"""What a lesson asks of the GPUs that are here: a `Row` of the page of `python -m course gpus`.

    records = row.measure(place, sizes)
    for what, here, elsewhere in row.lines(records): ...
    picture = row.picture(records)

Each lesson that asks has its rows in `on_gpus.py`. What ranks run there runs by NCCL on GPUs and by
gloo on CPUs, since it takes its device from `device()`. Between two GPUs nothing of it was run: it
was rehearsed on CPUs.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course.comm.collectives import take_turns
from course.place import Place
from labkit.measure.records import Record

NAME = "your GPUs"
MIB = 2**20
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
    def on_gpus(cls, room: int, ranks: int, networks: Callable[[float], int]) -> "Sizes":
        """Choose sizes for ranks that may each fill so many bytes of their GPU.

        `networks` says how many bytes the rows hold of networks of a width. A `ValueError` says
        what they need, where there is no room for the smallest.
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
    """A question, what measures it, and what others published of it."""

    question: str
    measure: Callable[[Place, Sizes], list[Record]]
    theirs: Mapping[str, str] = field(default_factory=dict)  # by case
    recorded_as: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Case -> experiment and case in the recording of ranks that shared an H200."""
    differences: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    """What follows -> a case, another one, and how many times it makes the first one longer."""
    holds: Callable[[float], int] = lambda width: 0
    """By the width of its network: how many bytes of it lie on a rank at a time."""
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
        from labkit.show import plots  # ranks, which import what they run, need none

        alike = [record for record in records if record.nbytes == records[-1].nbytes]
        return plots.ladder(alike, title=self.question, unit=self.unit)


def in_words(seconds: float, unit: str) -> str:
    """Write a time with three digits."""
    return f"{float(f'{seconds * PER_SECOND[unit]:.3g}'):,.10g} {unit}"


def timed(
    place: Place, program: Callable[[Sizes], Samples], sizes: Sizes, **fields: Any
) -> list[Record]:
    """Run a program on all ranks; return a record for each case."""
    ranks = place.launch(program, sizes, timeout=TIMEOUT)
    return [
        place.record(case, [rank[case] for rank in ranks], experiment=NAME, **fields)
        for case in ranks[0]
    ]


def in_turn(ways: Mapping[str, Callable[[], Any]], rounds: int) -> Samples:
    """Time ways in turn, round by round; the first round, in which ranks connect, is left out."""
    samples = take_turns(list(ways.values()), 1 + rounds)
    return {way: seconds[1:] for way, seconds in zip(ways, samples, strict=True)}
