"""A row of `python -m course gpus`: a copy, a send or a batch."""

from course import published
from course.gpu_row import Row, Sizes
from course.lessons.pipeline_p2p import experiment, programs
from course.place import Place
from labkit.measure.records import Record
from labkit.ranks.machine import gpu_count

FIGURES = published.load("pipeline_p2p")


def ten_messages(place: Place, sizes: Sizes) -> list[Record]:
    """Hand ten tensors to two others, in each of the thread's ways; copies take a host's GPUs."""
    ways = dict(programs.WAYS)
    if place.backend != "nccl" or gpu_count() < 3:
        del ways["copies"]
    records = experiment.time_messages(place, ways, sizes.message // 4)
    if lost := [record.case for record in records if not record.values["right"]]:
        raise ArithmeticError(f"{', '.join(lost)}: somebody did not get what was sent")
    return records


MESSAGES = Row(
    "A copy, a send or a batch? (lesson 05)",
    ten_messages,
    theirs={
        "copies": f"{FIGURES['interleaved'].value:.3g} ms",
        "sends": f"{FIGURES['send'].value:.3g} ms",
        "one batch": f"{FIGURES['batch'].value:.3g} ms",
    },
    ranks=3,
)
