"""The cases' programs, each with its fault inside, and what a fix replaces.

Every program takes a `Watch`, tells it its phases, and returns what must stay the same when the
fault is mended. Where a rank of the real job computes on a GPU or a CPU of its own, it sleeps here:
ranks of a lesson share a few CPUs.
"""

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.casebook.observe import Watch

HANDSHAKE = 0.01
"""Seconds that two ranks need to set up a connection, in the case of the connections."""


# --- connections in rank order


def connect(peer: int) -> None:
    """Set up the connection to a peer: a rendezvous, so both must be here at the same time."""
    token = torch.ones(1)
    if dist.get_rank() < peer:
        dist.send(token, peer)
        dist.recv(token, peer)
    else:
        dist.recv(token, peer)
        dist.send(token, peer)
    time.sleep(HANDSHAKE)


def by_rank(peers: list[int]) -> list[int]:
    """Order the peers to connect to: by rank, as the case had it."""
    return sorted(peers)


def by_xor(peers: list[int]) -> list[int]:
    """Order them by XOR distance: both ends agree, and pairs do not queue behind each other."""
    me = dist.get_rank()
    return sorted(peers, key=lambda peer: me ^ peer)


def connections(watch: Watch, order: Callable) -> float:
    """Connect to both neighbours of a ring at first use, then sum once."""
    rank, n = dist.get_rank(), dist.get_world_size()
    for peer in order([(rank - 1) % n, (rank + 1) % n]):
        with watch.phase("connect"):
            connect(peer)
    total = torch.tensor(float(rank))
    with watch.phase("all_reduce"):
        dist.all_reduce(total)
    return total.item()


# --- making groups


def barrier_each(members: list[list[int]]) -> list[Any]:
    """Make every group and hold a barrier of all ranks after each, as the case had it."""
    groups = []
    for ranks in members:
        groups.append(dist.new_group(ranks))
        dist.barrier()
    return [g for g, ranks in zip(groups, members, strict=True) if dist.get_rank() in ranks]


def local_groups(members: list[list[int]]) -> list[Any]:
    """Make only the groups that this rank is in, and let only their members wait."""
    mine = [ranks for ranks in members if dist.get_rank() in ranks]
    return [dist.new_group(ranks, use_local_synchronization=True) for ranks in mine]


def groups(watch: Watch, make: Callable) -> float:
    """Make a group for every pair of neighbours, as tensor and pipeline parallelism do."""
    rank, n = dist.get_rank(), dist.get_world_size()
    pairs = [[i, i + 1] for i in range(0, n - 1, 2)] + [[i, i + 1] for i in range(1, n - 1, 2)]
    with watch.phase("make groups"):
        mine = make(pairs)
    total = torch.tensor(float(rank))
    with watch.phase("all_reduce"):
        for group in mine:
            dist.all_reduce(total, group=group)
    return total.item()


# --- gathering metrics


def gather_objects(metrics: dict[str, float]) -> dict[str, float]:
    """Average each metric over the ranks: every rank gets everybody's dictionary."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, metrics)
    return {name: sum(one[name] for one in gathered) / len(gathered) for name in metrics}


def reduce_tensor(metrics: dict[str, float]) -> dict[str, float]:
    """Average them as one tensor of fixed layout: the names stay at home."""
    names = sorted(metrics)
    values = torch.tensor([metrics[name] for name in names], dtype=torch.float64)
    dist.all_reduce(values)
    return dict(zip(names, (values / dist.get_world_size()).tolist(), strict=True))


def metrics(watch: Watch, average: Callable) -> dict[str, float]:
    """Train three steps and average 3000 metrics after each."""
    rank = dist.get_rank()
    mine = {f"layer_{i // 30}/expert_{i % 30}/load": float(7919 * i + rank) for i in range(3000)}
    for _ in range(3):
        with watch.phase("compute"):
            time.sleep(0.005)
        with watch.phase("metrics"):
            averaged = average(mine)
    return {name: averaged[name] for name in sorted(averaged)[::60]}


# --- one mask for all ranks


def inherit(cpus: list[int]) -> None:
    """Stay where the launcher's process was: all ranks get its mask."""
    os.sched_setaffinity(0, cpus[:1])


def spread(cpus: list[int]) -> None:
    """Take a CPU of one's own, by local rank."""
    os.sched_setaffinity(0, [cpus[dist.get_rank() % len(cpus)]])


def masks(watch: Watch, place: Callable) -> float:
    """Compute and sum in turns, on the CPUs that the rank may use."""
    place(sorted(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    matrix = torch.randn(256, 256)
    for _ in range(12):
        with watch.phase("compute"):
            for _ in range(4):
                matrix = torch.nn.functional.normalize(matrix @ matrix)
        with watch.phase("all_reduce"):
            dist.all_reduce(matrix)
    return round(matrix.abs().mean().item(), 4)


# --- the first call

MAPPING = 0.04
"""Seconds that setting up a connection takes, in the case of the first call."""


class Channel:
    """A connection of two ranks that is made when it is first used, as NCCL makes its own.

    gloo's connections take less than a millisecond on loopback. The sleep stands for what NCCL does
    on a GPU: the report names calls of 30 to 40 ms each that map memory.
    """

    def __init__(self) -> None:
        self.connected = False

    def exchange(self, tensor: torch.Tensor) -> None:
        """Send the tensor from rank 0 to rank 1."""
        if not self.connected:
            dist.barrier()  # both must be here
            time.sleep(MAPPING)
            self.connected = True
        if dist.get_rank() == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)


def start_at_once(channel: Channel) -> None:
    """Do nothing before the clock starts, as the case did."""


def warm_up(channel: Channel) -> None:
    """Use the connection once before anything is timed."""
    channel.exchange(torch.zeros(1))


def first_call(watch: Watch, prepare: Callable) -> float:
    """Time three messages of 1000 bytes; `prepare` comes before the clock."""
    channel = Channel()
    prepare(channel)
    tensor = torch.full((250,), float(7 - dist.get_rank()))
    for i in range(3):
        dist.barrier()
        with watch.phase(f"call {i + 1}"):
            channel.exchange(tensor)
    return tensor[0].item()


# --- garbage collection

PAUSE = 0.02
"""Seconds of a collection, in the case of the collector."""


def each_at_its_time(step: int) -> bool:
    """Say whether to collect: every eighth step, counted from the rank, as it falls out."""
    return (step + 2 * dist.get_rank()) % 8 == 0


def together(step: int) -> bool:
    """Say whether to collect: at the same steps on every rank."""
    return step % 8 == 0


def collector(watch: Watch, due: Callable) -> list[float]:
    """Train 16 short steps, and collect garbage where it is due.

    A pass over a small heap takes no time to speak of. It is stretched to that of a large one, by a
    sleep: the ranks of a real job collect on CPUs of their own, ours would queue for a few.
    """
    passes = 0

    def stretch(when: str, _: dict) -> None:
        nonlocal passes
        if when == "start":
            passes += 1
            time.sleep(PAUSE)

    total = torch.zeros(1)
    gc.disable()
    gc.callbacks.append(stretch)
    try:
        for step in range(16):
            with watch.phase("step"):
                time.sleep(0.001)
                if due(step):
                    with watch.phase("collect"):
                        gc.collect()
                one = torch.ones(1)
                dist.all_reduce(one)
                total += one
    finally:
        gc.callbacks.remove(stretch)
        gc.enable()
    return [total.item(), passes]


# --- a late rank

LENGTHS = (1, 1, 1, 2, 2, 2, 3, 3, 3, 9, 9, 9)
"""How long the samples of a step are; each unit costs its rank two milliseconds."""


def by_count(lengths: list[int], ranks: int) -> list[list[int]]:
    """Deal a step's samples: equally many to each rank, in the data set's order."""
    share = len(lengths) // ranks
    return [list(range(rank * share, (rank + 1) * share)) for rank in range(ranks)]


def by_length(lengths: list[int], ranks: int) -> list[list[int]]:
    """Deal them so that ranks finish together: the longest first, to whom has the least."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for sample in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        min(dealt, key=lambda own: sum(lengths[i] for i in own)).append(sample)
    return dealt


def late_rank(watch: Watch, deal: Callable) -> list[float]:
    """Train six steps on samples of unequal length; sum a gradient of 228 bytes after each."""
    total = torch.zeros(57)
    for _ in range(6):
        gradient = torch.zeros(57)
        with watch.phase("compute"):
            mine = deal(list(LENGTHS), dist.get_world_size())[dist.get_rank()]
            time.sleep(sum(LENGTHS[sample] for sample in mine) * 0.002)
            for sample in mine:
                gradient[sample] += LENGTHS[sample]
        with watch.phase("all_reduce"):
            dist.all_reduce(gradient)
        total += gradient
    return total.tolist()


# --- overlap on a CPU that is busy

BLOCKS = 32


def overlapped(blocks: list[torch.Tensor], multiply: Callable) -> list[torch.Tensor]:
    """Sum each block's product in the background, while the next block is computed."""
    products, works = [], []
    for block in blocks:
        products.append(multiply(block))
        works.append(dist.all_reduce(products[-1], async_op=True))
    for work in works:
        work.wait()
    return products


def in_turn(blocks: list[torch.Tensor], multiply: Callable) -> list[torch.Tensor]:
    """Compute everything, then sum everything in one call."""
    product = multiply(torch.cat(blocks))
    dist.all_reduce(product)
    return list(product.split([len(block) for block in blocks]))


def overlap(watch: Watch, schedule: Callable) -> float:
    """Multiply 32 blocks of 16 rows by a matrix and sum the products over the ranks, six times."""
    rank = dist.get_rank()
    matrix = (torch.arange(512 * 512).reshape(512, 512) % 7).float()
    rows = torch.arange(16 * BLOCKS * 512).reshape(-1, 512) % 5 + rank
    total = 0.0
    for _ in range(6):
        dist.barrier()
        with watch.phase("step"):
            products = schedule(list(rows.float().split(16)), lambda block: block @ matrix)
        total += sum(product.sum().item() for product in products)
    return total
