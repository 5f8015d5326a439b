"""Lesson 05: what the order of transfers costs a pipeline, predicted and measured.

Four stages train for real on four hosts; the same programs go through channels that order their
transfers differently. A model, calibrated by one message between two of the hosts, predicts each
step's time first.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.launch import torchrun
from labkit.lessons.pipeline_p2p import two_destinations
from labkit.lessons.pipeline_p2p.pipeline import Channel
from labkit.lessons.pipeline_p2p.pipeline_cases import (
    COPY_RATES,
    NAME,
    PIPELINE_RATE,
    SCHEDULES,
    STAGES,
    measure_copies,
    measure_overlap,
    measure_pipeline,
    message_seconds,
    timeline,
)
from labkit.lessons.pipeline_p2p.programs import Shape
from labkit.measure.records import Record, load
from labkit.measure.tables import Table

__all__ = [
    "NAME",
    "SCHEDULES",
    "TITLE",
    "destinations",
    "overlap",
    "pipelines",
    "recorded",
    "run",
    "table",
    "timeline",
]

TITLE = "What the order of transfers costs a pipeline"
Say = Callable[[str], Any]
RECORDING = Path(__file__).with_name("recording.json")


def run(*, quick: bool = False, progress: Say | None = None) -> list[Record]:
    """Measure every schedule on every channel, two destinations, and computing beside messages.

    Args:
        quick: One step per case instead of three.
        progress: Called with a line of text before each case.

    Returns:
        EMULATED records; where no fabric can be built, the RECORDED ones. Under torchrun, with
        four ranks at least, MEASURED ones on the network that is there. Timelines are then to be
        trusted on one node only, because nodes have clocks of their own, and predictions only
        where every link is as fast as the one between ranks 0 and 1, which is the one measured.
    """
    every = [(name, c) for name in SCHEDULES for c in Channel if c is not Channel.BLOCKING]
    repeats = 1 if quick else 3
    return [
        *pipelines(every, steps=repeats, progress=progress),
        *destinations(repeats=repeats, progress=progress),
        *overlap(progress=progress),
    ]


def pipelines(
    cases: Sequence[tuple[str, Channel]], *, steps: int = 3, progress: Say | None = None
) -> list[Record]:
    """Predict and measure some (schedule, channel) on four hosts, or return what was recorded."""
    try:
        with _hosts(STAGES, PIPELINE_RATE) as fabric:
            leg = message_seconds(fabric, Shape().nbytes)
            records = []
            for schedule, channel in cases:
                _say(progress, f"{schedule}, {channel.value}")
                measure = partial(measure_pipeline, schedule, channel, fabric=fabric, leg=leg)
                records.append(_settled(partial(measure, steps=steps), progress))
            return records
    except FabricUnavailable as reason:
        _say(progress, f"RECORDED instead: {reason}")
        return recorded([f"{schedule}, {channel.value}" for schedule, channel in cases])


def destinations(*, repeats: int = 3, progress: Say | None = None) -> list[Record]:
    """Predict and measure the copies to two destinations, or return what was recorded."""
    modes = two_destinations.MODES
    try:
        with _hosts(4, COPY_RATES) as fabric:
            leg = message_seconds(fabric, two_destinations.Copies("").nbytes)
            _say(progress, "two destinations")
            measure = partial(measure_copies, fabric=fabric, leg=leg, repeats=repeats)
            return [_settled(partial(measure, mode), progress) for mode in modes]
    except FabricUnavailable as reason:
        _say(progress, f"RECORDED instead: {reason}")
        return recorded([f"two destinations, {mode}" for mode in modes])


def overlap(*, progress: Say | None = None) -> list[Record]:
    """Compute beside messages over loopback, then over a link, or return what was recorded."""
    _say(progress, "computing beside messages")
    try:
        with _hosts(2, COPY_RATES[0]) as fabric:
            as_it_is = measure_overlap(fabric=None)
            return [as_it_is, measure_overlap(fabric=fabric)] if fabric else [as_it_is]
    except FabricUnavailable as reason:
        _say(progress, f"RECORDED instead: {reason}")
        return [measure_overlap(fabric=None), *recorded(["computing beside messages, link"])]


def recorded(cases: Sequence[str] | None = None) -> list[Record]:
    """Return the records of another machine, all or those of some cases."""
    every = {record.case: record for record in load(RECORDING, recorded=True)}
    return list(every.values()) if cases is None else [every[case] for case in cases]


def table(records: Sequence[Record]) -> Table:
    """Lay out what has a prediction: step time, its error, bubbles."""
    columns = [
        "schedule",
        "channel",
        "predicted ms",
        "measured ms",
        "error %",
        "predicted bubble",
        "bubble",
    ]
    rows = []
    for record in records:
        if "slow_down" in record.values:
            continue
        took, expected = record.summary.median, record.predicted
        rows.append(
            [
                record.params.get("schedule", "two destinations"),
                record.params.get("channel", record.params.get("mode")),
                round(1e3 * expected, 1),
                round(1e3 * took, 1),
                round(100 * (took / expected - 1), 1),
                _rounded(record.values.get("predicted_bubble")),
                _rounded(record.values.get("bubble")),
            ]
        )
    return Table(columns, rows)


def _hosts(hosts: int, rate: str | Sequence[str]) -> AbstractContextManager[Fabric | None]:
    """Build a fabric; under torchrun use the network that its ranks have (None)."""
    return nullcontext() if torchrun.is_here() else Fabric.star(hosts=hosts, rate=rate)


def _settled(measure: Callable[[], Record], progress: Say | None) -> Record:
    """Measure; while the time is far above its prediction measure again, twice at most.

    Other programs on the machine can only add time, so the fastest run is the least disturbed.
    The record's `runs` tells how many there were.
    """
    records = [measure()]
    while len(records) < 3 and _time(records[-1]) > 1.1 * records[-1].predicted:
        _say(progress, "  disturbed? once more")
        records.append(measure())
    best = min(records, key=_time)
    return replace(best, params={**best.params, "runs": len(records)})


def _time(record: Record) -> float:
    return record.summary.median


def _say(progress: Say | None, text: str) -> None:
    if progress:
        progress(text)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
