"""Pipeline schedules as data, and the program of each rank that follows from one.

A model is cut into stages, a batch into micro-batches. Each micro-batch goes forward (F) through
all stages, then backward (B) through all of them again. A schedule says, for every rank, in which
order it computes its share. A program adds what the rank receives and sends between its tasks. When
a transfer may start depends on the channel that it goes through (`Channel`, `simulator`).

Sources: GPipe (Huang et al., 2019); 1F1B (PipeDream, Narayanan et al., SOSP 2019; with a flush
after each batch, as here, PipeDream-Flush, Narayanan et al., 2021).
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum


class InvalidProgram(ValueError):
    """Programs or an order that cannot mean anything; the message lists what is wrong."""

    def _render_traceback_(self) -> list[str]:
        """Show a notebook the message alone."""
        return [str(self)]


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One piece of computing: a stage's forward or backward pass of one micro-batch."""

    kind: str  # "F" (forward) or "B" (backward)
    stage: int  # which part of the model, 0 to stages - 1; it lives on the rank of that number
    micro_batch: int  # which part of the batch, 0 to micro_batches - 1

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}"


@dataclass(frozen=True, slots=True)
class Costs:
    """How long tasks take, in a run as in the model, and messages in the model; in seconds."""

    forward: float
    backward: float
    leg: float = 0.0  # of one message that shares no network card with another
    slow: float = field(default=1.0, kw_only=True)
    """How many times as long the tasks of rank 0 take."""
    longer_b0: float = field(default=0.0, kw_only=True)  # by how much B0 on rank 2 takes longer

    def seconds(self, task: Task) -> float:
        """Return the seconds of a task."""
        seconds = self.forward if task.kind == "F" else self.backward
        seconds *= self.slow if task.stage == 0 else 1.0
        return seconds + (self.longer_b0 if task == Task("B", stage=2, micro_batch=0) else 0.0)


Schedule = tuple[tuple[Task, ...], ...]
"""What each rank computes, first to last. Rank r holds stage r."""


def gpipe(*, stages: int, micro_batches: int) -> Schedule:
    """Build GPipe: all forward passes, then all backward passes. Keeps every activation."""
    return run_ahead(stages, micro_batches, warmup=lambda stage: micro_batches)


def one_f_one_b(*, stages: int, micro_batches: int) -> Schedule:
    """Build 1F1B: after a warm-up F and B in turn. Stage i keeps stages - i activations at most."""
    return run_ahead(stages, micro_batches, warmup=lambda stage: stages - stage - 1)


def eager_1f1b(*, stages: int, micro_batches: int) -> Schedule:
    """Build eager 1F1B: twice the warm-up, so that transfers have time while a stage computes.

    Stage i keeps up to 2 (stages - i) - 1 activations. Source: Zhuang et al., "On Optimizing the
    Communication of Model Parallelism", MLSys 2023, section 4.
    """
    return run_ahead(stages, micro_batches, warmup=lambda stage: 2 * (stages - stage - 1))


SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b, "eager 1f1b": eager_1f1b}
NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "eager 1f1b": "eager 1F1B"}
"""What the lesson calls them."""


def run_ahead(stages: int, micro_batches: int, *, warmup: Callable[[int], int]) -> Schedule:
    """Let each stage run ahead with `warmup(stage)` forward passes, then alternate F and B."""
    order = []
    for stage in range(stages):
        forward, backward = ([Task(kind, stage, k) for k in range(micro_batches)] for kind in "FB")
        ahead = min(warmup(stage), micro_batches)
        tasks = forward[:ahead]
        for f, b in zip(forward[ahead:], backward, strict=False):
            tasks += [f, b]
        order.append((*tasks, *backward[micro_batches - ahead :]))
    return tuple(order)


def ideal_bubble(*, stages: int, micro_batches: int) -> float:
    """Return the share of a rank's time that it idles when transfers cost nothing.

    (s - 1) / (m + s - 1), with s stages and m micro-batches: Narayanan et al., "Efficient
    Large-Scale Language Model Training on GPU Clusters", SC 2021, section 2.2.
    """
    return (stages - 1) / (micro_batches + stages - 1)


@dataclass(frozen=True, slots=True, order=True)
class Transfer:
    """One message: what `task` produced goes from rank src to rank dst, where `use` needs it."""

    task: Task
    use: Task
    src: int
    dst: int

    def __str__(self) -> str:
        return f"{self.task} {self.src}→{self.dst}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Transfers that a rank starts together and finishes together; often only one.

    What `torch.distributed.batch_isend_irecv` takes: no order among them, all done before the next.
    """

    transfers: tuple[Transfer, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.transfers, tuple) or not self.transfers:
            raise TypeError(
                "a batch is a tuple of transfers: Batch((a, b)), Batch((a,)) for a single one; "
                f"got {self.transfers!r}"
            )

    def __str__(self) -> str:
        return " + ".join(map(str, self.transfers))


Program = tuple[Task | Batch, ...]  # what one rank does, in order


class Channel(Enum):
    """How a rank's transfers are ordered. A send keeps its place until its receiver has the bytes.

    That is a rendezvous: right for large activations. Small ones fit into a library's buffers.
    """

    BLOCKING = "blocking"
    """Transfers and computing in one order: blocking send and recv. On NCCL, too, and whatever the
    communicators: `dist.send` makes the current stream wait, and the next send waits for that."""
    ORDERED = "ordered"
    """All transfers of a rank in one order, beside the computing: isend and irecv that are waited
    for late, on one NCCL communicator."""
    EDGE = "edge"  # one order per pair of ranks: a communicator for each pair
    DIRECTION = "direction"  # one order per pair and direction: two communicators for each pair
    TAGGED = "tagged"  # a queue for each message, so no order: tags on gloo, or plain memory copies
    WAITING_PUT = "put that waits"
    """As ``ORDERED``, but a send writes into memory that its receiver sees, wakes it, and waits
    until the receiver has taken it."""
    PUT = "put"
    """As ``WAITING_PUT``, without the waiting. So in the model nothing stands behind another
    message."""

    def lane(self, transfer: Transfer) -> Hashable:
        """Return which queue a transfer stands in."""
        if self in (Channel.TAGGED, Channel.PUT):
            return transfer
        if self is Channel.DIRECTION:
            return (transfer.src, transfer.dst)
        return frozenset((transfer.src, transfer.dst)) if self is Channel.EDGE else "all"

    def lanes(self, batch: Batch) -> list[tuple[Hashable, tuple[Transfer, ...]]]:
        """Divide a batch by the queues that its transfers stand in."""
        by_lane: dict[Hashable, list[Transfer]] = {}
        for transfer in batch.transfers:
            by_lane.setdefault(self.lane(transfer), []).append(transfer)
        return [(lane, tuple(transfers)) for lane, transfers in by_lane.items()]


def activation(src: int, micro_batch: int) -> Transfer:
    """Name the transfer of a micro-batch's activation from the stage on rank src to the next."""
    return Transfer(Task("F", src, micro_batch), Task("F", src + 1, micro_batch), src, src + 1)


def programs(
    schedule: Schedule, *, batched: bool = True, ahead: int | Sequence[int] = 0
) -> tuple[Program, ...]:
    """Write each rank's program: receive what a task needs, compute it, send what it made.

    `batched` joins the transfers between two tasks that go to and come from the same rank into one
    batch (what Megatron-LM calls send_forward_recv_backward). Without it every transfer is alone:
    the naive program, which deadlocks for 1F1B. Receives stand so many tasks `ahead` of where they
    would otherwise, right before their use; one number for all ranks or one for each.
    """
    early_by_rank = [ahead] * len(schedule) if isinstance(ahead, int) else ahead
    return tuple(
        _program(tasks, early, stages=len(schedule), batched=batched)
        for tasks, early in zip(schedule, early_by_rank, strict=True)
    )


def _program(tasks: Sequence[Task], early: int, *, stages: int, batched: bool) -> Program:
    """Write one rank's program; receives stand `early` tasks before the place of their use."""
    receives = [transfer_into(task, stages) for task in tasks]
    sends = [transfer_out_of(task, stages) for task in tasks]
    steps: list[Task | Batch] = []
    for place in range(-early, len(tasks) + 1):  # the last place is behind the last task
        between: list[Transfer | None] = []  # what moves right before the task of this place
        if place > 0:
            between.append(sends[place - 1])
        if place + early < len(tasks):
            between.append(receives[place + early])
        steps += _batches([t for t in between if t is not None], joined=batched)
        if 0 <= place < len(tasks):
            steps.append(tasks[place])
    return tuple(steps)


def _batches(transfers: Sequence[Transfer], *, joined: bool) -> list[Batch]:
    """Return one batch if all are between the same two ranks and shall be joined, else one each."""
    pairs = {frozenset((t.src, t.dst)) for t in transfers}
    if joined and len(pairs) == 1:
        return [Batch(tuple(transfers))]
    return [Batch((t,)) for t in transfers]


def in_order(schedule: Schedule, order: Sequence[Transfer]) -> tuple[Program, ...]:
    """Write each rank's program when all ranks post their transfers in one order.

    A program has first the rank's transfers, one by one, then its tasks: the queue runs beside the
    computing, so the place of a task among transfers means nothing. `InvalidProgram` lists every
    transfer that the order leaves out, doubles, or invents.
    """
    order = list(order) if isinstance(order, Iterable) else [order]
    for entry in order:
        if not isinstance(entry, Transfer):
            raise InvalidProgram(
                f"an order is one list of transfers for all ranks; got {entry!r:.60}"
            )
    here = "in the order"
    needed = {(t, here) for program in programs(schedule) for t in transfers_of(program)}
    _hold_once(needed, Counter((t, here) for t in order))
    return tuple(
        tuple(Batch((t,)) for t in order if rank in (t.src, t.dst)) + tuple(tasks)
        for rank, tasks in enumerate(schedule)
    )


def transfer_out_of(task: Task, stages: int) -> Transfer | None:
    """Return the transfer of what a task makes; None where the pipeline ends."""
    use = replace(task, stage=task.stage + (1 if task.kind == "F" else -1))
    return Transfer(task, use, task.stage, use.stage) if 0 <= use.stage < stages else None


def transfer_into(task: Task, stages: int) -> Transfer | None:
    """Return the transfer of what a task needs; None where the pipeline begins."""
    before = replace(task, stage=task.stage - (1 if task.kind == "F" else -1))
    return transfer_out_of(before, stages) if 0 <= before.stage < stages else None


def parts(step: Task | Batch) -> tuple[Task | Transfer, ...]:
    """Return a step's transfers, or the task that it is."""
    return step.transfers if isinstance(step, Batch) else (step,)


def transfers_of(program: Program) -> list[Transfer]:
    """Return the transfers of a rank's program, in order."""
    return [part for step in program for part in parts(step) if isinstance(part, Transfer)]


def unseen_schedule() -> Schedule:
    """Return a schedule that runs further ahead than eager 1F1B; its own programs hang."""
    return run_ahead(4, 8, warmup=lambda stage: 3 * (3 - stage) + 1)


def hanging_programs() -> tuple[Program, ...]:
    """Return what a colleague wrote: 1F1B, every send and receive on its own."""
    return programs(one_f_one_b(stages=5, micro_batches=6), batched=False)


def receiving_first(ranks: Sequence[Program], chosen: Collection[int]) -> list[Program]:
    """Let these ranks receive before they send wherever both stand side by side."""
    mended = [list(program) for program in ranks]
    for rank, steps in enumerate(mended):
        for k in range(len(steps) - 1 if rank in chosen else 0):
            both = [step.transfers[0] for step in steps[k : k + 2] if isinstance(step, Batch)]
            if len(both) == 2 and (both[0].src, both[1].dst) == (rank, rank):
                steps[k : k + 2] = steps[k + 1], steps[k]
    return [tuple(steps) for steps in mended]


def check_programs(ranks: Sequence[Program]) -> None:
    """Check that each transfer stands once with its sender, once with its receiver, nowhere else.

    `InvalidProgram` lists every transfer for which that is not so.
    """
    of = "in the program of rank {}".format
    stands = Counter(
        (t, of(rank)) for rank, program in enumerate(ranks) for t in transfers_of(program)
    )
    ends = {(t, of(rank)) for t, _ in stands for rank in (t.src, t.dst)}
    _hold_once(ends, stands)


def _hold_once(needed: set[tuple[Transfer, str]], stands: Counter) -> None:
    """Hold each transfer to stand once at each place where it is needed, and nowhere else.

    A place is what a sentence says of it: "in the order". Four transfers are named.
    """
    wrong = []
    for transfer, place in sorted(needed | {*stands}, key=str):
        wanted = 1 if (transfer, place) in needed else 0
        times = stands[transfer, place]
        if times != wanted:
            wrong.append(f"{transfer} stands {times} times {place}, not {wanted}")
    if wrong:
        more = [f"and {len(wrong) - 4} more"] if len(wrong) > 4 else []
        raise InvalidProgram("; ".join(wrong[:4] + more))
