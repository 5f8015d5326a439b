"""Lesson 6 in arithmetic: the published table, what a wire allows, and six claims to audit."""

from collections.abc import Mapping
from dataclasses import dataclass

from course import published
from labkit.measure.records import bus_factor
from labkit.measure.tables import Table

FIGURES = published.load("equivalent_collectives")
COLUMNS = (("Tree", 1e9), ("Ring", 1e9), ("Tree", 2e9), ("Ring", 2e9))
"""What the columns of the puzzle's table say: NCCL's algorithm, and bytes on each of 16 GPUs."""
ROWS = ("all_reduce", "reduce + broadcast", "reduce_scatter + all_gather")
GPUS = 16


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one collective in the puzzle's table, as labelled there."""

    way: str  # the row: one of the three ways to sum
    name: str  # as in torch.distributed
    algorithm: str
    nbytes: float
    seconds: float

    def busbw(self, moved: float = 1.0) -> float:
        """Return GB/s, if the step moved `moved` times the bytes on its label."""
        return moved * self.nbytes / self.seconds * bus_factor(self.name, GPUS) / 1e9


def steps() -> list[Step]:
    """Return the table's twenty steps."""
    table = []
    for way in ROWS:
        names = way.split(" + ")
        for place, ms in enumerate(FIGURES[way].value):
            column, step = divmod(place, len(names))
            table.append(Step(way, names[step], *COLUMNS[column], ms / 1e3))
    return table


def rates(first: float = 1.0, last: float = 1.0) -> dict[Step, float]:
    """Return each step's GB/s, if the first two rows and the last moved these shares of S."""
    return {step: step.busbw(last if step.way == ROWS[-1] else first) for step in steps()}


def judged(by_step: Mapping[Step, float]) -> tuple[int, float]:
    """Return how many rates are above the fastest link, and the worst ratio within a column."""
    columns = [[v for s, v in by_step.items() if (s.algorithm, s.nbytes) == c] for c in COLUMNS]
    above = sum(rate > FIGURES["NVLink"].value for rate in by_step.values())
    return above, max(max(column) / min(column) for column in columns)


CLAIMS = {
    "a": ("all_reduce", 16 * 2**30, 8, 81.9e-3, 450e9),  # 8x H200, Ring
    "b": ("all_reduce", 16 * 2**30, 8, 62.6e-3, 450e9),  # the same, the switch adds
    "c": ("broadcast", 10**9, 16, 0.8e-3, 450e9),  # the puzzle's table as labelled
    "d": ("all_gather", 16 * 2**30, 8, 30e-3, 450e9),  # above the wire, and nothing adds
    "e": ("all_reduce", 16 * 2**30, 8, 41e-3, 450e9),  # S / t fits, (n+1)/n S / t does not
    "f": ("broadcast", 10**9, 4, 1.0, 1e9),  # just possible
}
"""Claims to audit: collective, S, ranks, seconds, bytes per second of a rank's link one way."""


def claims() -> Table:
    """Lay out what exercise 6.4 asks to judge."""
    rows = [
        [letter, name, nbytes / 1e9, n, seconds * 1e3, link / 1e9]
        for letter, (name, nbytes, n, seconds, link) in CLAIMS.items()
    ]
    return Table(["", "collective", "S (GB)", "ranks", "ms", "link of each rank (GB/s)"], rows)
