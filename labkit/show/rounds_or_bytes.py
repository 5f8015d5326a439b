"""The picture of `labkit.experiments.rounds_or_bytes`."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from labkit.measure.records import Record
from labkit.show.equivalent_collectives import crossover


def draw(records: Sequence[Record]) -> Figure:
    """Draw time over size, a line for each algorithm."""
    sizes = sorted({record.nbytes for record in records})
    by_name: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda record: record.nbytes):
        by_name.setdefault(record.case, []).append(min(record.seconds))
    return crossover(sizes, by_name, record=records[0]).get_figure(root=True)
