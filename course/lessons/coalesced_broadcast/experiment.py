"""Lesson 3: how should rank 0 give 320 tensors to the others: one by one, in buckets, or at once?

The question (PyTorch pull request 4978, 2018): DDP sent a model's state tensor by tensor; about 100
MB in one coalesced broadcast went 1.63 times as fast between two nodes. Here the 320 sizes of
ResNet50 are sent in ways that differ in one thing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from course.comm import shapes
from course.lessons.coalesced_broadcast import programs
from course.place import Place
from course.runs import Say, quiet
from labkit.measure.records import Record

NAME = "coalesced-broadcast"
TITLE = "One broadcast or three hundred?"
RECORDING = Path(__file__).with_name("recording.json")
LINK, NARROW = "2gbit", 0.4
"""Between hosts the network is narrower: bytes go with the square of the width."""


def compare(
    send: Callable,
    ways: Mapping[str, Mapping[str, Any]],
    *,
    rate: str | None = None,
    iters: int = 5,
) -> list[Record]:
    """Time ways to broadcast the state between two ranks, in turn; return a record for each.

    Args:
        send: ``send(tensors, **arguments)``.
        ways: The arguments by name (`programs.time_ways`).
        rate: Of two hosts' links, for a narrower state; None: loopback. Where no links can be made
            the records are those of another machine.
        iters: Broadcasts of each way.
    """
    width = NARROW if rate else 1.0
    nbytes = sum(tensor.nbytes for tensor in shapes.resnet50(width=width))

    def measure(here: Place) -> list[Record]:
        ranks = here.launch(programs.time_ways, send, dict(ways), width, iters, timeout=120)
        return [
            here.record(
                name,
                [result["samples"] for result in results],
                experiment=NAME,
                values={key: max(r[key] for r in results) for key in ("faults", "peak")},
                collective="broadcast",
                nbytes=nbytes,
            )
            for name, results in zip(ways, zip(*ranks, strict=True), strict=True)
        ]

    return Place(2, rate).records(measure, recording=RECORDING, experiment=NAME, cases=ways)


def run(*, quick: bool = False, progress: Say = quiet) -> list[Record]:
    """Time the curve on loopback and between hosts, and the pairs on loopback."""
    local = []
    for name, ways in {"the curve": programs.CURVE, **programs.PAIRS}.items():
        progress(name)
        local += compare(programs.broadcast, ways, iters=3 if quick else 9)
    progress("the curve between two hosts")
    return local + compare(programs.broadcast, programs.CURVE, rate=LINK, iters=3 if quick else 9)
