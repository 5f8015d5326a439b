"""One case of lesson 05 at a time: predict it, run it on real ranks, keep it as a record."""

import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median

import torch
import torch.distributed as dist

from labkit.fabric.fabric import Fabric
from labkit.launch.launcher import launch
from labkit.lessons.pipeline_p2p import (
    overlap_compute,
    p2p_semantics,
    pipeline_notes,
    two_destinations,
)
from labkit.lessons.pipeline_p2p.pipeline import Channel, programs
from labkit.lessons.pipeline_p2p.programs import Shape, train
from labkit.lessons.pipeline_p2p.schedules import Schedule, eager_1f1b, gpipe, one_f_one_b
from labkit.lessons.pipeline_p2p.simulator import Costs, Timeline, simulate
from labkit.measure.records import Provenance, Record, Tier

__all__ = [
    "SCHEDULES",
    "measure_copies",
    "measure_overlap",
    "measure_pipeline",
    "message_seconds",
    "predict",
    "timeline",
]

NAME = "pipeline-p2p"
STAGES, MICRO_BATCHES, CREDITS = 4, 8, 2
PIPELINE_RATE = "200mbit"
COPY_RATES = ("400mbit", "1.6gbit", "400mbit", "400mbit")
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager 1f1b": eager_1f1b,
}


def message_seconds(fabric: Fabric | None, nbytes: int) -> float:
    """Measure how long one message takes from host 0 to host 1: the model's only parameter."""
    return median(launch(_ping_pong, nbytes, world_size=2, fabric=fabric)[0])


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
            "rate": PIPELINE_RATE if fabric else "as it is",
        },
        samples=samples,
        tier=Tier.EMULATED if fabric else Tier.MEASURED,
        provenance=Provenance.here("gloo"),
        nbytes=shape.nbytes,
        values={
            "bubble": seen.bubble,
            "predicted_bubble": predicted.bubble,
            "gradients": [runs[middle].digest for runs in results],
            "timeline": pipeline_notes.as_lists(seen),
        },
        predicted=predicted.seconds,
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
        params={
            "mode": mode,
            "copies": 2 * copies.each,
            "leg": leg,
            "rates": list(COPY_RATES) if fabric else "as it is",
        },
        samples=samples,
        tier=Tier.EMULATED if fabric else Tier.MEASURED,
        provenance=Provenance.here("gloo"),
        nbytes=copies.nbytes,
        values={
            "legs": [list(leg) for leg in results[0][two_destinations.MEMORY][1]],
            "predicted_legs": [[*key, span.begin, span.end] for key, span in predicted.items()],
        },
        predicted=max(span.end for span in predicted.values()),
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
            "wait_ends_early_by": p2p_semantics.after_wait(
                launch(p2p_semantics.ask, world_size=2, fabric=fabric)[0]
            ),
        },
    )


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
