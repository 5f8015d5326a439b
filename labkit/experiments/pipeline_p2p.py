"""Lesson 05: what the order of transfers costs a pipeline, predicted and measured.

Four stages train for real on four hosts; the same programs go through channels that order their
transfers differently. A model, calibrated by one message between two of the hosts, predicts each
step's time first.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from labkit.experiments import overlap_compute, pipeline_notes, two_destinations
from labkit.experiments.pipeline_stage import Shape, train
from labkit.measure.records import Provenance, Record, Tier, load
from labkit.model.pipeline import Channel, programs
from labkit.model.schedules import Schedule, eager_1f1b, gpipe, one_f_one_b
from labkit.model.simulator import Costs, Timeline, simulate
from labkit.run.fabric import Fabric, FabricUnavailable
from labkit.run.launcher import launch

__all__ = [
    "NAME",
    "TITLE",
    "measure_copies",
    "measure_overlap",
    "measure_pipeline",
    "message_seconds",
    "predict",
    "recorded",
    "run",
    "table",
    "timeline",
]

NAME = "pipeline-p2p"
TITLE = "What the order of transfers costs a pipeline"
STAGES, MICRO_BATCHES, CREDITS = 4, 8, 2
PIPELINE_RATE = "200mbit"
COPY_RATES = ("400mbit", "1.6gbit", "400mbit", "400mbit")
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager 1f1b": eager_1f1b,
}
RECORDING = Path(__file__).parents[1] / "recordings" / "pipeline_p2p.json"


def run(*, quick: bool = False, progress: Callable[[str], Any] | None = None) -> list[Record]:
    """Measure every schedule on every channel, then one source with two destinations.

    Args:
        quick: One step per case instead of three.
        progress: Called with a line of text before each case.

    Returns:
        EMULATED records; where no fabric can be built, the RECORDED ones.
    """
    say = progress or (lambda text: None)
    try:
        with Fabric.star(hosts=STAGES, rate=PIPELINE_RATE) as fabric:
            leg = message_seconds(fabric, Shape().nbytes)
            cases = [(s, c) for s in SCHEDULES for c in Channel if c is not Channel.BLOCKING]
            records = []
            for schedule, channel in cases:
                say(f"{schedule}, {channel.value}")
                steps = 1 if quick else 3
                records.append(
                    measure_pipeline(schedule, channel, fabric=fabric, leg=leg, steps=steps)
                )
        with Fabric.star(hosts=4, rate=COPY_RATES) as fabric:
            leg = message_seconds(fabric, two_destinations.Copies("").nbytes)
            for mode in two_destinations.MODES:
                say(f"two destinations, {mode}")
                records.append(
                    measure_copies(mode, fabric=fabric, leg=leg, repeats=1 if quick else 3)
                )
            say("computing beside messages")
            records += [measure_overlap(fabric=None), measure_overlap(fabric=fabric)]
    except FabricUnavailable as reason:
        say(f"RECORDED instead: {reason}")
        return recorded()
    return records


def recorded() -> list[Record]:
    """Return the records of another machine, for where no fabric can be built."""
    return load(RECORDING, recorded=True)


def message_seconds(fabric: Fabric | None, nbytes: int) -> float:
    """Measure how long one message takes from host 0 to host 1: the model's only parameter."""
    return median(launch(_ping_pong, nbytes, world_size=2, fabric=fabric)[0])


def measure_pipeline(
    schedule: str,
    channel: Channel,
    *,
    fabric: Fabric | None,
    leg: float,
    steps: int = 3,
    shape: Shape = Shape(),  # noqa: B008  (a value)
) -> Record:
    """Train through a channel and predict the same.

    Args:
        schedule: A name of SCHEDULES.
        channel: How transfers are ordered.
        fabric: The hosts, one per stage.
        leg: Seconds of one message (`message_seconds`).
        steps: Training steps.
        shape: What is trained.
    """
    predicted = predict(schedule, channel, leg=leg, shape=shape)
    ranks = programs(SCHEDULES[schedule](stages=STAGES, micro_batches=MICRO_BATCHES))
    results = launch(train, ranks, channel, shape, steps, CREDITS, world_size=STAGES, fabric=fabric)
    samples = [[step.seconds for step in runs] for runs in results]
    totals = [max(times) for times in zip(*samples, strict=True)]
    middle = sorted(range(steps), key=totals.__getitem__)[steps // 2]
    seen = pipeline_notes.timeline([runs[middle] for runs in results])
    return Record(
        experiment=NAME,
        case=f"{schedule}, {channel.value}",
        params={
            "schedule": schedule,
            "channel": channel.value,
            "stages": STAGES,
            "micro_batches": MICRO_BATCHES,
            "forward": shape.forward,
            "backward": shape.backward,
            "leg": leg,
            "rate": PIPELINE_RATE if fabric else "loopback",
        },
        samples=samples,
        tier=Tier.EMULATED if fabric else Tier.MEASURED,
        provenance=Provenance.here("gloo"),
        nbytes=shape.nbytes,
        values={
            "predicted": predicted.seconds,
            "bubble": seen.bubble,
            "predicted_bubble": predicted.bubble,
            "timeline": pipeline_notes.as_lists(seen),
        },
    )


def measure_copies(mode: str, *, fabric: Fabric | None, leg: float, repeats: int = 3) -> Record:
    """Copy to two destinations in one of the modes of `two_destinations`, and predict it."""
    copies = two_destinations.Copies(mode)
    predicted = two_destinations.model(copies, seconds=leg)
    results = [
        launch(two_destinations.relay, copies, world_size=4, fabric=fabric) for _ in range(repeats)
    ]
    samples = [[result[rank][0] for result in results] for rank in range(4)]
    return Record(
        experiment=NAME,
        case=f"two destinations, {mode}",
        params={"mode": mode, "copies": 2 * copies.each, "leg": leg, "rates": list(COPY_RATES)},
        samples=samples,
        tier=Tier.EMULATED if fabric else Tier.MEASURED,
        provenance=Provenance.here("gloo"),
        nbytes=copies.nbytes,
        values={
            "predicted": max(span.end for span in predicted.values()),
            "legs": [list(leg) for leg in results[0][two_destinations.MEMORY][1]],
            "predicted_legs": [[*key, span.begin, span.end] for key, span in predicted.items()],
        },
    )


def measure_overlap(*, fabric: Fabric | None) -> Record:
    """Compute beside messages on two ranks: over loopback, or over the links of a fabric."""
    seen = launch(overlap_compute.measure, world_size=2, fabric=fabric)
    where = "link" if fabric else "loopback"
    return Record(
        experiment=NAME,
        case=f"computing beside messages, {where}",
        params={"where": where, "rate": COPY_RATES[0] if fabric else None},
        samples=[[one.compute_beside] for one in seen],
        tier=Tier.EMULATED if fabric else Tier.MEASURED,
        provenance=Provenance.here("gloo"),
        values={
            "ranks": [asdict(one) for one in seen],
            "slow_down": median(one.slow_down for one in seen),
            "cpu_share": median(one.cpu_share for one in seen),
        },
    )


def table(records: Sequence[Record]) -> tuple[list[str], list[list]]:
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
        took, expected = record.summary.median, record.values["predicted"]
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
    return columns, rows


def predict(
    schedule: str,
    channel: Channel,
    *,
    leg: float,
    shape: Shape = Shape(),  # noqa: B008  (a value)
) -> Timeline:
    """Simulate the step that `measure_pipeline` measures."""
    plan = SCHEDULES[schedule](stages=STAGES, micro_batches=MICRO_BATCHES)
    costs = Costs(shape.forward, shape.backward, nbytes=1.0, rate=1 / leg)
    credits = CREDITS if channel is Channel.TAGGED else None
    return simulate(plan, costs, channel=channel, credits=credits)


def timeline(record: Record) -> Timeline:
    """Return the timeline that was measured for a record of a pipeline."""
    return pipeline_notes.from_lists(record.values["timeline"], world_size=record.params["stages"])


def _ping_pong(nbytes: int, rounds: int = 12) -> list[float]:
    rank, x, times = dist.get_rank(), torch.ones(nbytes // 4), []
    for _ in range(rounds):
        begin = time.perf_counter()
        for turn in (0, 1):
            (dist.send if rank == turn else dist.recv)(x, 1 - rank)
        times.append((time.perf_counter() - begin) / 2)
    return times[2:]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
