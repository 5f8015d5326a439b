"""The checks of lesson 05: a trace, programs that hang, receives posted early, credits."""

import inspect
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from course.checks import boards, checking, memory
from course.checks.checking import CheckFailed
from course.lessons.pipeline_p2p import evidence, experiment
from course.lessons.pipeline_p2p.schedules import (
    SCHEDULES,
    Batch,
    Channel,
    InvalidProgram,
    Program,
    Task,
    Transfer,
    one_f_one_b,
    parts,
    programs,
    transfer_into,
)
from course.lessons.pipeline_p2p.simulator import Costs, find_deadlock, simulate
from labkit.measure import records
from labkit.measure.calls import ANY_SOURCE, Call
from labkit.measure.records import Record

PATIENCE = 10.0
"""Seconds for all that a check asks of a function without ranks; a right one needs a tenth."""
LATE = {
    "a": "its first sends leave as soon as they are computed; the later ones wait, but for what? "
    "Their receiver is not there yet: follow the chain to the other end",
    "b": "it is idle longest because it has two neighbours to wait for. Which of its inputs lies "
    "ready, and what stands before that transfer, in whose queue?",
    "d": "with receives one task early on all ranks the step would be far shorter: in one row of "
    "the upper picture receives stand elsewhere than in the others",
}
"""What the wrong letters of 5.1 mean."""


def unnamed_trace() -> Record:
    """Load the recorded step in which one rank posts its receives late."""
    recorded = records.load(experiment.RECORDING, recorded=True, experiment=experiment.NAME)
    return next(record for record in recorded if record.case == str(experiment.UNNAMED))


def check_trace(vote: Callable[[], str]) -> None:
    """Judge 5.1: who posts its receives late, by a letter."""
    with checking.exercise("5.1", vote, par="the letter"):
        checking.letter(vote, right="c", wrong=LATE)


# 5.2 and 5.3


def _judge_programs(
    ranks: Sequence[Program], tasks: Sequence[Sequence[Task]], *, plan: str
) -> None:
    """Hold programs to be whole and in order, and to end."""
    for rank, (steps, wanted) in enumerate(zip(ranks, tasks, strict=True)):
        _judge_steps(steps, wanted, rank=rank, stages=len(ranks), name=f"{plan}rank {rank}")
    try:
        circle = find_deadlock(ranks, channel=Channel.ORDERED)
    except InvalidProgram as problem:
        raise CheckFailed(
            f"{plan}every send has its receive, once",
            str(problem)[:300],
            "rank 0 receives nothing, the last rank sends nothing, and both ends of a transfer "
            "name it in the same way",
        ) from None
    if circle:
        raise CheckFailed(
            f"{plan}a program that ends",
            f"a deadlock:\n{circle}",
            "two neighbours must take the transfers between them in the same order, and no "
            "receive may stand before what its data depend on",
        )


def _judge_steps(
    steps: Program, wanted: Sequence[Task], *, rank: int, stages: int, name: str
) -> None:
    for step in steps:
        kind = Transfer if isinstance(step, Batch) else Task
        if not all(isinstance(part, kind) for part in parts(step)):
            raise CheckFailed(
                f"{name}: steps are Task or Batch((transfer, ...))",
                repr(step)[:200],
                "a transfer goes into a batch, also a single one: Batch((a,))",
            )
    tasks = [step for step in steps if isinstance(step, Task)]
    if tasks != list(wanted):
        raise CheckFailed(
            f"{name} computes {', '.join(map(str, wanted))}",
            ", ".join(map(str, tasks)) or "nothing",
            "every rank computes each task of its own stage once, in this order; what may move "
            "are sends and receives",
        )
    arrived, made = set(), set()
    for step in steps:
        if isinstance(step, Batch):
            arrived |= {t.use for t in step.transfers if t.dst == rank}
            early = [t for t in step.transfers if t.src == rank and t.task not in made]
            if early:
                raise CheckFailed(
                    f"{name} sends {early[0]} after it computed it",
                    "the send stands before its task in the program",
                    "it is not there yet; put the send after the task",
                )
            continue
        made.add(step)
        if step not in arrived and transfer_into(step, stages):
            raise CheckFailed(
                f"{name} receives the input of {step} before it computes it",
                "no receive for it stands before the task",
                "the task needs its input: post the receive earlier in the program",
            )


PLANS = ((2, 4), (3, 7), (4, 8), (5, 6), (3, 2), (2, 1), (1, 3))
"""Stages and micro-batches."""


def check_inference_program(program: Callable) -> None:
    """Judge 5.2: forward passes through one ordered channel, as fast as without order."""
    par = "at most 1.15 times as long as with no queue at all"
    with checking.exercise("5.2", program, par=par) as verdict:
        hang = "a loop in your function does not end"
        every = checking.on_ranks(_ask, program, world_size=1, timeout=PATIENCE, hang=hang)[0]
        written = iter(every)
        worst = 0.0
        for stages, micro_batches in PLANS:
            plan = f"{stages} stages, {micro_batches} micro-batches: "
            ranks = [next(written) for _ in range(stages)]
            for rank, steps in enumerate(ranks):
                checking.answer(steps, list, what=f"{plan}the steps of rank {rank}")
            worst = max(worst, _judge_inference(ranks, micro_batches, plan))
        verdict.reached = f"{worst:.2f} times"


def _ask(program: Callable) -> list[Any]:
    """Ask for the steps of every rank of every plan, in a process that can be ended."""
    asked = [(rank, s, m) for s, m in PLANS for rank in range(s)]
    answers = [program(rank, stages=s, micro_batches=m) for rank, s, m in asked]
    return [list(steps) if isinstance(steps, Iterable) else steps for steps in answers]


def _judge_inference(ranks: Sequence[Program], micro_batches: int, plan: str) -> float:
    order = tuple(tuple(Task("F", r, k) for k in range(micro_batches)) for r in range(len(ranks)))
    _judge_programs(ranks, order, plan=plan)
    costs = Costs(forward=1.0, backward=2.0, leg=0.9)
    free = simulate(programs(order), costs, channel=Channel.TAGGED).seconds
    ratio = simulate(ranks, costs, channel=Channel.ORDERED).seconds / free
    checking.at_most(
        ratio,
        1.15,
        what=f"{plan}time over the time without order",
        unit="times",
        meaning="while a rank computes F_k, its queue should move F_(k+1) in and F_(k-1) out, at "
        "once: started in one batch. A receive right before its task moves nothing meanwhile; one "
        "that stands too early holds up the sends behind it until its data are computed",
    )
    return ratio


def hanging_programs() -> tuple[Program, ...]:
    """Return what a colleague wrote: 1F1B, every send and receive on its own."""
    return programs(one_f_one_b(stages=5, micro_batches=6), batched=False)


def check_repair(receivers: Callable[[], Iterable[int]]) -> None:
    """Judge 5.3: which ranks receive first, so that blocking calls end; as few as possible."""
    with checking.exercise("5.3", receivers, par="two ranks"):
        got, what = checking.ask(receivers), "the ranks, like {0}"
        got = got.tolist() if isinstance(got, torch.Tensor | np.ndarray) else got
        got = checking.answer(got, (set, frozenset, list, tuple, range), what=what)
        chosen = {checking.number(rank, what="a rank") for rank in got}
        if unknown := chosen - {*range(len(hanging_programs()))}:
            raise CheckFailed("ranks from 0 to 4", f"{min(unknown):g}", "there is no such rank")
        mended = receiving_first(hanging_programs(), chosen)
        if circle := find_deadlock(mended, channel=Channel.BLOCKING):
            raise CheckFailed(
                "programs that end with blocking sends and receives",
                f"a deadlock:\n{circle}",
                "each waits for what the other does later: of two neighbours exactly one must "
                "receive first",
            )
        checking.at_most(
            len(chosen),
            2,
            what="ranks that receive first",
            unit="ranks",
            meaning="every neighbour of a rank that receives first may go on sending first",
        )


def receiving_first(ranks: Sequence[Program], chosen: Collection[int]) -> list[Program]:
    """Let these ranks receive before they send wherever both stand side by side."""
    mended = [list(program) for program in ranks]
    for rank, steps in enumerate(mended):
        for k in range(len(steps) - 1 if rank in chosen else 0):
            both = [step.transfers[0] for step in steps[k : k + 2] if isinstance(step, Batch)]
            if len(both) == 2 and (both[0].src, both[1].dst) == (rank, rank):
                steps[k : k + 2] = steps[k + 1], steps[k]
    return [tuple(steps) for steps in mended]


# 5.4

CONSUMER, SENDER = 1, 2
_UNWAITED = "a buffer without a wait may not have its bytes yet"
_KEPT: list = []  # what is under way stays, until the rank's process ends


def check_consume(consume: Callable) -> None:
    """Judge 5.4 on real ranks: values in order of use, tags, and buffers posted early, bounded."""
    par = "as many receives under way as there are credits, from the start to the end"
    with checking.exercise("5.4", consume, par=par):
        patience = checking.patience(PATIENCE)
        checking.on_ranks(
            _exchange,
            consume,
            _lines_of(consume),
            patience,
            world_size=3,
            timeout=6 * PATIENCE,
            checks=False,
        )


def _wanted(count: int) -> list[int]:
    """Make tags that are neither consecutive nor sorted."""
    return [(5 * k + 3) % 11 + 1 for k in range(count)]


def _like() -> torch.Tensor:
    return torch.empty(2, 50_000, dtype=torch.int32)


def _lines_of(function: Callable) -> dict[int, str]:
    """Return a function's lines by number: ranks do not know a notebook's cells."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return {}
    return {first + place: line.strip() for place, line in enumerate(lines)}


def _exchange(consume: Callable, lines: dict[int, str], patience: float) -> None:
    sign = {SENDER: 1, CONSUMER: 0}.get(dist.get_rank(), -1)
    for credits, count in ((1, 3), (2, 10), (3, 5), (4, 9), (3, 1), (2, 0)):
        tags = _wanted(count)
        dist.barrier()
        if not sign:
            _judge_consumer(consume, lines, tags, credits, patience)
            continue
        # The sender's order is not the receiver's: backwards, within what its credits allow. The
        # other rank sends with the same tags what nobody shall take.
        order = [t for k in range(0, count, credits) for t in tags[k : k + credits][::-1]]
        time.sleep(0.05 * (sign > 0))  # late: a buffer that was not waited for is still empty
        for tag in order:
            _KEPT.append(torch.full_like(_like(), sign * tag))
            _KEPT.append(dist.isend(_KEPT[-1], CONSUMER, tag=tag))
    dist.barrier()


class _WaitsOnce(memory.BufferLog):
    """Refuses a second wait for the same receive, which on gloo would never return."""

    def before_wait(self, work: dist.Work) -> None:
        if work in self.waited_for:
            raise CheckFailed(
                "one wait() for each irecv",
                "a second one for the same handle",
                "gloo's second wait() for a handle never returns: it waits for another message. "
                "Take the handle off your list when you have waited for it",
            )
        super().before_wait(work)


def _stands_on(thread: threading.Thread, function: Callable, lines: dict[int, str]) -> str:
    """Say on which of its lines a function stands that does not end."""
    frames = traceback.extract_stack(sys._current_frames()[thread.ident])
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = code.co_filename if code else ""
    own = [frame for frame in frames if frame.filename == file]
    if not own:
        return ""
    at = own[-1]
    return f" on line {at.lineno}, in {at.name}: {lines.get(at.lineno) or at.line}"


def _judge_consumer(
    consume: Callable, lines: dict[int, str], wanted: list[int], credits: int, patience: float
) -> None:
    """Run the learner's function in a thread, which may hang, and judge what it does."""
    seen: list[tuple[int, Any, tuple[Call, ...]]] = []  # tag, content, and the calls so far
    log, made, errors = _WaitsOnce(), memory.Allocated(arrays=True), []
    where = f"{len(wanted)} messages, {credits} credits"

    def use(tag: int, tensor: torch.Tensor) -> None:
        calls = tuple(log.calls)
        values = tensor.clone().unique().tolist() if isinstance(tensor, torch.Tensor) else []
        whole = len(values) == 1 and tensor.shape == _like().shape
        seen.append((tag, values[0] if whole else "no tensor, or a mixture", calls))

    def run() -> None:
        try:
            like = _like()
            with made, log:
                consume(list(wanted), use, src=SENDER, like=like, credits=credits)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    end = time.monotonic() + patience
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.2)
        for call in log.calls:  # also under way: a source is not known then, and it may not end
            _judge_call(call, wanted, where)
    if errors:
        raise errors[0]
    for call in itertools.chain(*(calls for _, _, calls in seen)):
        _judge_call(call, wanted, where)
    used = [(tag, held) for tag, held, _ in seen]
    if thread.is_alive():
        raise CheckFailed(
            f"{where}: all messages used",
            f"{len(used)} used; it waits for ever{_stands_on(thread, consume, lines)}",
            "before each wait, the message that you wait for must have its own posted buffer, and "
            "the sender only sends into buffers that are posted. Or you ask is_completed(): for a "
            "receive gloo says False until its wait() has returned. Wait, do not ask",
        )
    if used != [(tag, tag) for tag in wanted]:
        raise CheckFailed(
            f"{where}: used {[(tag, tag) for tag in wanted]} (tag, what the tensor holds)",
            repr(used),
            "`use` wants the messages in the order of `wanted`, each with its own tensor, whatever "
            "arrives first",
        )
    for place, (tag, _, calls) in enumerate(seen):
        _judge_use(calls, wanted, place, credits, f"{where}: when tag {tag} is used, ")
    buffers = made.peak / _like().nbytes  # what `use` looks at is copied: two more
    if buffers > credits + 3.5 and len(wanted) > credits + 3:
        raise CheckFailed(
            f"{where}: memory for {credits + 1} buffers (one more than are under way)",
            f"{buffers:.0f} at one time",
            "all buffers were made in advance, or none is let go: make one when you post it",
        )
    if left := [call.tag for call in log.calls if call.waited is None]:
        raise CheckFailed(
            f"{where}: every irecv waited for", f"not those of tags {left}", _UNWAITED
        )


def _judge_call(call: Call, wanted: list[int], case: str) -> None:
    """Hold a call to be a receive of a wanted message, into a buffer of its own."""
    like = _like()
    right = ("recv", SENDER, like.dtype, like.nbytes)
    if (call.kind, call.peer, call.dtype, call.nbytes) != right or call.tag not in wanted:
        source = "any rank" if call.peer == ANY_SOURCE else f"rank {call.peer}"
        raise CheckFailed(
            f"{case}: receives from rank {SENDER}, each with a tag of `wanted`, {like.nbytes} "
            f"bytes of {like.dtype}",
            f"{call.kind}, {source}, tag {call.tag}, {call.nbytes} bytes of {call.dtype}",
            "give irecv the source and the tag (without them it takes from anybody, and tag 0), "
            "into torch.empty_like(like)"
            if call.kind == "recv"
            else "receive, and nothing else: the other ranks only send, and make no such call",
        )
    if call.touched:
        raise CheckFailed(
            f"{case}: a buffer of its own for each receive, left alone until its wait",
            f"the buffer of tag {call.tag} was touched by {call.touched} before",
            "two receives share one buffer, or you look into it before the wait: until then it "
            "belongs to the receive",
        )


def _judge_use(
    calls: Sequence[Call], wanted: list[int], place: int, credits: int, case: str
) -> None:
    """Look at what was posted and waited for when a message is used."""
    waited = [call.waited for call in calls if call.tag == wanted[place]]
    if not waited:
        raise CheckFailed(
            f"{case}a receive for it was posted",
            f"{len(calls)} receives before, none with this tag",
            "what is used did not come from the sender: post an irecv for each tag of `wanted`, "
            "and hand its buffer to `use`",
        )
    waited_at = waited[0]
    if waited_at is None:
        raise CheckFailed(f"{case}it was waited for", "no wait", _UNWAITED)
    posted = [call for call in calls if call.at < waited_at]
    under_way = sum(call.waited is None or call.waited >= waited_at for call in posted)
    if under_way > credits:
        raise CheckFailed(
            f"{case}at most {credits} receives under way",
            f"{under_way} at its wait",
            "every posted buffer is memory that a sender may fill: post the next one only when one "
            "has arrived",
        )
    due = set(wanted[place : place + credits])
    if missing := due - {call.tag for call in posted}:
        raise CheckFailed(
            f"{case}the next {len(due)} were posted before the wait for it",
            f"not those of tags {sorted(missing)}",
            "post `credits` of them before the first wait, in the order in which you use them, and "
            "one more after each use: with fewer posted nothing moves while you compute",
        )
    early = [c for c in calls if c.waited is not None and c.waited_by != "is_completed"]
    if len(early) > place + 1:
        raise CheckFailed(
            f"{case}it was used as soon as it was there",
            f"{len(early)} messages were waited for before, {place + 1} were needed",
            "you wait for messages that you do not need yet, and compute nothing meanwhile: wait "
            "for one, use it, then wait for the next",
        )


# 5.5


def check_activations(kept: Callable[[], Sequence[float]]) -> None:
    """Judge 5.5: how many micro-batches' activations rank 0 keeps, by schedule."""
    with checking.exercise("5.5", kept, par="four figures"):
        gpipe, plain, eager = (
            _most_kept(build(stages=4, micro_batches=8)[0]) for build in SCHEDULES.values()
        )
        count = "count along rank 0's row: one more at each F, one less when a B has ended"
        ahead = {"that is the warm-up alone: the F after it comes before the first B": eager - 1}
        checking.figures(
            checking.ask(kept),
            [
                ("GPipe's activations on rank 0", gpipe, {}, count),
                (
                    "1F1B's activations on rank 0",
                    plain,
                    {"that is the warm-up alone: one more F comes before the first B": plain - 1},
                    count,
                ),
                ("eager 1F1B's activations on rank 0", eager, ahead, count),
                (
                    "GB that eager 1F1B needs beyond 1F1B",
                    (eager - plain) * 0.5,
                    {
                        "that is all of eager 1F1B, not what it needs beyond 1F1B": eager * 0.5,
                        "that is a number of micro-batches, not GB": eager - plain,
                    },
                    "the difference of the two figures, times 0.5 GB",
                ),
            ],
        )


def _most_kept(tasks: Sequence[Task]) -> int:
    """Return how many forward passes at most wait for their backward pass at one time."""
    steps = itertools.accumulate(1 if task.kind == "F" else -1 for task in tasks)
    return max(steps)


# 5.6

WHO = boards.WhoWasIt("5.6", evidence.INVESTIGATION, {"first": "b", "second": "a"})
