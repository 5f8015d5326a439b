"""Checks of lesson 05: a trace, orders, programs that hang, receives posted early, memory."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course.checks import checking
from course.checks.checking import CheckFailed, hold
from course.checks.memory import Allocated
from course.checks.trial import HandLog
from course.lessons.pipeline_p2p import schedules
from course.lessons.pipeline_p2p.programs import Workload, train
from course.lessons.pipeline_p2p.schedules import Batch, Channel, Costs, Program, Task, Transfer
from course.lessons.pipeline_p2p.simulator import Deadlock, find_deadlock, simulate


def check_trace(vote: Callable[[], str]) -> None:
    """Judge 5.1: who posts its receives late, by a letter."""
    wrong = {
        "a": "its first sends leave as soon as they are computed; the later ones wait, but for "
        "what? Their receiver is not there yet: follow the chain to the other end",
        "b": "it is idle longest because it has two neighbours to wait for. Which of its inputs "
        "lies ready, and what stands before that transfer, in whose queue?",
        "d": "with receives one task early on all ranks the step would be far shorter: in one row "
        "of the upper picture receives stand elsewhere than in the others",
    }
    with checking.exercise("5.1", vote, par="the letter"):
        checking.letter(vote, right="c", wrong=wrong)


PLANS = ((2, 4), (3, 7), (4, 8), (5, 6), (3, 2), (2, 1), (1, 3))  # stages and micro-batches of 5.2
EARLY = """while a rank computes F_k, its queue should move F_(k+1) in and F_(k-1) out, at once:
started in one batch. A receive right before its task moves nothing meanwhile; one that stands too
early holds up the sends behind it until its data are computed"""


def check_inference_program(program: Callable) -> None:
    """Judge 5.2: the programs of all ranks, for each of `PLANS`.

    Each rank computes F0, F1, ... of its stage; an input is received before its task, and an output
    sent after it. The programs fit together and end. Played in a model, where a task takes 1 and a
    transfer 0.9, one ordered queue takes at most 1.15 times as long as no queue at all.
    """
    par = "at most 1.15 times as long as with no queue at all"
    with checking.exercise("5.2", program, par=par) as verdict:
        ratios = []
        both_ends = """rank 0 receives nothing, the last rank sends nothing, and both ends of a
            transfer name it alike, in the same order"""
        for stages, micro_batches in PLANS:
            plan = f"{stages} stages, {micro_batches} micro-batches"
            schedule = [[Task("F", r, k) for k in range(micro_batches)] for r in range(stages)]
            of_rank = partial(program, stages=stages, micro_batches=micro_batches)
            ranks = [checking.ask(of_rank, rank, case=plan) for rank in range(stages)]
            for rank, steps in enumerate(ranks):
                _hold_order(steps, schedule[rank], stages, f"{plan}: rank {rank}")
            how = {"plan": plan, "costs": Costs(1.0, 2.0, 0.9), "par": 1.15}
            ratios.append(_queued(ranks, schedule, **how, if_broken=both_ends, if_slow=EARLY))
        verdict.reached = f"{max(ratios):.2f} times"


def _hold_order(steps: Any, tasks: Sequence[Task], stages: int, rank: str) -> None:
    """Hold a rank's steps to be its tasks, in order, with each transfer on the right side."""
    for step in checking.answer(steps, (list, tuple), what=f"{rank}: its steps"):
        kind = Transfer if isinstance(step, Batch) else Task
        single = "a transfer goes into a batch, also a single one: Batch((a,))"
        fits = all(isinstance(part, kind) for part in schedules.parts(step))
        hold(fits, f"{rank}: steps are Task or Batch((transfer, ...))", repr(step)[:200], single)
    in_short = " ".join(map(str, steps))[:200]
    computed = [step for step in steps if isinstance(step, Task)]
    swapped = [replace(t, stage=t.micro_batch, micro_batch=t.stage) for t in tasks]
    own = f"{rank} computes {', '.join(map(str, tasks))} of its own stage, in this order"
    written = [f"Task({t.kind!r}, {t.stage}, {t.micro_batch})" for t in computed]
    usual = {
        "the kind comes first, then the stage, then the micro-batch": computed == swapped,
        "each rank computes its own stage only: the second argument is the rank": (
            [*map(str, computed)] == [*map(str, tasks)]
        ),
        "each micro-batch once, from the first to the last": True,
    }
    mistake = next(text for text, fits in usual.items() if fits)
    hold(computed == tasks, own, ", ".join(written)[:200] or in_short, mistake)
    place = {part: number for number, step in enumerate(steps) for part in schedules.parts(step)}
    for task in tasks:
        into = schedules.transfer_into(task, stages)
        batch = f"{rank}: a batch with {into}, which {task} needs"
        whose = f"a rank receives what its left neighbour sends: activation({task.stage - 1}, k)"
        hold(into is None or into in place, batch, in_short, whose)
        in_time = into is None or place[into] < place[task]
        is_made = place.get(schedules.transfer_out_of(task, stages), math.inf) > place[task]
        between = f"{rank}: {task} after its input is received, before its output is sent"
        late = "what is not computed cannot leave: put the send after the task"
        meaning = late if in_time else "post the receive earlier"
        hold(in_time and is_made, between, in_short, meaning)


def _queued(
    programs: Sequence[Program],
    schedule: Sequence[Sequence[Task]],
    *,
    plan: str,
    costs: Costs,
    par: float,
    if_broken: str,
    if_slow: str,
) -> float:
    """Hold programs to end, in at most `par` times what no queue takes; return how many times."""
    with _each_transfer_once(plan, if_broken):
        queued = simulate(tuple(programs), costs, channel=Channel.ORDERED).seconds
    free = simulate(schedules.programs(schedule), costs, channel=Channel.TAGGED).seconds
    what = f"{plan}: time over the time without a queue"
    checking.at_most(queued / free, par, what=what, unit="times", meaning=if_slow)
    return queued / free


@contextlib.contextmanager
def _each_transfer_once(plan: str, meaning: str) -> Iterator[None]:
    """Say of programs that do not fit together, or never end, what to look at."""
    try:
        yield
    except (schedules.InvalidProgram, Deadlock) as problem:
        expected = f"{plan}: each transfer once, and programs that end"
        raise CheckFailed(expected, str(problem), meaning) from None


def check_repair(receivers: Callable[[], Iterable[int]]) -> None:
    """Judge 5.3: which ranks receive first, so that blocking calls end; as few as possible."""
    with checking.exercise("5.3", receivers, par="two ranks"):
        kinds = (set, frozenset, list, tuple, range)
        ranks = checking.answer(checking.ask(receivers), kinds, what="the ranks, like {0}")
        chosen = {checking.number(rank, what="a rank") for rank in ranks}
        hold(chosen <= {*range(5)}, "ranks from 0 to 4", repr(ranks), "there is no such rank")
        mended = schedules.receiving_first(schedules.hanging_programs(), chosen)
        circle = find_deadlock(mended, channel=Channel.BLOCKING)
        rule = "exactly one of two neighbours receives first, or each waits for what the other does"
        hold(not circle, "programs that end", f"a deadlock:\n{circle}", rule)
        enough = "every neighbour of a rank that receives first may go on sending first"
        hold(len(chosen) == 2, "two ranks that receive first", f"{len(chosen)}", enough)


SENDER, CONSUMER = 2, 1
EXCHANGES = ((1, 3), (2, 10), (3, 5), (3, 1), (2, 0))  # credits and messages of 5.4
LIKE = torch.empty(2, 50_000, dtype=torch.int32)
NEXT = """post `credits` of them before the first wait, in the order of `wanted`, each with its
source and its tag (without them it takes from anybody, rank -1, and tag 0); wait for one, use it,
and post one more: with fewer nothing moves while you compute, and each one more is memory that a
sender may fill"""
OWN = """until its wait a buffer belongs to the receive, and may be empty: two receives share one
buffer, or you use one before its wait"""
_KEPT: list = []  # what is under way stays, until the rank's process ends


def check_consume(consume: Callable) -> None:
    """Judge 5.4: messages with tags, from a sender that is late and sends backwards, on real ranks.

    `_Watched` looks at every wait and use. Another rank sends under the same tags what nobody shall
    take. No more memory is taken than for the receives under way, and two messages.
    """
    par = "as many receives under way as there are credits, from the start to the end"
    with checking.exercise("5.4", consume, par=par):
        loop = """a loop that does not end. Does it ask is_completed()? For a receive that says
            False until its wait() has returned"""
        checking.on_ranks(_exchange, consume, world_size=3, checks=False, hang=loop)


def _exchange(consume: Callable) -> None:
    """Send to the learner's function, or run it; on every rank."""
    rank = dist.get_rank()
    for credits, count in EXCHANGES:
        tags = [(5 * k + 3) % 11 + 1 for k in range(count)]  # neither consecutive nor sorted
        dist.barrier()
        if rank == CONSUMER:
            with Allocated() as memory, _Watched(tags, credits) as log:
                consume(list(tags), log.use, src=SENDER, like=LIKE.clone(), credits=credits)
            log.hold_end(memory.peak)
            continue
        # The sender's order is not the receiver's: backwards, within what its credits allow.
        order = [tag for k in range(0, count, credits) for tag in tags[k : k + credits][::-1]]
        if rank == SENDER:
            time.sleep(0.05)  # a buffer that was not waited for is still empty
        for tag in order:
            _KEPT.append(torch.full_like(LIKE, tag if rank == SENDER else -tag))
            _KEPT.append(dist.isend(_KEPT[-1], CONSUMER, tag=tag))
    dist.barrier()


class _Watched(HandLog):
    """Holds what is posted at each wait, and notes what is handed over at each use."""

    def __init__(self, tags: Sequence[int], credits: int) -> None:
        super().__init__()
        self.tags, self.credits, self.used = tags, credits, []
        self.case = f"{len(tags)} messages, {credits} credits"

    def before_wait(self, work: dist.Work) -> None:
        """Hold the receives under way to be the next ones."""
        super().before_wait(work)
        posted = [(c.peer, c.tag, c.nbytes) for c in self.calls if c.waited is None]
        waited, used = len(self.calls) - len(posted), len(self.used)
        due = [(SENDER, tag, LIKE.nbytes) for tag in self.tags[waited : waited + self.credits]]
        at_wait = f"{self.case}: wait {waited + 1}, {waited} used; posted (rank, tag, bytes): {due}"
        fits = waited <= used and sorted(posted) == sorted(due)
        hold(fits, at_wait, f"{used} used; posted: {posted}", NEXT)

    def use(self, tag: int, tensor: torch.Tensor) -> None:
        """Read a message: a torch operator, so that the log sees whether it came too early."""
        self.used.append((tag, tensor.shape, torch.as_tensor(tensor).unique().tolist()))

    def hold_end(self, peak: int) -> None:
        """Hold what was used, when, and the memory."""
        early = [call.tag for call in self.calls if call.touched or call.waited is None]
        own = f"{self.case}: a buffer for each receive, left alone until its wait"
        hold(not early, own, f"those of tags {early} were not", OWN)
        due = [(tag, LIKE.shape, [tag]) for tag in self.tags]
        in_order = f"{self.case}: each message used once, in the order of `wanted` {self.tags}"
        used = f"tags {[tag for tag, *_ in self.used]}, with {[v for *_, v in self.used]}"
        hold(self.used == due, in_order, used[:300], "`use` wants each tag with its own tensor")
        what, unit = f"{self.case}: memory", "messages (`like`, those under way, and two)"
        meaning = "buffers were made in advance, or none is let go: make one when you post it"
        most = 1 + self.credits + 2.5
        checking.at_most(peak / LIKE.nbytes, most, what=what, unit=unit, meaning=meaning)


def check_activations(kept: Callable[[], Sequence[float]]) -> None:
    """Judge 5.5: how many micro-batches' activations rank 0 keeps, by schedule; and GB."""
    row = "count along rank 0's row: one more at each F, one less when a B has ended"
    first = "that is the warm-up alone: one more F comes before the first B"
    everything = "that is all of eager 1F1B, not what it needs beyond 1F1B"
    count = "that is a number of micro-batches, not GB"
    asked: list[checking.Asked] = [
        ("GPipe's activations on rank 0", 8, {}, row),
        ("1F1B's activations on rank 0", 4, {first: 3}, row),
        ("eager 1F1B's activations on rank 0", 7, {first: 6}, row),
        ("GB that eager 1F1B needs beyond 1F1B", 1.5, {everything: 3.5, count: 3.0}, row),
    ]
    with checking.exercise("5.5", kept, par="four figures"):
        checking.figures(checking.ask(kept), asked)


TO_ORDER = {
    "GPipe": (schedules.gpipe(stages=3, micro_batches=6), 1.0),
    "1F1B": (schedules.one_f_one_b(stages=4, micro_batches=8), 1.0),
    "eager 1F1B, with a slow rank 0": (schedules.eager_1f1b(stages=5, micro_batches=7), 2.0),
    "the schedule that nobody has seen": (schedules.unseen_schedule(), 1.0),
}
"""Of 5.6: each schedule, and how many times as long rank 0 takes."""
MADE = """something stands before what it is made of, or not once: take the transfers, and their
times, from one step that can be run"""
IN_FRONT = "something in front cannot start yet: when would each begin if nothing queued?"


def check_order(order: Callable) -> None:
    """Judge 5.6: one order of all transfers, which all ranks keep, for each schedule.

    It has each transfer once, and closes no circle. Played in the model, one queue takes at most
    1.1 times as long as no queue at all. Then three real ranks train GPipe in it: the gradients
    are those with tags.
    """
    par = "at most 1.1 times as long as with no queue at all"
    with checking.exercise("5.6", order, par=par) as verdict:
        ratios = []
        programs = {}
        for plan, (schedule, slow) in TO_ORDER.items():
            costs = Costs(1.0, 2.0, 0.6, slow=slow)
            transfers = checking.ask(order, schedule, costs, case=plan)
            checking.answer(transfers, (list, tuple), what=f"{plan}: its transfers")
            with _each_transfer_once(plan, MADE):
                programs[plan] = schedules.in_order(schedule, transfers)
            how = {"plan": plan, "costs": costs, "par": 1.1}
            ratio = _queued(programs[plan], schedule, **how, if_broken=MADE, if_slow=IN_FRONT)
            ratios.append(ratio)
        same = checking.on_ranks(_train, programs["GPipe"], world_size=3, checks=False)
        hold(all(same), "on every rank the gradients that come out with tags", same)
        verdict.reached = f"{max(ratios):.2f} times"


def _train(ranks: Sequence[Program]) -> bool:
    """Say whether this rank's gradients are the same in one queue in this order, and with tags."""
    work = Workload(forward=0.0, backward=0.0, rows=8, width=16)
    tags = schedules.programs(TO_ORDER["GPipe"][0])
    queued, tagged = train([(ranks, Channel.ORDERED, work), (tags, Channel.TAGGED, work)])
    return torch.equal(queued.gradients, tagged.gradients)
