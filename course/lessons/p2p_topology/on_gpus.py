"""A row of `python -m course gpus`: which pairs are near."""

from collections.abc import Iterable, Sequence
from typing import Any

from course import published
from course.gpu_row import Row
from course.lessons.p2p_topology import experiment
from labkit.measure.records import Record

MATRIX = published.load("p2p_topology")["p2p_on"].value  # GB/s, row by row
SLOW = 0.75  # a pair whose rate is below this share of the fastest one's is called slow
NAMED = 6  # of the slow pairs


class Pairs(Row):
    """A copy between every two GPUs; by gloo a message between every two ranks."""

    def lines(self, records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
        """Tell the fastest pair, the slowest one, and which ones are slow."""
        there = [rate for place, rate in enumerate(MATRIX) if place % 9]  # without the diagonal
        here = {record.case: record.algbw / 1e9 for record in records}
        for what, choose in (("fastest", max), ("slowest", min)):
            pair = choose(here, key=here.__getitem__)
            yield f"the {what}, {pair}", f"{here[pair]:.3g} GB/s", f"{choose(there):.3g} GB/s"
        slow = [pair for pair, rate in here.items() if rate < SLOW * max(here.values())]
        of_theirs = sum(rate < SLOW * max(there) for rate in there)
        count = f"{len(slow)} of {len(here)}"
        yield f"slow: below {SLOW:.0%} of the fastest", count, f"{of_theirs} of 56 (puzzler 1)"
        if slow:
            more = ", ..." if len(slow) > NAMED else ""
            yield "these are slow", ", ".join(slow[:NAMED]) + more, ""

    def picture(self, records: Sequence[Record]) -> Any:
        """Draw the rates as a matrix, from the row to the column."""
        from course.lessons.p2p_topology import pictures  # as in `Row`: ranks draw nothing

        return pictures.by_pairs(records, self.question)


PAIRS = Pairs(
    "Which pairs are near? (lesson 04)",
    lambda place, sizes: experiment.time_pairs(place, sizes.copied, sizes.rounds),
)
