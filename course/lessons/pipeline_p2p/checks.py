"""The checks of lesson 05: a trace, a program that hangs, receives posted early, a mailbox."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from course import checking, memory
from course.checking import CheckFailed
from course.lessons.pipeline_p2p import experiment
from course.lessons.pipeline_p2p.schedules import (
    Batch,
    Channel,
    InvalidProgram,
    Program,
    Task,
    Transfer,
    activation,
    check_programs,
    one_f_one_b,
    programs,
    transfers_of,
)
from course.lessons.pipeline_p2p.simulator import Costs, find_deadlock, simulate
from labkit.measure import records
from labkit.measure.calls import ANY_SOURCE, Call
from labkit.measure.records import Record
from labkit.ranks.errors import LaunchTimeout
from labkit.ranks.launcher import launch

PATIENCE = 10.0
"""Seconds for all that one call of `_in_time` asks of a function; a right one needs a tenth."""


def _in_time(program: Callable, *args: Any, meaning: str) -> Any:
    """Run a program in a process of its own, which can be ended: a kernel cannot."""
    try:
        return launch(program, *args, world_size=1, timeout=PATIENCE)[0]
    except LaunchTimeout as hang:
        line = hang.case.ranks[0].line
        raise CheckFailed(
            f"an answer within {PATIENCE:g} s",
            f"none yet; it was in `{line.source}`" if line else "none yet",
            meaning,
        ) from None


# 5.1

LATE_RANK = 2


def unnamed_trace() -> Record:
    """Load the recorded step in which one rank posts its receives late."""
    found = records.load(experiment.RECORDING, recorded=True, experiment=experiment.NAME)
    return next(record for record in found if record.case == str(experiment.UNNAMED))


def check_trace(answer: tuple[int, str]) -> None:
    """Judge 5.1: who posts its receives late, and one transfer that waits for that."""
    with checking.exercise("5.1", par="the rank and one transfer") as verdict:
        answer = checking.answer(answer, (tuple, list), what='(rank, transfer), like (0, "F1 0→1")')
        rank, transfer = (*answer, None, None)[:2]
        if rank != LATE_RANK:
            raise CheckFailed(
                "the rank that posts its receives late",
                f"rank {rank}",
                "that one waits, too. Follow the chain: the input that an idle rank wants stands "
                "behind a transfer; whose other end is not there yet?",
            )
        seen = experiment.step(unnamed_trace())
        done = {task: at.end for _, task, at in seen.tasks}
        held = {str(t): at.begin - done[t.task] for t, at in seen.transfers if t.dst == LATE_RANK}
        name = str(transfer).strip().replace("->", "→")
        if held.get(name, 0.0) < 0.005:
            raise CheckFailed(
                "a transfer that rank takes late, named as in the queue, like F1 0→1",
                repr(transfer),
                "its data must lie ready for more than 5 ms before it moves, and it must go to the "
                "late rank: compare the end of its task with the begin of its arrow",
            )
        verdict.reached = f"rank {rank}, {name}"


# 5.3


def hanging_programs() -> tuple[Program, ...]:
    """Return what a colleague wrote: 1F1B, every send and receive on its own."""
    return programs(one_f_one_b(stages=3, micro_batches=4), batched=False)


def check_repair(repair: Callable) -> None:
    """Judge 5.3: blocking sends and receives that end, with as few ranks changed as possible."""
    with checking.exercise("5.3", par="one rank's program changed") as verdict:
        hangs = hanging_programs()
        mended = _in_time(repair, hangs, meaning="a loop in your function does not end")
        checking.answer(mended, (tuple, list), what="the programs of all ranks")
        for rank, (steps, before) in enumerate(zip(mended, hangs, strict=True)):
            _judge_mended(tuple(steps), before, rank)
        mended = tuple(map(tuple, mended))
        if words := find_deadlock(mended, channel=Channel.BLOCKING):
            raise CheckFailed(
                "programs that end with blocking sends and receives",
                f"a deadlock:\n{words}",
                "of two neighbours that both send first, one must receive first: which ranks can "
                "do so without changing their neighbours on the other side?",
            )
        changed = sum(a != b for a, b in zip(mended, hangs, strict=True))
        checking.at_most(
            changed, 1, what="ranks whose program changed", unit="ranks",
            meaning="every neighbour of a rank that receives first may go on sending first",
        )  # fmt: skip
        verdict.reached = f"{changed} changed"


def _judge_mended(steps: Program, before: Program, rank: int) -> None:
    if any(isinstance(step, Batch) and len(step.transfers) > 1 for step in steps):
        raise CheckFailed(
            f"rank {rank}: one transfer at a time",
            "a batch of two",
            "batches are a cure, but not this one: your colleague has blocking calls only",
        )
    tasks = [step for step in steps if isinstance(step, Task)]
    if tasks != [step for step in before if isinstance(step, Task)] or sorted(
        transfers_of(steps)
    ) != sorted(transfers_of(before)):
        raise CheckFailed(
            f"rank {rank}: the same tasks in the same order, and the same transfers",
            " | ".join(map(str, steps))[:300],
            "only the order of sends and receives may change",
        )
    place = {step: number for number, step in enumerate(steps)}
    for transfer in transfers_of(steps):
        at = place[Batch((transfer,))]
        if transfer.src == rank and at < place[transfer.task]:
            raise CheckFailed(
                f"rank {rank} sends {transfer} after it computed it", "before", "it is not there"
            )
        if transfer.dst == rank and at > place[transfer.use]:
            raise CheckFailed(
                f"rank {rank} receives {transfer} before it computes {transfer.use}",
                "after",
                "the task needs its input",
            )


# 5.2

PLANS = ((2, 4), (3, 7), (4, 8), (5, 6), (3, 2), (2, 1), (1, 3))
"""Stages and micro-batches."""


def check_inference_program(program: Callable) -> None:
    """Judge 5.2: forward passes through one ordered channel, as fast as without order."""
    with checking.exercise("5.2", par="at most 1.15 times the time without any order") as verdict:
        written = _in_time(
            lambda: [[program(r, stages=s, micro_batches=m) for r in range(s)] for s, m in PLANS],
            meaning="a loop in your function does not end",
        )
        worst = 0.0
        for (stages, micro_batches), ranks in zip(PLANS, written, strict=True):
            where = f"{stages} stages, {micro_batches} micro-batches"
            worst = max(worst, _judge_programs(ranks, micro_batches, where))
        verdict.reached = f"{worst:.2f} times"


def _judge_programs(ranks: list, micro_batches: int, where: str) -> float:
    for rank, steps in enumerate(ranks):
        checking.answer(steps, (list, tuple), what=f"{where}: the steps of rank {rank}")
        _judge_steps(steps, rank, micro_batches, where)
    ranks = [tuple(steps) for steps in ranks]
    try:
        check_programs(ranks)
    except InvalidProgram as problem:
        raise CheckFailed(
            f"{where}: every send has its receive",
            str(problem)[:300],
            "rank 0 receives nothing, the last rank sends nothing, and both ends of a transfer "
            "name it in the same way",
        ) from None
    if words := find_deadlock(ranks, channel=Channel.ORDERED):
        raise CheckFailed(
            f"{where}: a program that ends",
            f"a deadlock:\n{words}",
            "two neighbours must take the transfers between them in the same order, and a receive "
            "that stands too far ahead holds up the send that its data depend on",
        )
    costs = Costs(forward=1.0, backward=2.0, nbytes=0.9, rate=1.0)
    plain = _receive_compute_send(len(ranks), micro_batches)
    free = simulate(plain, costs, channel=Channel.TAGGED).seconds
    ratio = simulate(ranks, costs, channel=Channel.ORDERED).seconds / free
    checking.at_most(
        ratio, 1.15, what=f"{where}: time over the time without order", unit="times",
        meaning=_why_slow(ranks),
    )  # fmt: skip
    return ratio


def _judge_steps(steps: Sequence, rank: int, micro_batches: int, where: str) -> None:
    for step in steps:
        if not isinstance(step, Task | Batch) or (
            isinstance(step, Batch) and not all(isinstance(t, Transfer) for t in step.transfers)
        ):
            raise CheckFailed(
                f"{where}: steps of rank {rank}: Task or Batch((transfer, ...))",
                repr(step)[:200],
                "a transfer goes into a batch, also a single one: Batch((a,))",
            )
    tasks = [step for step in steps if isinstance(step, Task)]
    wanted = [Task("F", rank, k) for k in range(micro_batches)]
    if tasks != wanted:
        raise CheckFailed(
            f"{where}: rank {rank} computes {', '.join(map(str, wanted))}",
            ", ".join(map(str, tasks)) or "nothing",
            "every rank computes each micro-batch of its own stage once, in order",
        )
    arrived, made = set(), set()
    for step in steps:
        if isinstance(step, Batch):
            for transfer in step.transfers:
                if transfer.dst == rank:
                    arrived.add(transfer.use)
                elif transfer.task not in made:
                    raise CheckFailed(
                        f"{where}: rank {rank} sends {transfer} after it computed it",
                        "the send stands before its task in the program",
                        "a batch waits for what it sends; put it after the task",
                    )
        elif rank and step not in arrived:
            raise CheckFailed(
                f"{where}: rank {rank} receives the input of {step} before it computes it",
                "no receive for it stands before the task",
                "post the receive earlier in the program, by one or two tasks",
            )
        else:
            made.add(step)


def _why_slow(ranks: Sequence[Program]) -> str:
    """Say what holds up programs that are right and slow, from where their receives stand."""
    leads, together = [], False
    for rank, steps in enumerate(ranks):
        computed = 0
        for step in steps:
            if isinstance(step, Task):
                computed += 1
                continue
            coming = [t.use.micro_batch for t in step.transfers if t.dst == rank]
            leads += [k - computed for k in coming if k > 1]
            together |= 0 < len(coming) < len(step.transfers)
    if min(leads, default=9) == 0 and not together:
        return (
            "each receive stands right before the task that needs it, behind the send of the task "
            "before, so nothing moves while the rank computes: queue it earlier, in front of a "
            "task that does not need it"
        )
    if min(leads, default=9) == 0:
        return (
            "one batch with the send of F_k and the receive of F_(k+1) starts only when F_k is "
            "computed, and then F_(k+1) waits for it: receive one task earlier still"
        )
    if max(leads, default=0) > 1:
        return (
            f"a receive stands {max(leads) + 1} tasks ahead of its use: until its data are "
            "computed, the sends behind it in the queue wait, and with them the next rank"
        )
    if not together:
        return (
            "a send and a receive stand one after the other: started in one batch they run at "
            "once, since a card sends and receives at the same time"
        )
    return (
        "while a rank computes F_k, its queue should move F_(k+1) in and F_(k-1) out; find the "
        "transfer that stands behind one which cannot start yet"
    )


def _receive_compute_send(stages: int, micro_batches: int) -> list[Program]:
    def of(rank: int, k: int) -> list:
        into = [Batch((activation(rank - 1, k),))] if rank else []
        out = [Batch((activation(rank, k),))] if rank < stages - 1 else []
        return [*into, Task("F", rank, k), *out]

    return [tuple(s for k in range(micro_batches) for s in of(r, k)) for r in range(stages)]


# 5.4

CONSUMER, SENDER = 1, 2
_KEPT: list = []  # what is under way stays, until the rank's process ends


def check_consume(consume: Callable) -> None:
    """Judge 5.4 on real ranks: values in order of use, tags, and buffers posted early, bounded."""
    par = "as many receives under way as there are credits, from the start to the end"
    with checking.exercise("5.4", par=par) as verdict:
        for credits, count in ((1, 3), (2, 10), (3, 5), (4, 9), (3, 1), (2, 0)):
            seen = checking.on_ranks(_exchange, consume, count, credits, world_size=3)[CONSUMER]
            _judge_consumer(seen, _wanted(count), credits)
        verdict.reached = "that"


def _wanted(count: int) -> list[int]:
    """Make tags that are neither consecutive nor sorted."""
    return [(5 * k + 3) % 11 + 1 for k in range(count)]


def _like() -> torch.Tensor:
    return torch.empty(2, 3000, dtype=torch.int32)


@dataclass(slots=True)
class _Seen:
    """What the consumer did."""

    used: list[tuple[int, Any, tuple[Call, ...]]]
    """Per use: the tag, what the tensor held (a number, or words), and the calls so far."""
    calls: tuple[Call, ...] = ()
    peak: int = 0
    """Bytes of buffers, at most at one time."""
    hangs: bool = False
    error: Exception | None = None


def _exchange(consume: Callable, count: int, credits: int) -> _Seen | None:
    tags = _wanted(count)
    if dist.get_rank() == CONSUMER:
        return _consumer(consume, tags, credits)
    # The sender's order is not the receiver's: backwards, within what its credits allow. The other
    # rank sends with the same tags what nobody shall take.
    order = [t for k in range(0, count, credits) for t in tags[k : k + credits][::-1]]
    sign = 1 if dist.get_rank() == SENDER else -1
    time.sleep(0.05)  # late: a buffer that was not waited for is still empty
    for tag in order:
        _KEPT.append(torch.full_like(_like(), sign * tag))
        _KEPT.append(dist.isend(_KEPT[-1], CONSUMER, tag=tag))
    return None


def _consumer(consume: Callable, tags: list[int], credits: int) -> _Seen:
    seen, log = _Seen([]), memory.BufferLog()

    def use(tag: int, tensor: torch.Tensor) -> None:
        calls = tuple(log.calls)
        held = "no tensor" if not isinstance(tensor, torch.Tensor) else tensor.clone()
        if isinstance(held, torch.Tensor):
            values = held.unique().tolist()
            held = values[0] if len(values) == 1 and held.shape == _like().shape else "a mixture"
        seen.used.append((tag, held, calls))

    def run() -> None:
        try:
            like = _like()
            with memory.watch() as made, log:
                consume(list(tags), use, src=SENDER, like=like, credits=credits)
            seen.peak = made.peak
        except Exception as error:
            seen.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2.5)
    return replace(seen, calls=tuple(log.calls), hangs=thread.is_alive())


def _judge_consumer(seen: _Seen, wanted: list[int], credits: int) -> None:
    if seen.error is not None:
        raise seen.error
    where = f"{len(wanted)} messages, {credits} credits"
    _judge_calls(seen, wanted, where)
    used = [(tag, held) for tag, held, _ in seen.used]
    if seen.hangs:
        raise CheckFailed(
            f"{where}: all messages used within 2.5 s",
            f"{len(used)} used; it waits for ever",
            "before each wait, the message that you wait for must have its own posted buffer, and "
            "the sender only sends into buffers that are posted",
        )
    if used != [(tag, tag) for tag in wanted]:
        raise CheckFailed(
            f"{where}: used {[(tag, tag) for tag in wanted]} (tag, what the tensor holds)",
            repr(used),
            "`use` wants the messages in the order of `wanted`, each with its own tensor, whatever "
            "arrives first",
        )
    _judge_credits(seen, wanted, credits, where)


def _judge_calls(seen: _Seen, wanted: list[int], where: str) -> None:
    """Look at single calls: their kind, source, type, tag and buffer."""
    for call in seen.calls:
        if call.kind != "recv":
            raise CheckFailed(
                f"{where}: receives only",
                f"a call of {call.kind}",
                "the other ranks do not make this call: it would wait for them for ever",
            )
        if call.peer != SENDER:
            source = "any rank" if call.peer == ANY_SOURCE else f"rank {call.peer}"
            raise CheckFailed(
                f"{where}: receives from rank {SENDER} (src)",
                f"a receive from {source}",
                "others may send with the same tags: give irecv the source",
            )
        if call.dtype != _like().dtype or call.nbytes != _like().nbytes:
            raise CheckFailed(
                f"{where}: buffers like `like`: {_like().dtype}, {_like().nbytes} bytes",
                f"{call.dtype}, {call.nbytes} bytes",
                "the buffer must have the message's shape and type: torch.empty_like(like)",
            )
        if call.tag not in wanted:
            raise CheckFailed(
                f"{where}: receives with the tags of `wanted`",
                f"tag {call.tag}",
                "each message has its own tag: give it to irecv; without one it is 0",
            )
        if call.touched:
            again = call.touched.startswith("c10d")
            raise CheckFailed(
                f"{where}: a buffer of its own for each receive, left alone until its wait",
                f"the buffer of tag {call.tag} was touched by {call.touched} before",
                "two receives share one buffer: whatever comes last overwrites it"
                if again
                else "until its wait has ended a buffer belongs to the receive",
            )


def _judge_credits(seen: _Seen, wanted: list[int], credits: int, where: str) -> None:
    """Look at when buffers were posted and waited for."""
    for place, (tag, _, calls) in enumerate(seen.used):
        posted = len(calls)
        if posted - place - 1 > credits:
            raise CheckFailed(
                f"{where}: at most {credits} receives under way",
                f"{posted - place - 1}",
                "every posted buffer is memory that a sender may fill: post the next one "
                "only when one has arrived",
            )
        waited_at = next(call.waited for call in calls if call.tag == tag)
        if waited_at is None:
            raise CheckFailed(
                f"{where}: a wait on the receive of tag {tag} before its use",
                "none",
                "a buffer without a wait may not have its bytes yet",
            )
        ready = sum(call.at < waited_at for call in calls)
        if ready < min(place + credits, len(wanted)):
            raise CheckFailed(
                f"{where}: {min(credits, len(wanted) - place)} buffers posted "
                f"{'before the first wait' if place == 0 else f'when message {place + 1} is used'}",
                f"{ready - place}",
                "a receive that is posted after the wait for the one before moves nothing beside "
                "the computing: post `credits` of them first"
                if place == 0
                else "you let the buffers run empty before you post again: post one after each use",
            )
        due = set(wanted[place : place + credits])
        if missing := due - {call.tag for call in calls if call.at < waited_at}:
            raise CheckFailed(
                f"{where}: when message {place + 1} is waited for, the next {len(due)} are posted",
                f"not those of tags {sorted(missing)}",
                "post in the order in which you use: the sender may send exactly these first",
            )
        blocking = [call for call in calls if call.waited is not None]
        early = [call for call in blocking if call.waited_by != "is_completed"]
        if len(early) > place + 1:
            raise CheckFailed(
                f"{where}: message {place + 1} used as soon as it is there",
                f"{len(early)} messages were waited for before",
                "you wait for messages that you do not need yet, and compute nothing meanwhile: "
                "wait for one, use it, then wait for the next",
            )
    buffers = seen.peak / _like().nbytes  # what `use` looks at is copied: two more
    if buffers > credits + 3.5 and len(wanted) > credits + 3:
        raise CheckFailed(
            f"{where}: memory for {credits + 1} buffers (one more than are under way)",
            f"{buffers:.0f} at one time",
            "all buffers were made in advance, or none is let go: make one when you post it",
        )
    if left := [call.tag for call in seen.calls if call.waited is None]:
        raise CheckFailed(
            f"{where}: every irecv waited for",
            f"not those of tags {left}",
            "a buffer without a wait may not have its bytes yet",
        )
