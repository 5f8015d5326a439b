"""Lesson 6 in arithmetic: the published table, and what a wire allows."""

from collections.abc import Mapping
from dataclasses import dataclass

from course import published
from labkit.measure.records import bus_factor

FIGURES = published.load("equivalent_collectives")
COLUMNS = (("Tree", 1e9), ("Ring", 1e9), ("Tree", 2e9), ("Ring", 2e9))
"""What the columns of the puzzle's table say: NCCL's algorithm, and bytes on each of 16 GPUs."""
ROWS = ("all_reduce", "reduce + broadcast", "reduce_scatter + all_gather")
GPUS = 16
CARD = 50.0
"""GB/s of a network card one way: 400 Gbit/s, the fastest of the puzzle's time."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one collective in the puzzle's table, as labelled there."""

    way: str
    """The row: one of the three ways to sum."""
    name: str
    """As in torch.distributed."""
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
    "852 GB/s: the puzzle's 2.2 ms, 1 GB": (steps()[0].busbw(), GPUS),
    "480 GB/s: 8x H200": (FIGURES["H200 all_reduce, the switch adds"].value, 8),
    "367 GB/s: 8x H200, Ring": (FIGURES["H200 all_reduce, Ring"].value, 8),
    "53 GB/s: the puzzle's 2.2 ms, 1 GB / 16": (steps()[0].busbw(1 / GPUS), GPUS),
}
"""Claimed busbw of an all_reduce, and how many ranks."""


@dataclass(frozen=True, slots=True)
class Court:
    """The most that an all_reduce's busbw can be on a machine, in GB/s."""

    ranks: int
    hosts: int
    cards: int
    """Network cards of each host, of `CARD` GB/s."""
    adds: bool
    """Whether the switch between the GPUs of a host adds (NVLS)."""

    @property
    def gpu(self) -> float:
        """By the links of a GPU.

        The busiest of n ranks sends 2(n-1)/n S, and then busbw is its links' speed; beside other
        hosts it has a share of the cards, too. With NVLS it sends (m+1)/m S to the switch of its
        m GPUs.
        """
        n, link, factor = self.ranks, FIGURES["NVLink"].value, bus_factor("all_reduce", self.ranks)
        local = n // self.hosts
        if self.adds:
            return link * factor / ((local + 1) / local)
        return link + (self.cards * CARD / local if self.hosts > 1 else 0)

    @property
    def host(self) -> float:
        """By the cards of a host: of h hosts the busiest sends 2(h-1)/h S. One needs none."""
        if self.hosts == 1:
            return float("inf")
        wire = self.cards * CARD
        return wire * bus_factor("all_reduce", self.ranks) / bus_factor("all_reduce", self.hosts)

    def verdict(self, busbw: float) -> str:
        """Say whether a claim in GB/s is possible, and why not."""
        if busbw <= min(self.gpu, self.host):
            return "possible"
        which = "a GPU's links" if self.gpu <= self.host else "a host's cards"
        return f"impossible: {which} allow {min(self.gpu, self.host):.0f} GB/s"
