"""What the ranks run: a pipeline that trains.

A stage of the pipeline is one layer, y = tanh(x W), with its backward pass written out. After
computing, the rank sleeps until the task's set time is over: it stands for a CPU that waits for its
accelerator. So the stages keep their times on two cores, and the mathematics is real and can be
checked.

Transfers go beside the computing, in queues: one for all, or one for each. As in NCCL's streams
nothing overtakes within a queue: a batch starts when all that it sends is there, and the next is
looked at when it is done. So one whose data come late holds up all behind it. A send keeps its
queue until the receiver has the bytes, as an NCCL kernel keeps its stream: the receiver sends a
receipt. gloo alone would let go once the kernel's socket buffer holds them.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.comm.collectives import shared_memory
from course.lessons.pipeline_p2p import schedules
from course.lessons.pipeline_p2p.schedules import Batch, Channel, Costs, Program, Task, Transfer
from labkit import device
from labkit.measure import timing


@dataclass(frozen=True, slots=True)
class Workload(Costs):
    """What is trained, and how long it takes."""

    forward: float = 0.0125
    backward: float = 0.025
    rows: int = 260  # rows of a micro-batch
    width: int = 192  # columns; every stage's weights are width x width

    @property
    def nbytes(self) -> int:
        """Return the bytes of an activation (float32)."""
        return 4 * self.rows * self.width

    def micro_batch(self, number: int) -> torch.Tensor:
        """Make the input of a micro-batch."""
        generator = torch.Generator().manual_seed(number)
        return torch.rand(self.rows, self.width, generator=generator)

    def weights(self, stage: int) -> torch.Tensor:
        """Make the first weights of a stage."""
        generator = torch.Generator().manual_seed(1000 + stage)
        return (torch.rand(self.width, self.width, generator=generator) - 0.5) / self.width**0.5


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What a rank brings back from one training step."""

    seconds: float
    tasks: list[tuple[Task, float, float]]
    """(task, begin, end) on the kernel's clock, which all ranks of one machine share."""
    transfers: dict[Transfer, tuple[float, float]]
    """When this rank started and finished its end of each transfer."""
    gradients: torch.Tensor


class Stage:
    """One layer, its saved activations and its gradient."""

    def __init__(self, number: int, *, work: Workload) -> None:
        self.weights = work.weights(number)
        self.gradients = torch.zeros_like(self.weights)
        self._work = work
        self._saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def compute(self, task: Task, arrived: torch.Tensor | None) -> torch.Tensor:
        """Run a task on what arrived: an activation for F, a gradient for B; None at an end."""
        until = time.perf_counter() + self._work.seconds(task)
        pass_through = self._forward if task.kind == "F" else self._backward
        result = pass_through(task.micro_batch, arrived)
        time.sleep(max(0.0, until - time.perf_counter()))
        return result

    def _forward(self, k: int, x: torch.Tensor | None) -> torch.Tensor:
        x = self._work.micro_batch(k) if x is None else x
        y = torch.tanh(x @ self.weights)
        self._saved[k] = (x, y)
        return y

    def _backward(self, k: int, dy: torch.Tensor | None) -> torch.Tensor:
        x, y = self._saved.pop(k)
        dz = (y if dy is None else dy) * (1 - y * y)  # at the end: the gradient of sum(y**2) / 2
        self.gradients += x.T @ dz
        return dz @ self.weights.T


def work_in_line(
    entries: Sequence[Sequence[Transfer]],
    slot: Callable[[Transfer], Future],
    *,
    like: torch.Tensor,
    tag: int,
    times: dict[Transfer, tuple[float, float]],
) -> None:
    """Work through one queue of this rank: an entry begins when the one before it has ended.

    A slot holds what a transfer sends once it is computed, or what has come by it. The messages
    bear `tag`, their receipts the next one. Lesson 05 shows this function, for the learner to
    change.
    """
    rank = dist.get_rank()
    receipts = []
    for entry in entries:  # one transfer, or a batch of them
        leaving = {t: slot(t).result() for t in entry if t.src == rank}  # waits for its task
        arriving = {t: torch.empty_like(like) for t in entry if t.dst == rank}
        begin = time.perf_counter()
        works = {t: dist.irecv(tensor, t.src, tag=tag) for t, tensor in arriving.items()}
        works |= {t: dist.isend(tensor, t.dst, tag=tag) for t, tensor in leaving.items()}
        for t, work in works.items():  # receives first: their senders wait for receipts
            work.wait()
            receipt = torch.ones(1, dtype=torch.uint8)
            if t in leaving:  # a send ends when its receiver says so
                dist.recv(receipt, t.dst, tag=tag + 1)
            else:  # waited for at the end: its sender may still wait for the rest of its batch
                receipts.append((dist.isend(receipt, t.src, tag=tag + 1), receipt))
            times[t] = (begin, time.perf_counter())
        for t, tensor in arriving.items():  # as NCCL's: a batch is done as a whole
            slot(t).set_result(tensor)
    for work, _ in receipts:
        work.wait()


@dataclass(frozen=True, slots=True)
class Shared:
    """Where one message goes: memory that all ranks see, and two pipes."""

    place: torch.Tensor
    bell: int  # the sender wakes the receiver
    receipt: int  # the receiver says that it has taken the message


@contextmanager
def puts(
    every: Sequence[Transfer], like: torch.Tensor, *, waits: bool
) -> Iterator[Callable[..., None]]:
    """Yield what does `work_in_line`'s work by puts, between ranks of one machine.

    All ranks see one memory: a place like `like` for each message. Whoever made a message writes it
    there, rings, and goes on; if it `waits`, once the receiver has taken it.
    """
    places, ends = shared_memory((len(every), *like.shape), pipes=2 * len(every))
    try:
        parts = zip(places, ends[::2], ends[1::2], strict=True)
        shared = {transfer: Shared(*part) for transfer, part in zip(every, parts, strict=True)}
        yield partial(_put_in_line, shared=shared, waits=waits)
    finally:
        for end in ends:
            os.close(end)


def _put_in_line(
    entries: Sequence[Sequence[Transfer]],
    slot: Callable[[Transfer], Future],
    *,
    times: dict[Transfer, tuple[float, float]],
    shared: Mapping[Transfer, Shared],
    waits: bool,
    **unused: Any,
) -> None:
    """Work through one queue of this rank as `work_in_line` does, by puts."""
    rank = dist.get_rank()
    for entry in entries:
        leaving = {t: slot(t).result() for t in entry if t.src == rank}  # waits for its task
        arriving = [t for t in entry if t.dst == rank]
        begin = time.perf_counter()
        for t, tensor in leaving.items():
            shared[t].place.copy_(tensor)
            os.write(shared[t].bell, b"!")
        for t in arriving:
            os.read(shared[t].bell, 1)
            times[t] = (begin, time.perf_counter())
            os.write(shared[t].receipt, b"!")
        for t in leaving:
            if waits:
                os.read(shared[t].receipt, 1)
            times[t] = (begin, time.perf_counter())
        for t in arriving:  # as NCCL's: a batch is done as a whole
            slot(t).set_result(shared[t].place)


def work_through(
    entries: Sequence, slots: Mapping[Transfer, Future], in_line: Callable[..., None], **given: Any
) -> None:
    """Work through one queue, on a thread of its own; hand an error to whoever waits for a slot."""
    try:
        in_line(entries, slots.__getitem__, **given)
    except BaseException as error:
        for slot in slots.values():
            if not slot.done():
                slot.set_exception(error)
        raise


Run = tuple[Sequence[Program], Channel, Workload]
"""Each rank's program, how its transfers are ordered, and what is trained."""


def train(runs: Sequence[Run], in_line: Callable[..., None] = work_in_line) -> list[StepNotes]:
    """Train a step of each run on this rank, one stage per rank. Call it through `launch`.

    `in_line` works through a queue. A step without computing comes first, and connects the ranks.
    """
    ranks, channel, work = runs[0]
    _step(ranks, channel, replace(work, forward=0.0, backward=0.0), in_line)
    return [_step(*run, in_line) for run in runs]


def _queues(ranks: Sequence[Program], channel: Channel) -> dict[int, list]:
    """Return the batches of this rank's queues; all ranks number the queues alike."""
    every = _every_transfer(ranks)
    queued = Channel.ORDERED if channel is Channel.PUT else channel  # puts have one queue as well
    numbers = {queued.lane(transfer): number for number, transfer in enumerate(every)}
    queues = defaultdict(list)
    for batch in (step for step in ranks[dist.get_rank()] if isinstance(step, Batch)):
        for lane, transfers in queued.lanes(batch):
            queues[numbers[lane]].append(transfers)
    return queues


def _every_transfer(ranks: Sequence[Program]) -> list[Transfer]:
    return sorted({transfer for program in ranks for transfer in schedules.transfers_of(program)})


def _step(
    ranks: Sequence[Program], channel: Channel, work: Workload, in_line: Callable[..., None]
) -> StepNotes:
    """Go through the program: take what a task needs, compute, put what it made."""
    program, stage = ranks[dist.get_rank()], Stage(dist.get_rank(), work=work)
    transfers = schedules.transfers_of(program)
    into, out_of = {t.use: t for t in transfers}, {t.task: t for t in transfers}
    slots: dict[Transfer, Future] = {transfer: Future() for transfer in transfers}
    queues, like = _queues(ranks, channel), torch.empty(work.rows, work.width)
    done, times = [], {}
    if channel in (Channel.WAITING_PUT, Channel.PUT):
        waits = channel is Channel.WAITING_PUT
        carrier = puts(_every_transfer(ranks), like, waits=waits)
    else:
        carrier = nullcontext(in_line)
    with carrier as carry:
        dist.barrier()
        start = time.perf_counter()
        pool = ThreadPoolExecutor(max_workers=max(1, len(queues)))
        running = [  # a queue's number is its messages' tag: none is taken for another queue's
            pool.submit(work_through, entries, slots, carry, like=like, tag=2 * n, times=times)
            for n, entries in queues.items()
        ]
        for task in (step for step in program if isinstance(step, Task)):
            arrived = slots[into[task]].result() if task in into else None
            begin = time.perf_counter()
            result = stage.compute(task, arrived)
            done.append((task, begin, time.perf_counter()))
            if task in out_of and not slots[out_of[task]].done():  # done: the queue has failed
                slots[out_of[task]].set_result(result)
        for queue in running:
            queue.result()
        pool.shutdown()
        seconds = time.perf_counter() - start
    return StepNotes(seconds, done, times, stage.gradients)


Way = Callable[[int, dict[int, torch.Tensor]], Mapping[int, torch.Tensor]]
"""Moves a rank's messages, by number; returns what arrived, as far as this rank can see it."""


def copies(rank, tensors):
    """Copy all from this process, which reaches the other ranks' GPUs."""
    senders = tensors if rank == 0 else {}
    return {k: tensor.to(torch.device("cuda", 1 + k % 2)) for k, tensor in senders.items()}


def sends(rank, tensors):
    """Send one after the other."""
    for k, tensor in tensors.items():
        if rank == 0:
            dist.send(tensor, 1 + k % 2)
        else:
            dist.recv(tensor, 0)
    return tensors


def one_batch(rank, tensors):
    """Give all to one call."""
    for_rank_0 = [dist.P2POp(dist.isend, t, 1 + k % 2) for k, t in tensors.items()]
    for_others = [dist.P2POp(dist.irecv, t, 0) for t in tensors.values()]
    for work in dist.batch_isend_irecv(for_others if rank else for_rank_0):
        work.wait()
    return tensors


WAYS: dict[str, Way] = {"copies": copies, "sends": sends, "one batch": one_batch}
"""The thread's three, as the lesson's cell has them."""


def ten_in_turn(way: Way, numel: int) -> tuple[list[float], bool]:
    """Move ten messages from rank 0 to ranks 1 and 2 in turn, six times; the first is not timed.

    Returns the seconds of five calls, and whether each message had its values when it arrived.
    """
    rank = dist.get_rank()
    own = [k for k in range(10) if rank in (0, 1 + k % 2)]
    with device():
        tensors = {k: torch.full((numel,), float(k if rank == 0 else -1)) for k in own}
    right = all(tensor.eq(k).all().item() for k, tensor in way(rank, tensors).items())
    return timing.time_calls(lambda: way(rank, tensors), warmup=0, iters=5), right
