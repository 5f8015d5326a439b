"""What waits for what when programs run through a channel: the deadlocks, and the timeline.

One graph serves twice: a cycle in it is a deadlock, and played forward it is the timeline. Every
rank has its own network card that sends and receives at the same time, as a host of `Fabric.star`.
Transfers of one card share it fairly; those from one rank to one other go one after the other, as
on one TCP connection.
"""

from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise, product

import networkx as nx

from course.comm.sharing import Activity, Period, play
from course.lessons.pipeline_p2p import schedules
from course.lessons.pipeline_p2p.schedules import Channel, Costs, Program, Task, Transfer, parts

Waits = dict[Task | Transfer, dict[Task | Transfer, str]]
"""after[x][y] = why x cannot start before y has ended."""


class Deadlock(Exception):
    """Programs that can never end; the message walks once around the cycle."""


def waits(ranks: Sequence[Program], *, channel: Channel) -> Waits:
    """Build the graph of what has to wait for what, with transfers ordered by a channel."""
    schedules.check_programs(ranks)
    after: Waits = {part: {} for program in ranks for step in program for part in parts(step)}
    for rank, program in enumerate(ranks):
        if channel is not Channel.BLOCKING:
            _in_lanes(after, rank, program, channel)
            continue
        for earlier, later in pairwise(program):  # each step waits for all of the one before it
            for part, before in product(parts(later), parts(earlier)):
                after[part][before] = f"rank {rank} does it first"
    return after


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
        for lane, batch in channel.lanes(step):
            leaves = [transfer for transfer in batch if transfer.src == rank]
            for transfer in batch:
                for sent in leaves:  # a batch starts when everything it sends is there
                    after[transfer][sent.task] = f"rank {rank} sends what it makes"
                for before in previous.get(lane, ()):
                    after[transfer][before] = f"the latter stands before it in rank {rank}'s queue"
                if transfer.dst == rank:
                    arrives[transfer.use] = batch
            previous[lane] = batch


def find_cycle(after: Waits) -> list:
    """Return the shortest cycle of things that wait for each other, [] when there is none.

    Each waits for the one after it, the last for the first.
    """
    graph = nx.DiGraph((part, before) for part, befores in after.items() for before in befores)
    cycles = [
        [part, *nx.shortest_path(graph, before, part)[:-1]]
        for component in nx.strongly_connected_components(graph)
        for part, before in graph.subgraph(component).edges
    ]
    return min(cycles, key=lambda cycle: (len(cycle), list(map(full_name, cycle))), default=[])


def find_deadlock(ranks: Sequence[Program], *, channel: Channel) -> str:
    """Return a deadlock of these programs on this channel in words, "" when there is none.

    >>> print(find_deadlock(ranks, channel=Channel.BLOCKING))       # doctest: +SKIP
    F1 0→1 waits for B0 1→0: rank 1 does it first
    B0 1→0 waits for F1 0→1: rank 0 does it first
    """
    after = waits(ranks, channel=channel)
    return _in_words(find_cycle(after), after=after)


def _in_words(cycle: Sequence, *, after: Waits) -> str:
    pairs = zip(cycle, [*cycle[1:], *cycle[:1]], strict=True)
    return "\n".join(f"{full_name(a)} waits for {full_name(b)}: {after[a][b]}" for a, b in pairs)


def full_name(part: Task | Transfer) -> str:
    """Name a transfer or a task and the ranks that it is on."""
    return str(part) if isinstance(part, Transfer) else f"{part} on rank {part.stage}"


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """When everything of one training step ran, simulated or measured."""

    world_size: int
    tasks: tuple[tuple[int, Task, Period], ...]  # (rank, task, when), in the order of their begin
    transfers: tuple[tuple[Transfer, Period], ...]

    @property
    def seconds(self) -> float:
        """Return the time of the whole step, first begin to last end."""
        periods = [period for *_, period in (*self.tasks, *self.transfers)]
        return max(period.end for period in periods) - min(period.begin for period in periods)

    @property
    def bubble(self) -> float:
        """Return the share of all ranks' time in which they do not compute."""
        busy = sum(period.seconds for _, _, period in self.tasks)
        return 1 - busy / (self.world_size * self.seconds)

    def as_lists(self) -> list[list]:
        """Turn it into what JSON can hold."""
        return [
            [[rank, astuple(task), astuple(period)] for rank, task, period in self.tasks],
            [[*astuple(transfer), astuple(period)] for transfer, period in self.transfers],
        ]

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence], *, world_size: int) -> "StepTimeline":
        """Read what `as_lists` wrote."""
        tasks, transfers = lists
        ran = tuple((rank, Task(*task), Period(*when)) for rank, task, when in tasks)
        moved = (
            (Transfer(Task(*task), Task(*use), src, dst), Period(*when))
            for task, use, src, dst, when in transfers
        )
        return cls(world_size, ran, tuple(moved))


def _activity(part: Task | Transfer, costs: Costs) -> Activity:
    """Return what a task or a transfer takes, with a transfer in units of a card's seconds."""
    if isinstance(part, Task):
        return Activity(costs.seconds(part))
    links = (("out", part.src), ("in", part.dst))
    return Activity(nbytes=costs.leg, links=links, queue=(part.src, part.dst))


def simulate(ranks: Sequence[Program], costs: Costs, *, channel: Channel) -> StepTimeline:
    """Play programs through a channel; `Deadlock` says that ranks would wait for ever."""
    after = waits(ranks, channel=channel)
    if cycle := find_cycle(after):
        raise Deadlock(f"on channel {channel.value}:\n{_in_words(cycle, after=after)}")
    rates = {(side, rank): 1.0 for side in ("out", "in") for rank in range(len(ranks))}
    activities = {part: _activity(part, costs) for part in after}
    periods = play(activities, after=after, rates=rates)
    when = sorted(periods.items(), key=lambda item: item[1].begin)
    return StepTimeline(
        world_size=len(ranks),
        tasks=tuple((part.stage, part, at) for part, at in when if isinstance(part, Task)),
        transfers=tuple((part, at) for part, at in when if isinstance(part, Transfer)),
    )
