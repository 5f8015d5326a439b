"""Five other worlds, in each of which another suspect of lesson 2 is guilty; run for real.

The experiments are those of the lesson, and so are the tests (`evidence`). What differs is the job:

    a   its loop begins with the classifier, and rank 2 is late from backward
    b   its classifier has a hundred tiny layers behind the first, so two hundred small tensors
    c   training goes through the thin card, the benchmark through the wide one
    d   the benchmark was made by two ranks, training has four
    e   rank 1 pauses before one of the classifier's calls

In these worlds all timers of the job are known. So C compares the job itself with its benchmark,
call by call; D uses the rate of our own links; and E, which the thread's readers cannot make, can
be made.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course.lessons.gradient_all_reduce import evidence, programs
from course.lessons.gradient_all_reduce import experiment as problem
from course.place import Place
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Record


@dataclass(frozen=True, slots=True)
class World:
    """A job, and how it was benchmarked."""

    backwards: bool = False  # its loop begins with the last layer
    late: bool = False  # rank 2 is late in every step
    pause: bool = False  # rank 1 pauses before the second layer of the classifier
    delay: float = evidence.DELAY  # seconds by which a rank is late, or pauses
    tiny_layers: int = 0
    width: float = 1 / 8
    training_on_thin: bool = False
    benchmark_on_thin: bool = False
    benchmark_ranks: int = problem.HOSTS


WORLDS = {
    "a": World(backwards=True, late=True),
    "b": World(tiny_layers=100, delay=1.0),
    "c": World(training_on_thin=True),
    "d": World(width=1 / 4, training_on_thin=True, benchmark_on_thin=True, benchmark_ranks=2),
    "e": World(pause=True),
}
"""By the letter of who is guilty."""
ROUNDS = 4


def model_of(world: World) -> nn.Sequential:
    """Return the world's network."""
    model = programs.vgg11(width=world.width)
    if world.tiny_layers:
        torch.manual_seed(0)
        first = nn.Linear(model.classifier[0].in_features, 64)
        tiny = (nn.Linear(8, 8) for _ in range(world.tiny_layers))
        model.classifier = nn.Sequential(first, nn.Linear(64, 8), *tiny, nn.Linear(8, 10))
    return model


def job(world: World, *, experiment: bool) -> dict[str, Any]:
    """Train in a world; a step of training and one of its benchmark take turns, or A is made.

    Returns:
        By step the seconds of each call on this rank: of the job (``steps``), and of the benchmark
        on the ranks that make it (``alone``); with `experiment` rank 2 is late in every second
        step, and nothing is benchmarked. And the bytes of each call.
    """
    model, thin = model_of(world), programs.second_card()
    some = list(range(world.benchmark_ranks))
    group_of = programs.second_card if world.benchmark_on_thin else dist.new_group
    benchmarked = group_of(ranks=some)
    named = list(model.named_parameters())
    named = named[::-1] if world.backwards else named
    part = torch.ones(sum(p.numel() for name, p in named if name.startswith(evidence.PART)))
    steps, alone = [], []
    for step in range(2 * (ROUNDS + 1) if experiment else ROUNDS + 1):
        programs.loss_of(model, step).backward()
        is_late = step % 2 if experiment else world.late
        if is_late and dist.get_rank() == 2:
            time.sleep(world.delay)
        calls = {}
        for name, parameter in named:
            if world.pause and name == "classifier.3.weight" and dist.get_rank() == 1:
                time.sleep(world.delay)
            calls[name] = timed_sum(parameter.grad, thin if world.training_on_thin else None)
        steps.append(calls)
        if not experiment:
            dist.barrier()
            if dist.get_rank() < world.benchmark_ranks:
                alone.append(timed_sum(part, benchmarked))
            dist.barrier()
    return {"steps": steps, "alone": alone, "sizes": {name: p.nbytes for name, p in named}}


def timed_sum(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    """Sum a tensor over the ranks of a group; return the seconds on this rank."""
    begin = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    return time.perf_counter() - begin


def measure(guilty: str) -> list[Record]:
    """Make the experiments in a world, for real; `FabricUnavailable` where there are no links."""
    return problem.hosts().watched(lambda here: [_measured(here, guilty, WORLDS[guilty])])


def _measured(here: Place, guilty: str, world: World) -> Record:
    def empty_calls() -> list[float]:
        return programs.time_in_a_row(problem.SMALL, programs.second_card(world.training_on_thin))

    late = here.launch(partial(job, world, experiment=True), timeout=120)
    small = here.launch(empty_calls, timeout=120)
    slow = here.launch(partial(job, world, experiment=False), timeout=120)
    alone = [rank["alone"] for rank in slow if rank["alone"]]
    rate = problem.THIN if world.benchmark_on_thin else problem.RATE
    values = {
        "world": asdict(world),
        "link": Fabric.star(hosts=2, rate=rate).payload_rate(0, 1),
        "sizes": _grouped(slow[0]["sizes"]),
        "calls": sum(name.startswith(evidence.PART) for name in slow[0]["sizes"]),
        "late": [_grouped(calls) for calls in _median(late)[2:]],
        "training": [_grouped(calls) for calls in _median(slow)[1:]],
        "spreads": [_spread(step) for step in zip(*(r["steps"][1:] for r in slow), strict=True)],
        "benchmark": [max(seconds) for seconds in zip(*alone, strict=True)][1:],
    }
    return here.record(f"world {guilty}", small, experiment=problem.NAME, values=values)


def _median(ranks: list[dict]) -> list[dict[str, float]]:
    """Return by step the median over the ranks of each call."""
    steps = zip(*(rank["steps"] for rank in ranks), strict=True)
    return [{name: median(rank[name] for rank in step) for name in step[0]} for step in steps]


def _spread(step: Sequence[Mapping[str, float]]) -> float:
    """Return the largest difference of two timers in the classifier's calls but the first."""
    names = [name for name in list(step[0])[1:] if name.startswith(evidence.PART)]
    return max(max(r[name] for r in step) - min(r[name] for r in step) for name in names)


def _grouped(calls: dict[str, float]) -> dict[str, float]:
    """Keep the first call and the largest tensor's, and add up the others of each part."""
    first = next(iter(calls))
    groups: dict[str, float] = {}
    for name, value in calls.items():
        kept = name if name in (first, evidence.LARGEST) else f"{name.partition('.')[0]}, others"
        groups[kept] = groups.get(kept, 0) + value
    return groups
