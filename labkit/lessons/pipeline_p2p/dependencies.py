"""What has to wait for what, when programs run through a channel.

One graph serves twice: a cycle in it is a deadlock (`deadlock`), and played forward
it is the timeline (`simulator`).
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

from labkit.lessons.pipeline_p2p.pipeline import Batch, Channel, Program, Transfer, check_programs
from labkit.lessons.pipeline_p2p.schedules import Task

__all__ = ["Node", "Waits", "waits"]

Node = Task | Transfer
Waits = dict[Node, dict[Node, str]]
"""after[x][y] = why x cannot start before y has ended."""


def waits(ranks: Sequence[Program], *, channel: Channel, credits: int | None = None) -> Waits:
    """Build the graph of what has to wait for what.

    Args:
        ranks: Each rank's program.
        channel: How transfers are ordered.
        credits: Receive buffers per pair and direction: transfer k may start once the receiver
            has begun to use transfer k - credits. None: as many as there are transfers.
    """
    check_programs(ranks)
    after: Waits = {node: {} for program in ranks for step in program for node in _nodes(step)}
    for rank, program in enumerate(ranks):
        if channel is Channel.BLOCKING:
            _in_line(after, rank, program)
        else:
            _in_lanes(after, rank, program, channel)
    if credits is not None:
        _with_credits(after, ranks, credits)
    return after


def _nodes(step: Task | Batch) -> tuple[Node, ...]:
    return step.transfers if isinstance(step, Batch) else (step,)


def _in_line(after: Waits, rank: int, program: Program) -> None:
    """Let each step wait for the whole step before it."""
    for earlier, later in pairwise(program):
        for node in _nodes(later):
            for before in _nodes(earlier):
                after[node][before] = f"rank {rank} does it first"


def _in_lanes(after: Waits, rank: int, program: Program, channel: Channel) -> None:
    """Let computing run beside the transfers; transfers of one lane wait for each other."""
    previous: dict[Hashable, tuple[Transfer, ...]] = {}
    last: Task | None = None
    arrives: dict[Task, tuple[Transfer, ...]] = {}
    for step in program:
        if isinstance(step, Task):
            if last:
                after[step][last] = f"rank {rank} computes it first"
            for transfer in arrives.get(step, ()):
                after[step][transfer] = f"rank {rank} waits for its batch"
            last = step
            continue
        for lane, batch in _by_lane(step, channel):
            made = [transfer for transfer in batch if transfer.src == rank]
            for transfer in batch:
                for sent in made:  # a batch starts when everything it sends is there
                    after[transfer][sent.task] = f"rank {rank} sends what it makes"
                for before in previous.get(lane, ()) if lane is not None else ():
                    after[transfer][before] = f"it stands before it in rank {rank}'s queue"
                if transfer.dst == rank:
                    arrives[transfer.use] = batch
            previous[lane] = batch


def _by_lane(batch: Batch, channel: Channel) -> list[tuple[Hashable, tuple[Transfer, ...]]]:
    if channel is Channel.TAGGED:
        return [(None, (transfer,)) for transfer in batch.transfers]
    lanes: dict[Hashable, list[Transfer]] = defaultdict(list)
    for transfer in batch.transfers:
        lanes[channel.lane(transfer)].append(transfer)
    return [(lane, tuple(transfers)) for lane, transfers in lanes.items()]


def _with_credits(after: Waits, ranks: Sequence[Program], credits: int) -> None:
    if credits < 1:
        raise ValueError(f"credits={credits}: a receiver needs at least 1 buffer per sender")
    used: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
    for rank, program in enumerate(ranks):
        arriving = {
            transfer.use: transfer
            for step in program
            for transfer in _nodes(step)
            if isinstance(transfer, Transfer) and transfer.dst == rank
        }
        for step in program:  # buffers come free in the order in which the tasks use them
            if step in arriving:
                transfer = arriving[step]
                used[transfer.src, rank].append(transfer)
    for queue in used.values():
        for earlier, later in zip(queue, queue[credits:], strict=False):
            for before in after[earlier.use]:  # when these have ended, its use begins
                after[later][before] = f"rank {later.dst} has no free buffer before"
