"""A row of `python -m course gpus`: one broadcast or three hundred, and what packing costs."""

from collections.abc import Mapping
from typing import Any

from course import published
from course.comm import shapes
from course.gpu_row import MIB, Row, Sizes, in_words
from course.lessons.coalesced_broadcast import experiment, programs
from course.place import Place
from labkit.measure.records import Record

FIGURES = published.load("coalesced_broadcast")


def states(place: Place, sizes: Sizes) -> list[Record]:
    """Give ResNet50's 320 tensors to all in each of the lesson's ways."""
    ways: Mapping[str, Mapping[str, Any]] = {
        "one by one, 320": {"cap": 0, "in_flight": 1},
        "a flat state": {"cap": None, "in_flight": 1, "flat": True},
        "in buckets of 10 MiB": {"cap": 10 * MIB},
        "all in one": {"cap": None},
    }
    given: dict[str, Any] = {"place": place, "iters": sizes.rounds, "width": sizes.width}
    return experiment.compare(programs.broadcast, ways, **given)


def held(width: float) -> int:
    """Return the bytes of two states, and of both in packed tensors."""
    return 4 * sum(tensor.nbytes for tensor in shapes.resnet50(width=width))


STATES = Row(
    "One broadcast or three hundred, and what does packing cost? (lesson 03)",
    states,
    theirs={
        "one by one, 320": in_words(FIGURES["original"].value, "ms"),
        "all in one": in_words(FIGURES["coalesced"].value, "ms"),
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
    holds=held,
)
