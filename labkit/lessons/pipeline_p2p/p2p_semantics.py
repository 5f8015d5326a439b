"""What do send, isend and wait really wait for? Asked of the backend, by running it."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

__all__ = ["ARRIVED", "Answer", "after_wait", "ask"]

LATE = 0.15  # seconds that the receiver comes late
LARGE = 1 << 20  # bytes
ARRIVED = "Once wait() has ended (1 MiB), does the receiver have the bytes?"


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, answered by what happened."""

    question: str
    yes: bool
    seconds: float | None = None
    """The time that decided it, where it was a time."""


def ask() -> list[Answer]:
    """Ask all questions; run on two ranks, rank 0 returns the answers."""
    questions = [
        _send_waits,
        _isend_waits,
        _wait_waits,
        _wait_means_received,
        _early_change_is_sent,
        _late_change_is_sent,
        _irecv_fills_before_wait,
        _tags_overtake,
    ]
    answers = []
    for question in questions:
        dist.barrier()
        answers.append(question(dist.get_rank()))
    return answers


def after_wait(answers: list[Answer]) -> float:
    """Return by how many seconds the sender's wait ended before the receiver had the bytes."""
    return next(answer.seconds for answer in answers if answer.question == ARRIVED)


def _send_waits(rank: int) -> Answer:
    """Let the receiver come late and look how long the sender is held."""
    x = torch.zeros(1)
    begin = time.perf_counter()
    if rank == 0:
        dist.send(x, 1)
    else:
        time.sleep(LATE)
        dist.recv(x, 0)
    held = time.perf_counter() - begin
    return Answer("Does send (4 bytes) hold Python until the receiver asks?", held > LATE / 2, held)


def _isend_waits(rank: int) -> Answer:
    x = torch.zeros(1)
    begin = time.perf_counter()
    if rank == 0:
        work = dist.isend(x, 1)
        held = time.perf_counter() - begin
        work.wait()
    else:
        time.sleep(LATE)
        dist.recv(x, 0)
        held = 0.0
    return Answer("Does isend hold Python until the receiver asks?", held > LATE / 2, held)


def _wait_waits(rank: int) -> Answer:
    x = torch.zeros(1)
    held = 0.0
    if rank == 0:
        work = dist.isend(x, 1)
        begin = time.perf_counter()
        work.wait()
        held = time.perf_counter() - begin
    else:
        time.sleep(LATE)
        dist.recv(x, 0)
    return Answer("Does wait() on the isend hold Python until then?", held > LATE / 2, held)


def _wait_means_received(rank: int) -> Answer:
    """Compare when the sender's wait ended with when the receiver had the bytes (one clock)."""
    x = torch.zeros(LARGE // 4)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    ended = torch.tensor([time.perf_counter()], dtype=torch.float64)
    theirs = ended.clone()
    if rank == 0:
        dist.recv(theirs, 1)
    else:
        dist.send(ended, 0)
    early = float(theirs - ended)
    return Answer(ARRIVED, early < 1e-3, early)


def _early_change_is_sent(rank: int) -> Answer:
    return _changed(
        rank, after_wait=False, question="Is a change between isend and wait() sent instead?"
    )


def _late_change_is_sent(rank: int) -> Answer:
    return _changed(rank, after_wait=True, question="Is a change after wait() sent instead?")


def _changed(rank: int, *, after_wait: bool, question: str) -> Answer:
    x = torch.full((LARGE // 4,), 1.0)
    if rank == 0:
        work = dist.isend(x, 1)
        if after_wait:
            work.wait()
        x.fill_(-1.0)
        dist.send(torch.zeros(1), 1, tag=1)
        if not after_wait:  # never twice: a second wait() on a gloo send does not return
            work.wait()
        seen = torch.zeros(1)
        dist.recv(seen, 1)
    else:
        if not after_wait:  # only then: the sender must have changed it before we ask
            dist.recv(torch.zeros(1), 0, tag=1)
        dist.recv(x, 0)
        if after_wait:
            dist.recv(torch.zeros(1), 0, tag=1)
        seen = (x != 1.0).any().float().reshape(1)
        dist.send(seen, 0)
    return Answer(question, bool(seen))


def _irecv_fills_before_wait(rank: int) -> Answer:
    x = torch.full((1,), 5.0)
    filled = torch.zeros(1)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(filled, 1)
    else:
        x.zero_()
        work = dist.irecv(x, 0)
        time.sleep(LATE)
        filled = (x == 5.0).float()
        work.wait()
        dist.send(filled, 0)
    return Answer("Can the buffer of an irecv change before wait()?", bool(filled))


def _tags_overtake(rank: int) -> Answer:
    """Send tag 7 then 9; receive 9, and only then ask for 7."""
    seven, nine = torch.tensor([7.0]), torch.tensor([9.0])
    if rank == 0:
        works = [dist.isend(seven, 1, tag=7), dist.isend(nine, 1, tag=9)]
        for work in works:
            work.wait()
        right = torch.zeros(1)
        dist.recv(right, 1)
    else:
        first, second = torch.zeros(1), torch.zeros(1)
        dist.recv(first, 0, tag=9)
        dist.recv(second, 0, tag=7)
        right = torch.tensor([float(first == 9 and second == 7)])
        dist.send(right, 0)
    return Answer("May a message overtake another one with a different tag?", bool(right))
