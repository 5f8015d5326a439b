"""What sends and waits do: programs for two ranks, whose answers differ from backend to backend.

They can be asked of NCCL on a single GPU, which both ranks share (`labkit.ranks.one_gpu`). What
they tell is order and waiting; seconds tell only who was held, never how fast a link is.
"""

import time
from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist

from course.gpus import NAME, settle
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks import one_gpu
from labkit.ranks.errors import LaunchTimeout
from labkit.ranks.launcher import launch

LATE = 0.3
"""Seconds by which a receiver comes late."""
SMALL, LARGE = 1 << 10, 1 << 28
"""Bytes: one message fits into NCCL's buffer between two ranks (without NVLink 8 x 128 KiB for each
channel), one does not."""


def _order_of_sends(device: str = "cuda") -> dict[int, float]:
    """Send 1 under tag 1, then 2 under tag 2; ask for tag 2 first. Return what came, by tag.

    Gloo goes by the tag. NCCL has no tags: what is sent first meets what is asked for first.
    """
    rank = dist.get_rank()
    box = {tag: torch.full((1,), 0.0 if rank else float(tag), device=device) for tag in (1, 2)}
    if rank == 0:
        works = [dist.isend(box[tag], 1, tag=tag) for tag in (1, 2)]
    else:
        works = [dist.irecv(box[tag], 0, tag=tag) for tag in (2, 1)]
    for work in works:
        work.wait()
    return {tag: number.item() for tag, number in box.items()}


def _late_receiver(nbytes: int, device: str = "cuda") -> dict[str, float]:
    """Let rank 1 receive late; return the seconds for which each call of rank 0 holds Python."""
    x, rank = torch.zeros(nbytes // 4, device=device), dist.get_rank()
    _connect(device)
    if rank == 1:
        time.sleep(LATE)
        dist.recv(x, 0)
        settle(device)
        return {}
    moments = [time.perf_counter()]
    work = dist.isend(x, 1)
    moments.append(time.perf_counter())
    work.wait()
    moments.append(time.perf_counter())
    settle(device)
    moments.append(time.perf_counter())
    names = ("isend", "wait", "synchronize")
    return {name: b - a for name, a, b in zip(names, moments, moments[1:], strict=False)}


def crossed_sends(nbytes: int, device: str = "cuda") -> None:
    """Send to each other first, then receive.

    On gloo a send waits for its receiver: a deadlock, whatever the size. On NCCL a send ends when
    its bytes are in the buffer between the two: small messages slip through, large ones hang.
    """
    mine, theirs = (torch.zeros(nbytes // 4, device=device) for _ in range(2))
    partner = 1 - dist.get_rank()
    _connect(device)
    dist.send(mine, partner)
    dist.recv(theirs, partner)
    settle(device)


def measure(
    sizes: Sequence[int] = (SMALL, LARGE), *, device: str = "cuda", timeout: float = 20.0
) -> list[Record]:
    """Ask all of it: of NCCL on one GPU, or of gloo with ``device="cpu"``.

    The sends cross with each of `sizes` (bytes), the receiver is late for the last. What hangs
    takes all of the `timeout` seconds.

    Returns:
        Records without samples: no time here is a link's. `values`: ``answer``, and for what hung
        ``calls``, by rank the calls that the flight recorder holds.

    Raises:
        ValueError: Ranks cannot share a GPU here; says why.
    """
    where = {"share_gpu": True} if device == "cuda" else {"backend": "gloo"}
    on_two = partial(launch, world_size=2, timeout=timeout, **where)
    origin = Provenance.here(backend=one_gpu.BACKEND if device == "cuda" else "gloo")

    def record(case: str, answer: str, **values: object) -> Record:
        params = {"device": device, "shared": True, "world_size": 2}
        values = {"answer": answer} | values
        return Record(NAME, case, params, [], Tier.MEASURED, origin, values=values)

    came = on_two(_order_of_sends, device)[1]
    told = ", ".join(f"tag {tag} got {number:g}" for tag, number in came.items())
    found = [record("1 and 2 sent, tag 2 asked for first", told)]
    held = on_two(_late_receiver, sizes[-1], device)[0]
    told = ", ".join(f"{call} {1e3 * seconds:.3g} ms" for call, seconds in held.items())
    found.append(record(f"a receiver {LATE} s late: Python is held in", told, held=held))
    for nbytes in sizes:
        case = f"each sends {nbytes / 1e6:.3g} MB first, then receives"
        try:
            on_two(crossed_sends, nbytes, device)
            found.append(record(case, "ends"))
        except LaunchTimeout as hang:
            calls = [[str(call) for call in rank.entered[-4:]] for rank in hang.case.ranks]
            found.append(record(case, "hangs", calls=calls))
    return found


def table(records: Sequence[Record]) -> Table:
    """Lay the answers out."""
    rows = [[r.case, r.values["answer"]] for r in records if "answer" in r.values]
    marks = {r.provenance.backend: None for r in records}
    return Table(["question", "answer"], rows, title=", ".join(marks))


def _connect(device: str) -> None:
    """Exchange a message each way: the first one makes the connection, and would be timed with it.

    The ranks leave together.
    """
    rank, note = dist.get_rank(), torch.zeros(1, device=device)
    for src in (0, 1):
        (dist.send if rank == src else dist.recv)(note, 1 - rank)
    settle(device)
    dist.all_reduce(torch.zeros(1))
