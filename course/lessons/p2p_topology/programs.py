"""What the ranks of lesson 04 do. Imports little: every rank of every launch pays for it."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist

from course.comm.algorithms import Group
from course.comm.collectives import event, synchronize, take_turns
from course.lessons.p2p_topology.topology import Ways
from labkit import device
from labkit.ranks.machine import gpu_count


class Mark:
    """When this rank's device comes to this place: a CUDA event, or the clock beside a CPU."""

    def __init__(self) -> None:
        self.event = event()
        self.event.record()

    def ms_until(self, later: "Mark") -> float:
        """Return the milliseconds from this mark to a later one, when both have been reached."""
        return self.event.elapsed_time(later.event)


def receivers() -> tuple[int, int, int]:
    """Return to which GPUs the three copies of GPU 0 go: the puzzle's, or those that are there."""
    gpus = gpu_count()
    if gpus == 3:
        return 1, 2, 1
    return (1, 2, 3) if gpus == 4 else (1, 2, 4)


def three_copies(tensor: torch.Tensor, src: int, dsts: Sequence[int]) -> None:
    """Send the same bytes to several ranks at once."""
    if dist.get_rank() == src:
        works = [dist.isend(tensor, dst) for dst in dsts]
        for work in works:
            work.wait()
    elif dist.get_rank() in dsts:
        dist.recv(tensor, src)


def first_bytes(tensor: torch.Tensor, nbytes: int, src: int, dsts: Sequence[int]) -> None:
    """Send so many bytes of a tensor to several ranks at once."""
    three_copies(tensor[: nbytes // 4], src, dsts)


def two_slots(sizes: Sequence[int], before: int, after: int) -> None:
    """Hand on chunks of these elements with room for two: one arrives, one leaves."""
    slots = torch.empty(2, sizes[0], device=device())
    arriving = dist.irecv(slots[0], before)
    for number, size in enumerate(sizes):
        arriving.wait()
        leaving = dist.isend(slots[number % 2, :size], after)
        if number + 1 < len(sizes):
            arriving = dist.irecv(slots[(number + 1) % 2, : sizes[number + 1]], before)
        leaving.wait()


def pass_on(
    tensor: torch.Tensor, way: Sequence[int], chunk: int | None = None, slots: int | None = None
) -> None:
    """Hand a tensor along a way, in chunks of so many bytes; with slots, relays have room for 2."""
    rank, pieces = dist.get_rank(), tensor.split((chunk or tensor.nbytes) // 4)
    if rank not in way:
        return
    here = way.index(rank)
    if slots and 0 < here < len(way) - 1:
        two_slots([len(piece) for piece in pieces], way[here - 1], way[here + 1])
        return
    for piece in pieces:
        if here > 0:
            dist.recv(piece, way[here - 1])
        if rank != way[-1]:
            dist.send(piece, way[here + 1])


def carry(
    tensor: torch.Tensor, ways: Ways, chunk: int, shares: Sequence[float] = (), group: Group = None
) -> None:
    """Copy a tensor from the first rank of the ways to their last, over the ranks between.

        carry(tensor, [[0, 5, 2], [0, 7, 2]], chunk=125_000)    # half of it takes each way

    While a relay hands on one chunk, the next one is on its way to it. A relay's tensor is its
    buffer; ranks on no way leave theirs alone. `chunk` is in bytes, `shares` in any unit.
    """
    rank, legs, leaving = dist.get_rank(), [], []
    parts = split(tensor, shares or [1] * len(ways))
    for tag, (part, way) in enumerate(zip(parts, ways, strict=True)):
        if rank in way:
            here, how = list(way).index(rank), {"group": group, "tag": tag}
            pieces = part.split(chunk // tensor.itemsize)
            after = way[here + 1] if rank != way[-1] else None
            # All receives are posted before anything is sent: no sender waits for readiness.
            arriving = [dist.irecv(piece, way[here - 1], **how) for piece in pieces if here > 0]
            turns = itertools.zip_longest(pieces, arriving)
            legs.append([(piece, arrival, after, how) for piece, arrival in turns])
    for turn in itertools.zip_longest(*legs):
        for piece, arrival, after, how in filter(None, turn):
            if arrival:
                arrival.wait()
            if after is not None:
                leaving.append(dist.isend(piece, after, **how))
    for work in leaving:
        work.wait()


def split(tensor: torch.Tensor, shares: Sequence[float]) -> Sequence[torch.Tensor]:
    """Cut a tensor into parts in proportion to the shares; nothing is lost."""
    *cuts, whole = itertools.accumulate(shares)
    return tensor.tensor_split([round(len(tensor) * cut / whole) for cut in cuts])


def by_turns(
    program: Callable[..., None], arms: Sequence[Mapping], nbytes: int, rounds: int
) -> list[list[float]]:
    """Run ``program(tensor, **arm)`` for each arm in turn, round by round, on every rank.

    Returns, for each arm, the seconds of each round by this rank's clock. Before them each arm
    moves a single chunk, which opens its connections.
    """
    tensor = torch.ones(nbytes // 4, device=device())
    take_turns([partial(program, tensor[: arm.get("chunk", 4) // 4], **arm) for arm in arms], 1)
    return take_turns([partial(program, tensor, **arm) for arm in arms], rounds)


def copy_each_pair(nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Copy between every two GPUs of this host; one rank of each host does it, the others nothing.

    The first copy of a pair opens the way between the two, and is left out.
    """
    if device().index != 0:
        return {}
    gpus = range(gpu_count())
    data = [torch.ones(nbytes // 4, device=f"cuda:{gpu}") for gpu in gpus]
    samples: dict[str, list[float]] = {}
    for src, dst in itertools.permutations(gpus, 2):
        with torch.cuda.device(src):
            took = []
            for _ in range(1 + rounds):
                begin = Mark()
                data[dst].copy_(data[src], non_blocking=True)
                end = Mark()
                synchronize()
                took.append(begin.ms_until(end) / 1e3)
        samples[f"{src} to {dst}"] = took[1:]
    return samples


def send_each_pair(nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Send so many bytes between every two ranks, one pair after the other."""
    pairs = list(itertools.permutations(range(dist.get_world_size()), 2))
    times = by_turns(pass_on, [{"way": pair} for pair in pairs], nbytes, rounds)
    return {f"{src} to {dst}": took for (src, dst), took in zip(pairs, times, strict=True)}


def at_once(ways: Ways, nbytes: int, chunk: int, iters: int) -> list[list[float]]:
    """Start transfers together, each over connections of its own; time them where they end.

    Returns, for each way, the seconds of each repetition; none on other ranks.
    """
    rank, groups = dist.get_rank(), [dist.new_group() for _ in ways]
    tensors = [torch.ones(nbytes // 4) for _ in ways]
    samples: list[list[float]] = [[] for _ in ways]

    def transfer(begin: float, number: int) -> None:
        carry(tensors[number], [ways[number]], chunk, group=groups[number])
        if rank == ways[number][-1]:
            samples[number].append(time.perf_counter() - begin)

    mine = [number for number, way in enumerate(ways) if rank in way]
    with ThreadPoolExecutor(len(ways)) as pool:
        for _ in range(iters + 1):
            dist.barrier()
            list(pool.map(partial(transfer, time.perf_counter()), mine))
    return [row[1:] for row in samples]
