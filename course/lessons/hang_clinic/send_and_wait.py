"""What send, isend and wait wait for: small questions for two ranks, asked of the backend."""

import time
from functools import partial

import torch
import torch.distributed as dist

LATE = 0.15  # seconds that the receiver comes late
LARGE = 1 << 20  # bytes


def ask() -> dict[str, bool]:
    """Ask the backend what its calls wait for, by running them on two ranks."""
    questions = {
        "Does send (4 bytes) hold Python until the receiver asks?": partial(_held, by="send"),
        "Does isend hold Python until the receiver asks?": partial(_held, by="isend"),
        "Does wait() on the isend hold Python until then?": partial(_held, by="wait"),
        "Is a change between isend and wait() sent instead?": partial(_changed, waits=False),
        "Is a change after wait() sent instead?": partial(_changed, waits=True),
        "Can the buffer of an irecv change before wait()?": _irecv_fills,
        "May a message overtake another one with a different tag?": _tags_overtake,
    }
    answers = {}
    for question, experiment in questions.items():
        dist.barrier()
        seen = torch.tensor([float(experiment(dist.get_rank()))])
        dist.all_reduce(seen)  # one of both ranks can see it
        answers[question] = bool(seen)
    return answers


def _held(rank: int, *, by: str) -> bool:
    """Let the receiver come late and look how long a call holds the sender."""
    x = torch.zeros(1)
    if rank == 1:
        time.sleep(LATE)
        dist.recv(x, 0)
        return False
    begin = time.perf_counter()
    work = dist.send(x, 1) if by == "send" else dist.isend(x, 1)
    issued = time.perf_counter()
    if work is not None:
        work.wait()
    held = time.perf_counter() - issued if by == "wait" else issued - begin
    return held > LATE / 2


def _changed(rank: int, *, waits: bool) -> bool:
    """Change a buffer after isend, before or after wait(); look what arrives."""
    x, note = torch.full((LARGE // 4,), 1.0), torch.zeros(1)
    if rank == 0:
        work = dist.isend(x, 1)
        if waits:
            work.wait()
        x.fill_(-1.0)
        dist.send(note, 1, tag=1)
        if not waits:  # never twice: a second wait() on a gloo send does not return
            work.wait()
        return False
    if not waits:  # only then: the sender must have changed it before we ask
        dist.recv(note, 0, tag=1)
    dist.recv(x, 0)
    if waits:
        dist.recv(note, 0, tag=1)
    return bool((x != 1.0).any())


def _irecv_fills(rank: int) -> bool:
    x = torch.full((1,), 5.0)
    if rank == 0:
        dist.send(x, 1)
        return False
    work = dist.irecv(x.zero_(), 0)
    time.sleep(LATE)
    filled = bool(x == 5.0)
    work.wait()
    return filled


def _tags_overtake(rank: int) -> bool:
    """Send tag 7 then 9; receive 9, and only then ask for 7."""
    if rank == 0:
        for work in [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (7, 9)]:
            work.wait()
        return False
    received = torch.zeros(2)
    for place, tag in enumerate((9, 7)):
        dist.recv(received[place], 0, tag=tag)
    return received.tolist() == [9.0, 7.0]
