"""The programs of the cases that need links of chosen rates; otherwise as in `programs`."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course.lessons.casebook.observe import Watch

# --- shares on unequal paths


def equal_shares(rates: list[float]) -> list[float]:
    """Cut a message into equal shares, one for each path."""
    return [1 / len(rates)] * len(rates)


def shares_by_rate(rates: list[float]) -> list[float]:
    """Cut it so that all paths finish at the same time."""
    return [rate / sum(rates) for rate in rates]


RATES = (10e6, 10e6, 40e6)
"""Bits per second of the paths from rank 0 to ranks 1, 2 and 3."""


def streams(watch: Watch, shares: Callable) -> float:
    """Send 2 MB over three paths of different speed; done when the last share has arrived."""
    rank, length = dist.get_rank(), 500_000
    cuts = [round(share * length) for share in shares(list(RATES))]
    cuts[-1] = length - sum(cuts[:-1])
    tensor = torch.arange(length, dtype=torch.float32)
    parts = tensor.split(cuts)
    for _ in range(2):
        with watch.phase("send"):
            if rank == 0:
                works = [dist.isend(part.contiguous(), i + 1) for i, part in enumerate(parts)]
                for work in works:
                    work.wait()
            else:
                with watch.phase("receive"):
                    dist.recv(parts[rank - 1].clone(), 0)
            dist.barrier()
    return float(sum(cuts))


# --- buffers before every forward


def default_options() -> dict[str, Any]:
    """Leave DDP's options as they are, as the case did."""
    return {}


def without_buffers() -> dict[str, Any]:
    """Let every rank keep its own buffers: right where batches are drawn alike."""
    return {"broadcast_buffers": False}


def buffers(watch: Watch, options: Callable) -> float:
    """Train three steps of a small model with large buffers, over a slow link."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    model.register_buffer("statistics", torch.zeros(200_000))
    with warnings.catch_warnings():  # torch 2.13 announces another name for the option
        warnings.simplefilter("ignore", FutureWarning)
        parallel = torch.nn.parallel.DistributedDataParallel(model, **options())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        batch = torch.randn(16, 8)
        with watch.phase("forward"):
            loss = parallel(batch).square().mean()
        with watch.phase("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return round(sum(p.abs().sum().item() for p in model.parameters()), 4)


# --- the wrong interface

NAMED = "eth1"
"""The interface that a host's name stands for, in its /etc/hosts."""


def as_it_is() -> dict[str, str]:
    """Set nothing, as the case did: gloo takes the interface that the host's name stands for."""
    return {}


def fast_interface() -> dict[str, str]:
    """Name the interface."""
    return {"GLOO_SOCKET_IFNAME": "eth0"}


def interface(watch: Watch, environment: Callable) -> float:
    """Exchange 96 KiB with every other rank, in a group made in the environment that a fix sets.

    What the host's name stands for is looked up here, not by gloo: hosts of a fabric share the
    machine's /etc/hosts.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    chosen = environment()
    os.environ.update({"GLOO_SOCKET_IFNAME": NAMED} | chosen)
    group = dist.new_group()  # gloo reads the variable now
    if "GLOO_SOCKET_IFNAME" not in chosen:
        del os.environ["GLOO_SOCKET_IFNAME"]
    mine = torch.arange(n * 24 * 1024, dtype=torch.float32) + rank
    received = torch.empty_like(mine)
    dist.barrier(group)
    with watch.phase("alltoall"):
        dist.all_to_all_single(received, mine, group=group)
    return received.double().sum().item()


# --- busbw of two hosts

CARD = 40e6
"""Bits per second of each server's card."""
PER_SERVER = 2
"""Ranks of a server; they reach each other without the card."""
LENGTH = 250_000
"""Elements of the tensor: 1 MB."""
_PIECES = 8


def double_tree(tensor: torch.Tensor, group: Any) -> None:
    """Sum as NCCL's Tree does: up and down two trees of servers, half of the tensor on each.

    A server is a leaf in one tree where it is an inner node in the other. Its first rank speaks for
    it. For two or four servers.
    """
    members = dist.get_process_group_ranks(group)
    servers, me = len(members) // PER_SERVER, dist.get_rank()
    server = members.index(me) // PER_SERVER
    speaker = members[server * PER_SERVER]
    others = members[server * PER_SERVER + 1 : (server + 1) * PER_SERVER]
    if me != speaker:
        dist.send(tensor, speaker)
        dist.recv(tensor, speaker)
        return
    received = torch.empty_like(tensor)
    for other in others:
        dist.recv(received, other)
        tensor += received
    parents = {2: (None, 0), 4: (None, 2, 0, 2)}[servers]
    trees = []
    for half, mirrored in zip(tensor.chunk(2), (False, True), strict=True):
        place = servers - 1 - server if mirrored else server
        rank_of = [members[(servers - 1 - i if mirrored else i) * PER_SERVER]
                   for i in range(servers)]  # fmt: skip
        up = None if parents[place] is None else rank_of[parents[place]]
        down = [rank_of[i] for i in range(servers) if parents[i] == place]
        trees.append(_Tree(list(half.chunk(_PIECES)), up, down, tag=100 * mirrored))
    lag = servers - 1
    for step in range(_PIECES + lag):
        for tree in trees:
            tree.reduce(step)
        for tree in trees:
            tree.broadcast(step - lag)
    for tree in trees:
        tree.finish()
    for other in others:
        dist.send(tensor, other)


class _Tree:
    """One server's place in a tree, and its half of the tensor, in pieces."""

    def __init__(self, pieces: list[torch.Tensor], up: int | None, down: list[int], tag: int):
        self.pieces, self.up, self.down, self.tag = pieces, up, down, tag
        self.sent_up: list[dist.Work] = []
        self.sent_down: list[dist.Work] = []
        self.from_below = [self._receive(src, 0) for src in down]
        self.from_above = [] if up is None else self._receive(up, 50)

    def _receive(self, src: int, tag: int) -> list[tuple[torch.Tensor, dist.Work]]:
        rooms = [torch.empty_like(piece) for piece in self.pieces]
        return [(r, dist.irecv(r, src, tag=self.tag + tag + i)) for i, r in enumerate(rooms)]

    def reduce(self, i: int) -> None:
        """Add piece i of those below and pass it on; at the root, send it down."""
        if i >= len(self.pieces):
            return
        for incoming in self.from_below:
            room, work = incoming[i]
            work.wait()
            self.pieces[i] += room
        if self.up is None:
            self._send_down(i)
        else:
            self.sent_up.append(dist.isend(self.pieces[i], self.up, tag=self.tag + i))

    def broadcast(self, i: int) -> None:
        """Take piece i of the sum from above and pass it on."""
        if i < 0 or self.up is None:
            return
        self.sent_up[i].wait()  # what is sent must not be overwritten
        room, work = self.from_above[i]
        work.wait()
        self.pieces[i].copy_(room)
        self._send_down(i)

    def _send_down(self, i: int) -> None:
        piece = self.pieces[i]
        self.sent_down += [dist.isend(piece, child, tag=self.tag + 50 + i) for child in self.down]

    def finish(self) -> None:
        """Wait until all is sent."""
        for work in self.sent_down:
            work.wait()


def ring(tensor: torch.Tensor, group: Any) -> None:
    """Sum around a ring of all ranks, as gloo does."""
    dist.all_reduce(tensor, group=group)


def two_hosts(watch: Watch, all_reduce: Callable) -> list[float]:
    """Sum 1 MB over the ranks of two servers, then over those of all four."""
    n, totals = dist.get_world_size(), []
    for servers in (2, n // PER_SERVER):
        group = dist.new_group(list(range(servers * PER_SERVER)))
        tensor = torch.full((LENGTH,), float(dist.get_rank()))
        dist.barrier()
        if dist.get_rank() < servers * PER_SERVER:
            with watch.phase(f"{servers} servers"):
                all_reduce(tensor, group)
            totals.append(tensor.mean().item())
        dist.barrier()
    return totals
