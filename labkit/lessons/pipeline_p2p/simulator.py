"""The timeline of a pipeline: when each stage computes, when each transfer runs.

Every rank has its own network card that sends and receives at `rate` at the same time, as a host
of `Fabric.star`. Transfers of one card share it fairly; those from one rank to one other go one
after the other, as on one TCP connection.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from labkit.comm.sharing import Job, Span, play
from labkit.lessons.pipeline_p2p.deadlock import Deadlock, explain, find_cycle
from labkit.lessons.pipeline_p2p.dependencies import waits
from labkit.lessons.pipeline_p2p.pipeline import Channel, Program, Transfer, programs
from labkit.lessons.pipeline_p2p.schedules import Schedule, Task

__all__ = ["Costs", "Timeline", "simulate", "simulate_programs"]


@dataclass(frozen=True, slots=True)
class Costs:
    """What computing and moving cost."""

    forward: float
    """Seconds of one forward task."""
    backward: float
    """Seconds of one backward task."""
    nbytes: float = 0.0
    """Bytes of one transfer (an activation, or its gradient)."""
    rate: float = float("inf")
    """Bytes per second of each rank's network card, each way."""
    latency: float = 0.0
    """Seconds of one transfer before its bytes flow (alpha)."""
    compute_drag: float = 1.0
    """How many times slower a rank computes while it moves bytes (3 for NCCL in the thread)."""
    transfer_drag: float = 1.0
    """How many times slower bytes move while one of their two ranks computes."""
    slow_stages: tuple[tuple[int, float], ...] = ()
    """Stages whose tasks take so many times as long: ((stage, factor), ...)."""

    def seconds(self, task: Task) -> float:
        """Return how long a task computes."""
        base = self.forward if task.kind == "F" else self.backward
        return base * dict(self.slow_stages).get(task.stage, 1.0)


@dataclass(frozen=True, slots=True)
class Timeline:
    """When everything ran, simulated or measured."""

    world_size: int
    tasks: tuple[tuple[int, Task, Span], ...]
    """(rank, task, when), in the order of their begin."""
    transfers: tuple[tuple[Transfer, Span], ...]

    @property
    def seconds(self) -> float:
        """Return the time of the whole step, first begin to last end."""
        spans = [span for *_, span in (*self.tasks, *self.transfers)]
        return max(span.end for span in spans) - min(span.begin for span in spans)

    @property
    def bubble(self) -> float:
        """Return the share of all ranks' time in which they do not compute."""
        busy = sum(span.seconds for _, _, span in self.tasks)
        return 1 - busy / (self.world_size * self.seconds)


def simulate(
    schedule: Schedule,
    costs: Costs,
    *,
    channel: Channel = Channel.TAGGED,
    credits: int | None = None,
) -> Timeline:
    """Play a schedule through a channel.

    Raises:
        Deadlock: The ranks would wait for each other for ever.
    """
    return simulate_programs(programs(schedule), costs, channel=channel, credits=credits)


def simulate_programs(
    ranks: Sequence[Program],
    costs: Costs,
    *,
    channel: Channel,
    credits: int | None = None,
) -> Timeline:
    """Play hand-written programs through a channel; as `simulate`."""
    after = waits(ranks, channel=channel, credits=credits)
    if cycle := find_cycle(after):
        raise Deadlock(f"on channel {channel.value}:\n{explain(cycle, after=after)}")
    home = {
        step: rank for rank, steps in enumerate(ranks) for step in steps if isinstance(step, Task)
    }
    jobs = {node: _job(node, costs) for node in after}
    rates = {(side, rank): costs.rate for side in ("out", "in") for rank in range(len(ranks))}

    def drag(node: Task | Transfer, running: Collection[Task | Transfer]) -> float:
        if isinstance(node, Task):
            mine = (home[node] in (x.src, x.dst) for x in running if isinstance(x, Transfer))
            return costs.compute_drag if any(mine) else 1.0
        busy = {home[x] for x in running if isinstance(x, Task)}
        return costs.transfer_drag if busy & {node.src, node.dst} else 1.0

    spans = play(jobs, after=after, rates=rates, drag=drag)
    when = sorted(spans.items(), key=lambda item: item[1].begin)
    return Timeline(
        world_size=len(ranks),
        tasks=tuple((home[node], node, span) for node, span in when if isinstance(node, Task)),
        transfers=tuple((node, span) for node, span in when if isinstance(node, Transfer)),
    )


def _job(node: Task | Transfer, costs: Costs) -> Job:
    if isinstance(node, Task):
        return Job(seconds=costs.seconds(node))
    links = (("out", node.src), ("in", node.dst))
    return Job(costs.latency, costs.nbytes, links, queue=(node.src, node.dst))
