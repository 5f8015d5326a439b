"""Checks of lesson 05: a trace, orders, programs that hang, receives posted early, memory."""

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.checks import checking
from course.checks.checking import CheckFailed, hold
from course.checks.memory import Allocated
from course.checks.trial import HandLog
from course.lessons.pipeline_p2p import experiment
from course.lessons.pipeline_p2p.programs import Workload, train
from course.lessons.pipeline_p2p.schedules import (
    SCHEDULES,
    Batch,
    Channel,
    Costs,
    InvalidProgram,
    Program,
    Schedule,
    Task,
    Transfer,
    in_order,
    one_f_one_b,
    parts,
    programs,
    run_ahead,
    transfer_into,
    transfer_out_of,
)
from course.lessons.pipeline_p2p.simulator import find_deadlock, simulate
from labkit.measure import records
from labkit.measure.records import Record

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


PLANS = ((2, 4), (3, 7), (4, 8), (5, 6), (3, 2), (2, 1), (1, 3))
"""Stages and micro-batches of 5.2."""
EARLY = (
    "while a rank computes F_k, its queue should move F_(k+1) in and F_(k-1) out, at once: started "
    "in one batch. A receive right before its task moves nothing meanwhile; one that stands too "
    "early holds up the sends behind it until its data are computed"
)


def check_inference_program(program: Callable) -> None:
    """Judge 5.2: the programs of all ranks, for each of `PLANS`.

    Each rank computes F0, F1, ... of its stage; an input is received before its task, and an output
    sent after it. The programs fit together and end. Played in a model, where a task takes 1 and a
    transfer 0.9, one ordered queue takes at most 1.15 times as long as no queue at all.
    """
    par = "at most 1.15 times as long as with no queue at all"
    with checking.exercise("5.2", program, par=par) as verdict:
        ratios = []
        for stages, micro_batches in PLANS:
            plan = f"{stages} stages, {micro_batches} micro-batches"
            schedule = [[Task("F", r, k) for k in range(micro_batches)] for r in range(stages)]
            written = partial(program, stages=stages, micro_batches=micro_batches)
            ranks = [checking.ask(written, rank, case=plan) for rank in range(stages)]
            for rank, steps in enumerate(ranks):
                _hold_order(steps, schedule[rank], stages, f"{plan}: rank {rank}")
            _hold_end(ranks, Channel.ORDERED, plan, NEIGHBOURS)
            ratios.append(_hold_queue(plan, schedule, ranks, Costs(1.0, 2.0, 0.9), 1.15, EARLY))
        verdict.reached = f"{max(ratios):.2f} times"


def _hold_order(steps: Any, tasks: Sequence[Task], stages: int, rank: str) -> None:
    """Hold a rank's steps to be its tasks, in order, with each transfer on the right side."""
    for step in checking.answer(steps, (list, tuple), what=f"{rank}: its steps"):
        kind = Transfer if isinstance(step, Batch) else Task
        single = "a transfer goes into a batch, also a single one: Batch((a,))"
        fits = all(isinstance(part, kind) for part in parts(step))
        hold(fits, f"{rank}: steps are Task or Batch((transfer, ...))", repr(step)[:200], single)
    found = " ".join(map(str, steps))[:200]
    computed = [step for step in steps if isinstance(step, Task)]
    hold(computed == tasks, f"{rank} computes {', '.join(map(str, tasks))}, in this order", found)
    place = {part: number for number, step in enumerate(steps) for part in parts(step)}
    for task in tasks:
        into, out_of = transfer_into(task, stages), transfer_out_of(task, stages)
        in_time = into is None or place.get(into, math.inf) < place[task]
        early = "post the receive earlier in the program"
        hold(in_time, f"{rank}: the input of {task} is received before it", found, early)
        made = place.get(out_of, math.inf) > place[task]
        late = "it is not there yet: put the send after the task"
        hold(made, f"{rank}: the output of {task} is sent after it", found, late)


BOTH_ENDS = (
    "rank 0 receives nothing, the last rank sends nothing; both ends of a transfer name it alike"
)


@contextmanager
def _once(plan: str, meaning: str) -> Iterator[None]:
    """Refuse programs or orders in which a transfer does not stand once."""
    try:
        yield
    except InvalidProgram as problem:
        raise CheckFailed(f"{plan}: each transfer once", str(problem)[:300], meaning) from None


def _hold_end(ranks: Sequence[Program], channel: Channel, plan: str, meaning: str) -> None:
    """Hold programs to fit together and to end."""
    with _once(plan, BOTH_ENDS):
        circle = find_deadlock(ranks, channel=channel)
    hold(not circle, f"{plan}: programs that end", f"a deadlock:\n{circle}", meaning)


def _hold_queue(plan: str, schedule: Any, ranks: Any, costs: Costs, par: float, slow: str) -> float:
    """Hold one queue to its par; return its time over the time with no queue at all."""
    free = simulate(programs(schedule), costs, channel=Channel.TAGGED).seconds
    ratio = simulate(ranks, costs, channel=Channel.ORDERED).seconds / free
    what = f"{plan}: time over the time without a queue"
    checking.at_most(ratio, par, what=what, unit="times", meaning=slow)
    return ratio


NEIGHBOURS = (
    "each waits for what the other does later. With blocking calls exactly one of two neighbours "
    "receives first; in a queue both take their transfers in the same order"
)


def hanging_programs() -> tuple[Program, ...]:
    """Return what a colleague wrote: 1F1B, every send and receive on its own."""
    return programs(one_f_one_b(stages=5, micro_batches=6), batched=False)


def receiving_first(ranks: Sequence[Program], chosen: Collection[int]) -> list[Program]:
    """Let these ranks receive before they send wherever both stand side by side."""
    mended = [list(program) for program in ranks]
    for rank, steps in enumerate(mended):
        for k in range(len(steps) - 1 if rank in chosen else 0):
            both = [step.transfers[0] for step in steps[k : k + 2] if isinstance(step, Batch)]
            if len(both) == 2 and (both[0].src, both[1].dst) == (rank, rank):
                steps[k : k + 2] = steps[k + 1], steps[k]
    return [tuple(steps) for steps in mended]


def check_repair(receivers: Callable[[], Iterable[int]]) -> None:
    """Judge 5.3: which ranks receive first, so that blocking calls end; as few as possible."""
    with checking.exercise("5.3", receivers, par="two ranks"):
        kinds = (set, frozenset, list, tuple, range)
        ranks = checking.answer(checking.ask(receivers), kinds, what="the ranks, like {0}")
        chosen = {checking.number(rank, what="a rank") for rank in ranks}
        hold(chosen <= {*range(5)}, "ranks from 0 to 4", repr(ranks), "there is no such rank")
        mended = receiving_first(hanging_programs(), chosen)
        _hold_end(mended, Channel.BLOCKING, "blocking calls", NEIGHBOURS)
        enough = "every neighbour of a rank that receives first may go on sending first"
        what = "ranks that receive first"
        checking.at_most(len(chosen), 2, what=what, unit="ranks", meaning=enough)


CONSUMER, SENDER = 1, 2
EXCHANGES = ((1, 3), (2, 10), (3, 5), (3, 1), (2, 0))
"""Credits and messages of 5.4."""
LIKE = torch.empty(2, 50_000, dtype=torch.int32)
HANG = (
    "before each wait, the message that you wait for must have its own posted buffer. Or you ask "
    "is_completed(), which for a receive says False until its wait() has returned: wait, do not ask"
)
FROM = "give irecv the source and the tag (without them it takes from anybody, rank -1, and tag 0)"
OWN = "two receives share one buffer, or you look into it before the wait, when it may be empty"
NEXT = (
    "post `credits` of them before the first wait, in the order of `wanted`; wait for one, use it, "
    "and post one more: with fewer nothing moves while you compute, and each one more is memory "
    "that a sender may fill"
)
USED = (
    "`use` wants the messages in the order of `wanted`, each with its own tensor; without a wait "
    "that may not have its bytes yet: it belongs to the receive"
)
_KEPT: list = []  # what is under way stays, until the rank's process ends


def check_consume(consume: Callable) -> None:
    """Judge 5.4: messages with tags, from a sender that is late and sends backwards, on real ranks.

    `_Watched` looks at every wait and every use. Another rank sends under the same tags what nobody
    shall take. No more memory is taken than for the receives under way, and two messages.
    """
    par = "as many receives under way as there are credits, from the start to the end"
    with checking.exercise("5.4", consume, par=par):
        checking.on_ranks(_exchange, consume, world_size=3, checks=False, hang=HANG)


def _exchange(consume: Callable) -> None:
    """Send to the learner's function, or run it; on every rank."""
    rank = dist.get_rank()
    for credits, count in EXCHANGES:
        tags = [(5 * k + 3) % 11 + 1 for k in range(count)]  # neither consecutive nor sorted
        dist.barrier()
        if rank == CONSUMER:
            _consume(consume, tags, credits)
            continue
        # The sender's order is not the receiver's: backwards, within what its credits allow.
        order = [tag for k in range(0, count, credits) for tag in tags[k : k + credits][::-1]]
        time.sleep(0.05 * (rank == SENDER))  # a buffer that was not waited for is still empty
        for tag in order:
            _KEPT.append(torch.full_like(LIKE, tag if rank == SENDER else -tag))
            _KEPT.append(dist.isend(_KEPT[-1], CONSUMER, tag=tag))
    dist.barrier()


def _consume(consume: Callable, tags: list[int], credits: int) -> None:
    with Allocated() as memory, _Watched(tags, credits) as log:
        consume(list(tags), log.use, src=SENDER, like=LIKE.clone(), credits=credits)
    waited = sum(call.waited is not None for call in log.calls)
    found = f"{log.used} used; {waited} of {len(log.calls)} receives waited for"
    every = (log.used, waited) == (len(tags), len(log.calls))
    hold(every, f"{log.case}: each message received, waited for and used", found, NEXT)
    what, unit = f"{log.case}: memory", "messages (`like`, those under way, and two)"
    meaning = "all buffers were made in advance, or none is let go: make one when you post it"
    taken = memory.peak / LIKE.nbytes
    checking.at_most(taken, 1 + credits + 2.5, what=what, unit=unit, meaning=meaning)


class _Watched(HandLog):
    """Holds what is posted at each wait, and what is handed over at each use."""

    def __init__(self, tags: Sequence[int], credits: int) -> None:
        super().__init__()
        self.tags, self.credits, self.used = tags, credits, 0
        self.case = f"{len(tags)} messages, {credits} credits"

    def before_wait(self, work: dist.Work) -> None:
        """Hold the receives under way to be the next ones, each into a buffer of its own."""
        super().before_wait(work)
        posted = [call for call in self.calls if call.waited is None]
        waited = len(self.calls) - len(posted)
        due, tags = self.tags[waited : waited + self.credits], [call.tag for call in posted]
        for call in posted:
            made = call.kind, call.peer, call.nbytes
            fits = made == ("recv", SENDER, LIKE.nbytes) and call.tag in self.tags
            asked = f"{self.case}: receives of {LIKE.nbytes} bytes from rank {SENDER}, with a tag"
            hold(fits, asked, f"{made}, tag {call.tag}", FROM)
            touched = f"that of tag {call.tag} was touched by {call.touched}"
            alone = f"{self.case}: a buffer for each receive, left alone until its wait"
            hold(not call.touched, alone, touched, OWN)
        asked = f"{self.case}: at wait {waited + 1}, {waited} used, receives posted for tags {due}"
        fits = waited <= self.used and sorted(tags) == sorted(due)
        hold(fits, asked, f"{self.used} used, posted for tags {tags}", NEXT)

    def use(self, tag: int, tensor: torch.Tensor) -> None:
        """Hold what is used to be the next message, received and waited for."""
        due = self.tags[self.used : self.used + 1]
        came = any(call.tag == tag and call.waited is not None for call in self.calls)
        values = {*tensor.flatten().tolist()}
        fits = came and [tag] == due and values == {tag} and tensor.shape == LIKE.shape
        asked = f"{self.case}: use {self.used + 1} is of tag {due}, waited for, and its tensor"
        hold(fits, asked, f"tag {tag}, {'' if came else 'not waited for, '}with {values}", USED)
        self.used += 1


def check_activations(kept: Callable[[], Sequence[float]]) -> None:
    """Judge 5.5: how many micro-batches' activations rank 0 keeps, by schedule; and GB."""
    with checking.exercise("5.5", kept, par="four figures"):
        gpipe, plain, eager = (
            _most_kept(build(stages=4, micro_batches=8)[0]) for build in SCHEDULES.values()
        )
        row = "count along rank 0's row: one more at each F, one less when a B has ended"
        first = "that is the warm-up alone: one more F comes before the first B"
        beyond = {
            "that is all of eager 1F1B, not what it needs beyond 1F1B": eager * 0.5,
            "that is a number of micro-batches, not GB": eager - plain,
        }
        asked: list[checking.Asked] = [
            ("GPipe's activations on rank 0", gpipe, {}, row),
            ("1F1B's activations on rank 0", plain, {first: plain - 1}, row),
            ("eager 1F1B's activations on rank 0", eager, {first: eager - 1}, row),
            ("GB that eager 1F1B needs beyond 1F1B", (eager - plain) * 0.5, beyond, row),
        ]
        checking.figures(checking.ask(kept), asked)


def _most_kept(tasks: Sequence[Task]) -> int:
    """Return how many forward passes at most wait for their backward pass at one time."""
    return max(itertools.accumulate(1 if task.kind == "F" else -1 for task in tasks))


def unseen_schedule() -> Schedule:
    """Return a schedule that runs further ahead than eager 1F1B; its own programs hang."""
    return run_ahead(4, 8, warmup=lambda stage: 3 * (3 - stage) + 1)


SCHEDULES_TO_ORDER = {
    "GPipe": (SCHEDULES["gpipe"](stages=3, micro_batches=6), 1.0),
    "1F1B": (one_f_one_b(stages=4, micro_batches=8), 1.0),
    "eager 1F1B, with a slow rank 0": (SCHEDULES["eager 1f1b"](stages=5, micro_batches=7), 2.0),
    "the schedule that nobody has seen": (unseen_schedule(), 1.0),
}
"""Of 5.6: each schedule, and how many times as long rank 0 takes."""
RUNNABLE = "something stands before what it is made of: take the times of a step that can be run"
IN_FRONT = "something in front cannot start yet: when would each begin if nothing queued?"
TWICE = "take them from `programs(schedule)`: each stands on two ranks, and counts once"


def check_order(order: Callable) -> None:
    """Judge 5.6: one order of all transfers, which all ranks keep, for each schedule.

    It has each transfer once, and closes no circle. Played in the model, one queue takes at most
    1.1 times as long as no queue at all. Then three real ranks train GPipe in it: the gradients
    are those with tags.
    """
    par = "at most 1.1 times as long as with no queue at all"
    with checking.exercise("5.6", order, par=par) as verdict:
        ratios, orders = [], {}
        for plan, (schedule, slow) in SCHEDULES_TO_ORDER.items():
            costs = Costs(1.0, 2.0, 0.6, slow=slow)
            found = checking.ask(order, schedule, costs, case=plan)
            orders[plan] = checking.answer(found, (list, tuple), what=f"{plan}: its transfers")
            with _once(plan, TWICE):
                ranks = in_order(schedule, orders[plan])
            _hold_end(ranks, Channel.ORDERED, plan, RUNNABLE)
            ratios.append(_hold_queue(plan, schedule, ranks, costs, 1.1, IN_FRONT))
        same = checking.on_ranks(_train, orders["GPipe"], world_size=3, checks=False)
        hold(all(same), "on every rank the gradients that come out with tags", same)
        verdict.reached = f"{max(ratios):.2f} times"


def _train(order: Sequence[Transfer]) -> bool:
    """Say whether this rank's gradients are the same in one queue in this order, and with tags."""
    schedule, _ = SCHEDULES_TO_ORDER["GPipe"]
    work = Workload(forward=0.0, backward=0.0, rows=8, width=16)
    one_queue = (in_order(schedule, order), Channel.ORDERED, work)
    tags = (programs(schedule), Channel.TAGGED, work)
    queued, tagged = train([one_queue, tags])
    return torch.equal(queued.gradients, tagged.gradients)
