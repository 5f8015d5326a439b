"""From a schedule to each rank's program: what it receives, computes and sends, step by step.

A program is a list of steps: compute a task, or do a batch of transfers. When a transfer may start
depends on the channel that it goes through (`Channel`, `labkit.lessons.pipeline_p2p.dependencies`).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum

from labkit.lessons.pipeline_p2p.schedules import InvalidSchedule, Schedule, Task

__all__ = ["Batch", "Channel", "Program", "Transfer", "activation", "check_programs", "programs"]


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

    def __str__(self) -> str:
        return " + ".join(map(str, self.transfers))


Program = tuple[Task | Batch, ...]
"""What one rank does, in order."""


class Channel(Enum):
    """How a rank's transfers are ordered. The comment names what behaves so."""

    BLOCKING = "blocking"
    """Transfers and computing in one order: blocking send and recv."""
    ORDERED = "ordered"
    """All transfers of a rank in one order, beside the computing: one NCCL communicator."""
    EDGE = "edge"
    """One order per pair of ranks: one process group per edge."""
    DIRECTION = "direction"
    """One order per pair and direction: two process groups per edge."""
    TAGGED = "tagged"
    """No order: each starts when it can. Tags on gloo, or plain memory copies."""

    def lane(self, transfer: Transfer) -> Hashable:
        """Return which queue a transfer stands in; None when it stands in none."""
        if self is Channel.TAGGED:
            return None
        if self is Channel.DIRECTION:
            return (transfer.src, transfer.dst)
        return frozenset((transfer.src, transfer.dst)) if self is Channel.EDGE else "all"


def activation(src: int, micro_batch: int) -> Transfer:
    """Name the transfer of a micro-batch's activation from the stage on rank src to the next."""
    task = Task("F", src, micro_batch)
    return Transfer(task, Task("F", src + 1, micro_batch), src, src + 1)


def programs(schedule: Schedule, *, batched: bool = True) -> tuple[Program, ...]:
    """Write each rank's program: receive what a task needs, compute it, send what it made.

    Args:
        schedule: Who computes what.
        batched: Join the transfers between two tasks that go to and come from the same rank into
            one batch (what Megatron-LM calls send_forward_recv_backward). False leaves every
            transfer alone: the naive program, which deadlocks for 1F1B.
    """
    return tuple(_program(tasks, schedule=schedule, batched=batched) for tasks in schedule.order)


def _program(tasks: Sequence[Task], *, schedule: Schedule, batched: bool) -> Program:
    steps: list[Task | Batch] = []
    sent: Transfer | None = None
    for task in tasks:
        received = _transfer_into(task, schedule)
        if batched and sent and received and _pair(sent) == _pair(received):
            steps.append(Batch((sent, received)))
        else:
            steps += [Batch((transfer,)) for transfer in (sent, received) if transfer]
        steps.append(task)
        sent = _transfer_out_of(task, schedule)
    if sent:
        steps.append(Batch((sent,)))
    return tuple(steps)


def _pair(transfer: Transfer) -> frozenset[int]:
    return frozenset((transfer.src, transfer.dst))


def _transfer_out_of(task: Task, schedule: Schedule) -> Transfer | None:
    stage = task.stage + (1 if task.kind == "F" else -1)
    if not 0 <= stage < schedule.stages:
        return None
    src, dst = schedule.rank_of(task.stage), schedule.rank_of(stage)
    if src == dst:
        return None
    return Transfer(task, Task(task.kind, stage, task.micro_batch), src, dst)


def _transfer_into(task: Task, schedule: Schedule) -> Transfer | None:
    stage = task.stage - (1 if task.kind == "F" else -1)
    if not 0 <= stage < schedule.stages:
        return None
    return _transfer_out_of(Task(task.kind, stage, task.micro_batch), schedule)


def check_programs(ranks: Sequence[Program]) -> None:
    """Check that every send has its receive, on the right ranks and once.

    Raises:
        InvalidSchedule: with every transfer that lacks its other half.
    """
    wrong = []
    for rank, program in enumerate(ranks):
        mine = Counter(t for step in program if isinstance(step, Batch) for t in step.transfers)
        for transfer, count in mine.items():
            if rank not in (transfer.src, transfer.dst):
                wrong.append(f"rank {rank} has {transfer}, which is not its own")
            if count > 1:
                wrong.append(f"rank {rank} has {transfer} {count} times")
    ends = defaultdict(set)
    for rank, program in enumerate(ranks):
        for step in program:
            for transfer in step.transfers if isinstance(step, Batch) else ():
                ends[transfer].add(rank)
    for transfer, found in ends.items():
        if transfer.src not in found:
            wrong.append(
                f"rank {transfer.dst} receives {transfer}, rank {transfer.src} never sends it"
            )
        if transfer.dst not in found:
            wrong.append(
                f"rank {transfer.src} sends {transfer}, rank {transfer.dst} never receives it"
            )
    if wrong:
        raise InvalidSchedule("; ".join(wrong))
