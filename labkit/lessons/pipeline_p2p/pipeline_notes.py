"""What the ranks of a pipeline noted, put side by side as one timeline, and kept in a record."""

from collections.abc import Sequence

from labkit.comm.sharing import Span
from labkit.lessons.pipeline_p2p.pipeline import Transfer
from labkit.lessons.pipeline_p2p.programs import Run
from labkit.lessons.pipeline_p2p.schedules import Task
from labkit.lessons.pipeline_p2p.simulator import Timeline

__all__ = ["as_lists", "from_lists", "timeline"]


def timeline(runs: Sequence[Run]) -> Timeline:
    """Put the ranks' notes of one step side by side.

    All ranks read one kernel's clock. A transfer runs from when both ends want it until the
    receiver has it.
    """
    start = min(begin for run in runs for _, begin, _ in run.tasks)
    tasks = [
        (rank, task, Span(begin - start, end - start))
        for rank, run in enumerate(runs)
        for task, begin, end in run.tasks
    ]
    transfers = []
    for rank, run in enumerate(runs):
        for transfer, (begin, end) in run.transfers.items():
            if transfer.dst == rank:
                sent, _ = runs[transfer.src].transfers[transfer]
                transfers.append((transfer, Span(max(begin, sent) - start, end - start)))
    tasks.sort(key=lambda item: item[2].begin)
    transfers.sort(key=lambda item: item[1].begin)
    return Timeline(len(runs), tuple(tasks), tuple(transfers))


def as_lists(seen: Timeline) -> list[list]:
    """Turn a timeline into what JSON can hold; times to the microsecond."""
    return [
        [[rank, _task(task), _span(span)] for rank, task, span in seen.tasks],
        [[_task(t.task), _task(t.use), t.src, t.dst, _span(span)] for t, span in seen.transfers],
    ]


def from_lists(lists: Sequence[Sequence], *, world_size: int) -> Timeline:
    """Read what `as_lists` wrote."""
    tasks, transfers = lists
    return Timeline(
        world_size=world_size,
        tasks=tuple((rank, Task(*task), Span(*span)) for rank, task, span in tasks),
        transfers=tuple(
            (Transfer(Task(*task), Task(*use), src, dst), Span(*span))
            for task, use, src, dst, span in transfers
        ),
    )


def _task(task: Task) -> list:
    return [task.kind, task.stage, task.micro_batch]


def _span(span: Span) -> list[float]:
    return [round(span.begin, 6), round(span.end, 6)]
