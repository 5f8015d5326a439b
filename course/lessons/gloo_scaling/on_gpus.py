"""A row of `python -m course gpus`: whether a pair slows down others that it never talks to."""

from collections.abc import Mapping
from typing import Any

from course import published
from course.gpu_row import NAME, TIMEOUT, Row, Sizes, in_words
from course.lessons.gloo_scaling import programs
from course.place import Place
from labkit.measure.records import Record

FIGURES = published.load("gloo_scaling")


def in_arms(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Make the calls of the lesson's arms, one after the other."""
    return {name: programs.calls(arm) for name, arm in arms.items()}


def never_talk(place: Place, sizes: Sizes) -> list[Record]:
    """Let more and more pairs call; keep each rank's time, and how long a call keeps a CPU."""
    pairs = place.world_size // 2
    arms = {
        named(calling): {"pairs": pairs, "calling": calling, "calls": sizes.calls}
        for calling in range(1, pairs + 1)
    }
    ranks = place.launch(in_arms, arms, world_size=2 * pairs, timeout=TIMEOUT)
    records = []
    for case in arms:
        samples = [rank[case]["samples"] for rank in ranks]
        on_cpu = [max(rank[case]["on_cpu"] for rank in ranks)]
        records.append(place.record(case, samples, experiment=NAME, values={"on_cpu": on_cpu}))
    return records


def named(pairs: int) -> str:
    """Return what so many pairs are called."""
    return f"{pairs} pair{'s' if pairs > 1 else ''}"


NEVER_TALK = Row(
    "Does a pair slow down others that it never talks to? (lesson 01)",
    never_talk,
    theirs={
        named(count): in_words(seconds / FIGURES["calls"].value, "µs")
        for count, seconds in enumerate(FIGURES["seconds"].value, 1)
    },
    recorded_as={named(count): ("calls", f"{named(count)}, queued") for count in (1, 2, 4)},
    unit="µs",
)
