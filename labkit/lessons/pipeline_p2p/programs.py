"""The rank program: one stage of a pipeline that really trains, through a chosen channel.

A stage is one layer, y = tanh(x W), with its backward pass written out. After computing, the rank
sleeps until the task's set time is over: it stands for a CPU that waits for its accelerator. So
four stages keep their times on two cores, and the mathematics is real and can be checked.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist

from labkit.lessons.pipeline_p2p.p2p import Lanes, Mailbox
from labkit.lessons.pipeline_p2p.pipeline import Batch, Channel, Program, Transfer
from labkit.lessons.pipeline_p2p.schedules import Task

__all__ = ["Run", "Shape", "train", "train_alone"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained, and how long it takes."""

    rows: int = 400
    """Rows of a micro-batch."""
    width: int = 192
    """Columns; every stage's weights are width x width."""
    forward: float = 0.0125
    """Seconds of a forward task."""
    backward: float = 0.025
    """Seconds of a backward task."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of an activation (float32)."""
        return 4 * self.rows * self.width

    def micro_batch(self, number: int) -> torch.Tensor:
        """Make the input of a micro-batch."""
        generator = torch.Generator().manual_seed(number)
        return torch.rand(self.rows, self.width, generator=generator)

    def weights(self, stage: int) -> torch.Tensor:
        """Make the first weights of a stage."""
        generator = torch.Generator().manual_seed(1000 + stage)
        return (torch.rand(self.width, self.width, generator=generator) - 0.5) / self.width**0.5


@dataclass(slots=True)
class Run:
    """What a rank brings back from one training step."""

    seconds: float
    tasks: list[tuple[Task, float, float]] = field(default_factory=list)
    """(task, begin, end) on the kernel's clock, which all ranks of one machine share."""
    transfers: dict[Transfer, tuple[float, float]] = field(default_factory=dict)
    """When this rank started and finished its end of each transfer."""
    gradients: torch.Tensor | None = None

    @property
    def digest(self) -> str:
        """Return a fingerprint of the gradients: equal only if every bit is."""
        return hashlib.sha256(self.gradients.numpy().tobytes()).hexdigest()[:16]


class Stage:
    """One layer, its saved activations and its gradient."""

    def __init__(self, number: int, *, shape: Shape) -> None:
        self.weights = shape.weights(number)
        self.gradients = torch.zeros_like(self.weights)
        self._shape = shape
        self._saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def compute(self, task: Task, arrived: torch.Tensor | None) -> torch.Tensor:
        """Run a task on what arrived: an activation for F, a gradient for B; None at an end."""
        until = time.perf_counter()
        until += self._shape.forward if task.kind == "F" else self._shape.backward
        made = self._forward(task, arrived) if task.kind == "F" else self._backward(task, arrived)
        time.sleep(max(0.0, until - time.perf_counter()))
        return made

    def _forward(self, task: Task, x: torch.Tensor | None) -> torch.Tensor:
        x = self._shape.micro_batch(task.micro_batch) if x is None else x
        y = torch.tanh(x @ self.weights)
        self._saved[task.micro_batch] = (x, y)
        return y

    def _backward(self, task: Task, dy: torch.Tensor | None) -> torch.Tensor:
        x, y = self._saved.pop(task.micro_batch)
        dz = (y if dy is None else dy) * (1 - y * y)  # at the end: the gradient of sum(y**2) / 2
        self.gradients += x.T @ dz
        return dz @ self.weights.T


def train(
    ranks: Sequence[Program], channel: Channel, shape: Shape, steps: int = 1, credits: int = 2
) -> list[Run]:
    """Train for some steps on this rank; one stage per rank. Call it through `launch`."""
    groups = _groups(ranks, channel)
    idle = replace(shape, forward=0.0, backward=0.0)
    _step(ranks, channel, idle, groups=groups, credits=credits)  # connects; not counted
    return [_step(ranks, channel, shape, groups=groups, credits=credits) for _ in range(steps)]


def _step(
    ranks: Sequence[Program], channel: Channel, shape: Shape, *, groups: dict, credits: int
) -> Run:
    stage = Stage(dist.get_rank(), shape=shape)
    dist.barrier()
    begin = time.perf_counter()
    exchange = _exchange(ranks, channel, shape, groups=groups, credits=credits)
    tasks = _play(ranks[dist.get_rank()], stage, exchange)
    exchange.close()
    return Run(time.perf_counter() - begin, tasks, exchange.spans, stage.gradients)


def train_alone(shape: Shape, *, stages: int, micro_batches: int) -> list[torch.Tensor]:
    """Compute the same gradients in one process, without a pipeline: what must come out."""
    parts = [Stage(n, shape=shape) for n in range(stages)]
    for k in range(micro_batches):
        x = None
        for n, part in enumerate(parts):
            x = part._forward(Task("F", n, k), x)
        dy = None
        for n, part in reversed(list(enumerate(parts))):
            dy = part._backward(Task("B", n, k), dy)
    return [part.gradients for part in parts]


def _play(program: Program, stage: Stage, exchange: Lanes | Mailbox) -> list:
    """Go through the program: take what a task needs, compute, put what it made."""
    into = {t.use: t for t in _transfers(program)}
    out_of = {t.task: t for t in _transfers(program)}
    done = []
    for task in (step for step in program if isinstance(step, Task)):
        arrived = exchange.take(into[task]) if task in into else None
        begin = time.perf_counter()
        made = stage.compute(task, arrived)
        done.append((task, begin, time.perf_counter()))
        if task in out_of:
            exchange.put(out_of[task], made)
    return done


def _exchange(
    ranks: Sequence[Program], channel: Channel, shape: Shape, *, groups: dict, credits: int
) -> Lanes | Mailbox:
    rank = dist.get_rank()
    program = ranks[rank]
    like = torch.empty(shape.rows, shape.width)
    if channel is Channel.TAGGED:
        every = sorted({t for steps in ranks for t in _transfers(steps)})
        use = {step: place for place, step in enumerate(program) if isinstance(step, Task)}
        incoming = [t for t in _transfers(program) if t.dst == rank]
        tags = {transfer: number for number, transfer in enumerate(every)}
        return Mailbox(
            sorted(incoming, key=lambda t: use[t.use]), tags=tags, like=like, credits=credits
        )
    lanes = defaultdict(list)
    for batch in (step for step in program if isinstance(step, Batch)):
        parts = defaultdict(list)
        for transfer in batch.transfers:
            parts[channel.lane(transfer)].append(transfer)
        for lane, part in parts.items():
            lanes[lane].append(part)
    return Lanes(lanes, like=like, groups=groups)


def _groups(ranks: Sequence[Program], channel: Channel) -> dict:
    """Make a process group for every lane between two ranks; all ranks in the same order."""
    if channel not in (Channel.EDGE, Channel.DIRECTION):
        return {}
    every = sorted({t for steps in ranks for t in _transfers(steps)})
    lanes = {channel.lane(t): sorted((t.src, t.dst)) for t in every}
    return {lane: dist.new_group(members) for lane, members in lanes.items()}


def _transfers(program: Program) -> list[Transfer]:
    return [t for step in program if isinstance(step, Batch) for t in step.transfers]
