"""Pipeline schedules as data: who computes what, in which order.

A model is cut into stages, a batch into micro-batches. Each micro-batch goes forward (F) through
all stages, then backward (B) through all of them again. A schedule says, for every rank, in which
order it computes its share. It says nothing of transfers: they follow (`pipeline`).

Sources: GPipe (Huang et al., 2019); 1F1B (PipeDream-Flush, Narayanan et al., 2021); interleaved
1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021).
"""

from collections import Counter
from dataclasses import dataclass

__all__ = [
    "InvalidSchedule",
    "Schedule",
    "Task",
    "eager_1f1b",
    "gpipe",
    "ideal_bubble",
    "interleaved",
    "one_f_one_b",
]


class InvalidSchedule(ValueError):
    """A schedule or a program that cannot mean anything; the message lists what is wrong."""


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One piece of computing: a stage's forward or backward pass of one micro-batch."""

    kind: str
    """"F" (forward) or "B" (backward)."""
    stage: int
    """Which part of the model, 0 to stages - 1."""
    micro_batch: int
    """Which part of the batch, 0 to micro_batches - 1."""

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What every rank computes, in order. Stage v lives on rank v % world_size."""

    name: str
    order: tuple[tuple[Task, ...], ...]
    """order[r]: the tasks of rank r, first to last."""
    stages: int
    micro_batches: int

    def __post_init__(self) -> None:
        wrong = []
        for rank, tasks in enumerate(self.order):
            wrong += [
                f"{task} of stage {task.stage} is on rank {rank}, not {self.rank_of(task.stage)}"
                for task in tasks
                if self.rank_of(task.stage) != rank
            ]
        found = Counter(task for tasks in self.order for task in tasks)
        wanted = [
            Task(kind, stage, micro_batch)
            for kind in "FB"
            for stage in range(self.stages)
            for micro_batch in range(self.micro_batches)
        ]
        wrong += [
            f"{task} of stage {task.stage} appears {found[task]} times, must appear once"
            for task in wanted
            if found[task] != 1
        ]
        wrong += [
            f"{task} of stage {task.stage} does not exist" for task in found - Counter(wanted)
        ]
        if wrong:
            more = f" (and {len(wrong) - 4} more)" if len(wrong) > 4 else ""
            raise InvalidSchedule(f"schedule {self.name!r}: " + "; ".join(wrong[:4]) + more)

    @property
    def world_size(self) -> int:
        """Return how many ranks the schedule needs."""
        return len(self.order)

    def rank_of(self, stage: int) -> int:
        """Return the rank that holds a stage."""
        return stage % len(self.order)

    def peak_in_flight(self) -> list[int]:
        """Return, per rank, the most activations kept at once (forward done, backward not yet)."""
        peaks = []
        for tasks in self.order:
            held = peak = 0
            for task in tasks:
                held += 1 if task.kind == "F" else -1
                peak = max(peak, held)
            peaks.append(peak)
        return peaks


def gpipe(*, stages: int, micro_batches: int) -> Schedule:
    """Build GPipe: all forward passes, then all backward passes. Keeps every activation."""
    _positive(stages=stages, micro_batches=micro_batches)
    order = tuple(
        tuple(Task(kind, stage, k) for kind in "FB" for k in range(micro_batches))
        for stage in range(stages)
    )
    return Schedule("gpipe", order, stages, micro_batches)


def one_f_one_b(*, stages: int, micro_batches: int) -> Schedule:
    """Build 1F1B: after a warm-up, one forward and one backward in turn.

    As long as GPipe when transfers are free, but stage i keeps at most stages - i activations.
    """
    return _one_f_one_b("1f1b", stages=stages, micro_batches=micro_batches, slack=1)


def eager_1f1b(*, stages: int, micro_batches: int) -> Schedule:
    """Build eager 1F1B: twice the warm-up, so that transfers have time while a stage computes.

    Costs memory: stage i keeps up to 2 (stages - i) - 1 activations. Source: Zhuang et al., "On
    Optimizing the Communication of Model Parallelism", MLSys 2023, section 4.
    """
    return _one_f_one_b("eager 1f1b", stages=stages, micro_batches=micro_batches, slack=2)


def _one_f_one_b(name: str, *, stages: int, micro_batches: int, slack: int) -> Schedule:
    _positive(stages=stages, micro_batches=micro_batches)
    order = tuple(
        _alternate(
            [Task("F", stage, k) for k in range(micro_batches)],
            [Task("B", stage, k) for k in range(micro_batches)],
            warmup=min(slack * (stages - stage - 1), micro_batches),
        )
        for stage in range(stages)
    )
    return Schedule(name, order, stages, micro_batches)


def interleaved(*, world_size: int, chunks: int, micro_batches: int) -> Schedule:
    """Build interleaved 1F1B: every rank holds `chunks` stages, world_size apart.

    Micro-batches go through in groups of world_size, so micro_batches must be a multiple of it.

    Raises:
        ValueError: micro_batches is not a multiple of world_size.
    """
    _positive(world_size=world_size, chunks=chunks, micro_batches=micro_batches)
    if micro_batches % world_size:
        raise ValueError(
            f"interleaved needs micro_batches to be a multiple of world_size: "
            f"{micro_batches} % {world_size} = {micro_batches % world_size}, not 0"
        )
    group = world_size * chunks
    count = micro_batches * chunks
    order = []
    for rank in range(world_size):

        def task(kind: str, k: int, rank: int = rank) -> Task:
            chunk = k % group // world_size
            if kind == "B":
                chunk = chunks - 1 - chunk
            return Task(kind, chunk * world_size + rank, k // group * world_size + k % world_size)

        order.append(
            _alternate(
                [task("F", k) for k in range(count)],
                [task("B", k) for k in range(count)],
                warmup=min(2 * (world_size - rank - 1) + (chunks - 1) * world_size, count),
            )
        )
    return Schedule(f"interleaved x{chunks}", tuple(order), world_size * chunks, micro_batches)


def ideal_bubble(*, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the share of a rank's time that it idles when transfers cost nothing.

    (s - 1) / (chunks * m + s - 1), with s = stages per chunk (= ranks) and m = micro_batches:
    Narayanan et al., SC 2021, section 2.2, as a share of the whole step.
    """
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def _alternate(forward: list[Task], backward: list[Task], *, warmup: int) -> tuple[Task, ...]:
    order = forward[:warmup]
    for f, b in zip(forward[warmup:], backward, strict=False):
        order += [f, b]
    return (*order, *backward[len(forward) - warmup :])


def _positive(**values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
