"""The picture of `labkit.experiments.rounds_or_bytes`."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from labkit.measure.records import Record
from labkit.show.equivalent_collectives import crossover


def draw(records: Sequence[Record]) -> Figure:
    """Draw time over size, a line for each algorithm."""
    return crossover(records).get_figure(root=True)
