"""The clinic's judgements: does a diagnosis name rank, call and cause, and does a cure cure?"""

import inspect
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import partial
from typing import Self
from unittest import mock

import torch.distributed as dist

from course.checks import checking, memory
from course.checks.checking import CheckFailed
from course.lessons.hang_clinic.programs import PATIENTS
from course.lessons.hang_clinic.run_case import POINT_TO_POINT, CaseReport, World, run_case
from course.predictions import ledger
from labkit.measure.calls import Call

CAUSES = {
    "uneven work": "the ranks have different amounts of data, so they make different "
    "numbers of calls",
    "other order": "the same calls, in different orders",
    "other shape": "tensors of different shapes in one call",
    "circle of sends": "every rank sends first and waits for a receiver",
    "branch": "a call that all must make stands under an `if` that tests the rank's number",
    "local decision": "an `if` depends on something that can differ between the ranks: a "
    "clock, a loss, a file",
    "wrong group": "a rank makes its call in one group, its partner in another",
    "swallowed exception": "an exception was caught, and with it a call was skipped",
    "early reuse": "a buffer was changed too soon",
    "straggler": "all calls are right, but one rank is late",
}
"""The words for a cause, and what each means."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a program."""

    rank: int | None
    """The rank whose behaviour departs from the others'; None when all do the same."""
    call: str
    """The torch.distributed call in which it waits, that it left out, or that moved wrong
    numbers."""
    cause: str
    """A key of CAUSES."""


@dataclass(frozen=True, slots=True)
class _Truth:
    """A right diagnosis, and where to look when one of its parts is missed."""

    rank: int | None
    calls: tuple[str, ...]
    """The call, and other names by which one may well call it."""
    cause: str
    cause_hint: str
    rank_hint: str
    call_hint: str


_TRUTHS = {
    1: _Truth(
        1, ("all_reduce",), "other order",
        "each value is a sum, but of what? 12 = 1 + 10 + 1: add up which tensors met",
        "nobody waits here: two ranks return the same pair, one returns it the other way round",
        "only one kind of call is in the program",
    ),
    2: _Truth(
        None, ("send",), "circle of sends",
        "every rank stands on the same line; who would have to move first?",
        "all three do the same: there is no odd one out",
        "on which line do they stand?",
    ),
    3: _Truth(
        1, ("all_reduce",), "swallowed exception",
        "all ranks have three batches; who finished with fewer calls, without complaint? What "
        "lets a rank go on after something failed?",
        "two ranks wait for a third that has finished: that one skipped a call",
        "which call did it skip?",
    ),
    4: _Truth(
        0, ("isend", "send"), "early reuse",
        "all numbers are the last one: what was in the buffer when it was really sent?",
        "nobody waits here, and the receiver does as it should: who fills the buffer?",
        "which call borrows the buffer?",
    ),
    5: _Truth(
        1, ("barrier", "all_reduce"), "local decision",
        "all ranks run the same `if`. On what does it depend, and is that the same on all of them?",
        "two ranks wait in the same call, one in another",
        "in which call does the odd rank wait, while the two others wait in another?",
    ),
    6: _Truth(
        0, ("all_reduce",), "uneven work",
        "4097 = 4 x 1024 + 1, in batches of 256: how many batches does each rank have?",
        "three ranks are at the end of the epoch; who has a batch left?",
        "the others wait where they should; which call does the odd rank make once more?",
    ),
}  # fmt: skip


TRIES = "05b.tries"
"""Where the ledger keeps every diagnosis that was judged: patient -> [rank, call, cause], ..."""


def judge(number: int, diagnosis: Diagnosis) -> None:
    """Judge a diagnosis in the lesson: print what `check_diagnosis` says, and go on.

    A part that is still ``...`` is not judged yet. When rank and call are right, which the case
    file tells, the program's source is shown: the cause is read there.
    """
    if number not in PATIENTS:
        raise ValueError(f"no patient {number!r}; there are: {', '.join(map(str, PATIENTS))}.")
    checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
    in_place = ... not in (diagnosis.rank, diagnosis.call)
    right = in_place and _place_of(diagnosis, _TRUTHS[number]) is None
    if right or os.environ.get("COURSE_GATES") == "open":
        print(inspect.getsource(PATIENTS[number].program))
    if not in_place:
        print("Not judged yet: put rank and call for the dots. Once right, they open the source.")
    elif right and diagnosis.cause is ...:
        print("Rank and call are right; now the cause.")
    else:
        try:
            check_diagnosis(number, diagnosis)
        except CheckFailed as failure:
            print(failure)


def check_diagnosis(number: int, diagnosis: Diagnosis) -> None:
    """Judge the diagnosis of a patient: which of rank, call and cause is not right?

    Every different diagnosis counts as a try, and the ledger keeps it.
    """
    given = checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
    tries = _tried(number, given)
    try:
        _judge_diagnosis(given, _TRUTHS[number])
    except CheckFailed as failure:
        failure.number = f"(the diagnosis of patient {number})"
        raise
    truth = _TRUTHS[number]
    who = "all ranks" if truth.rank is None else f"rank {truth.rank}"
    many = "at the first try" if tries == 1 else f"after {tries} tries"
    print(f"✔ Patient {number}, {many}: {truth.cause}, {' or '.join(truth.calls)} on {who}.")


def _tried(number: int, given: Diagnosis) -> int:
    """Keep a diagnosis in the ledger; return how many different ones there are."""
    tries = ledger.recall(TRIES) or {}
    mine = tries.setdefault(str(number), [])
    if (now := [str(given.rank), str(given.call), str(given.cause)]) not in mine:
        mine.append(now)
        ledger.keep(TRIES, tries)
    return mine.index(now) + 1


def tally() -> list[list]:
    """Return a row for each patient: number, what it is known as, how many diagnoses were tried."""
    tries = ledger.recall(TRIES) or {}
    return [[n, p.known_as, len(tries.get(str(n), [])) or "-"] for n, p in PATIENTS.items()]


def _judge_diagnosis(given: Diagnosis, truth: _Truth) -> None:
    if wrong := _place_of(given, truth):
        raise wrong
    cause = given.cause.strip(" .").lower() if isinstance(given.cause, str) else given.cause
    if cause not in CAUSES:
        raise CheckFailed(
            f"a cause out of {', '.join(CAUSES)}",
            repr(given.cause),
            "a cause is one of these words; the lesson's table says what each of them means",
        )
    if cause != truth.cause:
        got = f"{cause!r}: {CAUSES[cause]}"
        raise CheckFailed("the cause, by program and case file", got, truth.cause_hint)


def _place_of(given: Diagnosis, truth: _Truth) -> CheckFailed | None:
    """Return what is wrong with the rank or the call, which the case file tells; else None."""
    if isinstance(given.rank, str):
        return CheckFailed(
            "a rank: a number, or None", repr(given.rank), "write it without quotation marks"
        )
    if given.rank != truth.rank:
        return CheckFailed(
            "the rank that departs from the others (None if all do the same)",
            f"rank {given.rank}" if given.rank is not None else "None",
            truth.rank_hint,
        )
    call = str(given.call).removeprefix("torch.distributed.").removeprefix("dist.")
    if call.partition("(")[0].partition(" ")[0] not in truth.calls:
        return CheckFailed(
            "the call in which that rank waits, that it left out, or that moved wrong numbers; "
            "named as in torch.distributed",
            repr(given.call),
            truth.call_hint,
        )
    return None


# Cures


@dataclass(frozen=True, slots=True)
class _Cure:
    """What a cure may do, and in which worlds it is tried after the patient's own."""

    kinds: Collection[str]
    """The calls that it may make."""
    most: Callable[[World], int]
    """Calls of a rank, without barriers."""
    worlds: tuple[World, ...]
    barriers: tuple[int, int] = (0, 0)
    """How many it makes, at least and at most."""
    rule: str = ""
    """What a cure of this patient rests on."""
    due: str = ""
    """How many barriers are due, and why."""


_DECIDING = ("broadcast", "scatter", "all_gather", "all_gather_into_tensor", "all_reduce")
CURES = {
    1: _Cure(
        ("all_reduce", "all_reduce_coalesced"), lambda world: 2,
        (World(2), World(3, late=1), World(4)),
        rule="all ranks sum the same tensor in the same call: give the calls an order that does "
        "not depend on the rank",
    ),
    2: _Cure(
        POINT_TO_POINT, lambda world: 2, (World(4), World(2), World(5), World(3, late=2)),
        rule="somebody must receive before it sends, or send and receive must be started "
        "together; each rank sends one message and receives one",
    ),
    3: _Cure(
        ("all_reduce",), lambda world: 3, (World(2), World(4), World(3, late=1)),
        rule="a rank that has nothing to add takes part all the same, and adds zero",
    ),
    4: _Cure(
        POINT_TO_POINT, lambda world: 10, (World(2), World(3, late=1), World(3, late=0)),
        rule="a buffer is the send's until its wait: wait before you fill it anew, or give each "
        "send a buffer of its own",
    ),
    5: _Cure(
        (*_DECIDING, "barrier"), lambda world: 20,  # a step sums, and is decided on
        (World(3, late=2), World(3, fast_clock=1), World(2, fast_clock=0)), barriers=(2, 5),
        rule="a decision that all must take alike is made once and told, or rests on something "
        "that all have alike, such as the number of the step",
        due="ten steps take a second and a little more, so two or three checkpoints are due. Is "
        "the age of the *last* one asked for, in fractions of a second?",
    ),
    6: _Cure(
        (*_DECIDING, "barrier"), lambda world: len(PATIENTS[6].healthy(0, world.world_size)) + 1,
        (World(3), World(2), World(4, late=3)), barriers=(0, 1),
        rule="all ranks go through the same number of batches, as many as the rank with the most "
        "has; a rank that has no items left takes part with a count of zero",
    ),
}  # fmt: skip
"""By patient."""
KEPT = "keep the handle and wait for it: without, the message may never arrive"
"""What befits a call that nobody waited for; whether it hangs then differs from run to run."""
CARRIED = 1, 2, 3
"""The patients that are tried with other numbers: sums, and what came from a neighbour."""
SOONEST = 0.25
"""Seconds between two checkpoints of patient 5, at least: 0.4 by a clock that is 1.4 times as fast
are 0.29."""
PATIENCE = {5: 4.0}
"""Seconds after which a cure hangs, where it is not 1.5; patient 5 trains for one to two."""


@dataclass(frozen=True, slots=True)
class _TimedCall(memory.BufferCall):
    when: float = 0.0
    """Seconds on the rank's true clock."""
    numbers: tuple[float, ...] = ()
    """What the call was given to send or to sum."""


_true_clock = time.monotonic  # a world may have another one


def _added(rank: int) -> float:
    """Return what is added to all numbers of a rank, in a run of its own."""
    return 1.0 + rank


class _TimedLog(memory.BufferLog):
    """Call log that knows what touched buffers, and when each call was made with which numbers.

    It refuses new groups. `adds`: add `_added` to all that a rank is about to send or to sum.
    """

    def __init__(self, *, adds: bool = False) -> None:
        super().__init__()
        self._noted: list[tuple[float, tuple[float, ...]]] = []
        self._adds = adds
        self._alone = mock.patch.object(dist, "new_group", _no_group)

    def __enter__(self) -> Self:
        self._alone.start()
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._alone.stop()

    @property
    def calls(self) -> list[_TimedCall]:
        """The calls, in the order in which they were made."""
        return [
            _TimedCall(*(getattr(call, field.name) for field in fields(call)), *noted)
            for call, noted in zip(super().calls, self._noted, strict=False)
        ]

    def before_call(self, kind: str, reads: list, writes: list) -> None:
        """Note when a call is made, and with which numbers."""
        given = writes if kind.startswith("all_reduce") else reads  # what is summed in place
        for tensor in given if self._adds else ():
            tensor += _added(dist.get_rank())
        super().before_call(kind, reads, writes)
        numbers = [number for tensor in given for number in tensor.flatten().tolist()]
        self._noted.append((_true_clock(), tuple(numbers)))


def _no_group(*_: object, **__: object) -> None:
    raise CheckFailed(
        "no group but the one that is there",
        "a call of new_group",
        "a new group is made by calls of all ranks, and the job does not need one",
    )


def treat(number: int, program: Callable[[], list[float]]) -> None:
    """Try a cure in the lesson: print what `check_cure` says, and go on."""
    try:
        check_cure(number, program)
    except CheckFailed as failure:
        print(failure)
    except NotImplementedError:
        print(f"Patient {number} is not treated yet.")


def check_cure(number: int, program: Callable[[], list[float]]) -> None:
    """Judge a cure: it ends with the right values, in several worlds, and with no call too many."""
    par = "it ends, its values are right, and no call is made that is not needed"
    with checking.exercise(f"5b.{number}", program, par=par):
        cure = CURES[number]
        for world in (World(PATIENTS[number].world_size), *cure.worlds):
            report = _ended(number, program, world)
            for rank, calls in enumerate(report.calls):
                _judge_calls(calls, rank, world, cure)
            made_up = not any(report.calls) and None not in report.returned
            if report.kind == "wrong values" and not made_up:
                _judge_values(number, report, world, cure)
            _judge_alike(number, report, world, cure)
        if number in CARRIED:
            _judge_other_numbers(number, program)


def _ended(
    number: int, program: Callable[[], list[float]], world: World, *, adds: bool = False
) -> CaseReport:
    """Run a cure, which has to end; `adds`: as in `_TimedLog`."""
    timeout = checking.patience(PATIENCE.get(number, 1.5))
    log = partial(_TimedLog, adds=adds)
    report = run_case(number, program, world=world, timeout=timeout, log=log)
    if report.kind in ("hang", "error"):
        _judge_end(report, world, CURES[number])
    return report


def _judge_other_numbers(number: int, program: Callable[[], list[float]]) -> None:
    """Hold a job to other numbers: what it returns must come out of its calls."""
    world = World(PATIENTS[number].world_size)
    report, n = _ended(number, program, world, adds=True), world.world_size
    for rank, got in enumerate(report.returned):
        senders = [(rank - 1) % n] if number == 2 else range(n)
        more = sum(map(_added, senders))
        expected = [value + more for value in PATIENTS[number].healthy(rank, n)]
        if list(got) != expected:
            raise CheckFailed(
                f"{world}, whose numbers are 1, 2 and 3 larger: rank {rank} returns {expected}",
                repr(got)[:200],
                "what is returned is not what the calls brought: it is made up, or right only as "
                "long as all ranks have equal numbers",
            )


def _judge_end(report: CaseReport, world: World, cure: _Cure) -> None:
    """Say of a program that did not end where it stands, and what usually keeps it from its end."""
    said = {"hang": "it never ends", "error": "an error"}[report.kind]
    open_calls = [[c for c in calls if c.waited is None] for calls in report.calls]
    under_way = report.kind == "hang" and any(len(calls) > 1 for calls in open_calls)
    rule = f"{cure.rule}; {KEPT}" if under_way else cure.rule
    raise CheckFailed(f"{world}: it ends", f"{said}\n{report.report}", rule)


def _judge_values(number: int, report: CaseReport, world: World, cure: _Cure) -> None:
    """Say what a program returned instead of the right values."""
    n = world.world_size
    rank, got = next(
        (rank, got)
        for rank, got in enumerate(report.returned)
        if got != PATIENTS[number].healthy(rank, n)
    )
    if got is None:
        raise CheckFailed(
            f"{world}: a list from each rank", "None", "the function ends without `return`"
        )
    raise CheckFailed(
        f"{world}: rank {rank} returns {PATIENTS[number].healthy(rank, n)}",
        repr(got)[:200],
        f"{cure.rule}. If it does so: are other numbers sent or returned than before, or sent to "
        "another rank?",
    )


def _judge_calls(calls: tuple[Call, ...], rank: int, world: World, cure: _Cure) -> None:
    """Refuse calls that the cure does not need."""
    barriers = [call for call in calls if call.kind == "barrier"]
    least, most = cure.barriers
    if len(barriers) > most:
        raise CheckFailed(
            f"{world}: {most} barriers of a rank at most" if most else f"{world}: no barrier",
            f"{len(barriers)} on rank {rank}",
            cure.due
            or "a barrier makes ranks meet; it does not cure what keeps them apart, and everybody "
            f"waits in it. What does: {cure.rule}",
        )
    if len(barriers) < least:
        raise CheckFailed(
            f"{world}: the program still does what it did",
            f"rank {rank} makes {len(barriers) or 'no'} barrier"
            + ("" if barriers else ": no checkpoint is ever written"),
            f"the cure took away what the program is for: {cure.due}",
        )
    times = [call.when for call in barriers]
    soonest = min((after - at for at, after in itertools.pairwise(times)), default=SOONEST)
    if soonest < SOONEST:
        raise CheckFailed(
            f"{world}: a checkpoint when the last one is about 0.4 s old",
            f"one {soonest:.2f} s after the one before, on rank {rank}",
            f"more checkpoints than are due, or sooner: {cure.due}",
        )
    if others := [call.kind for call in calls if call.kind not in (*cure.kinds, "barrier")]:
        raise CheckFailed(
            f"{world}: calls out of {', '.join(dict.fromkeys(cure.kinds))}",
            f"{others[0]} on rank {rank}",
            f"the job can be done with less. {cure.rule.capitalize()}",
        )
    made = len(calls) - len(barriers)
    if made > cure.most(world):
        raise CheckFailed(
            f"{world}: {cure.most(world)} calls of a rank at most",
            f"{made} on rank {rank}",
            f"more calls than the job needs. {cure.rule.capitalize()}",
        )
    for call in calls:
        if touched := getattr(call, "touched", None):
            raise CheckFailed(
                f"{world}: no buffer is used while it is under way",
                f"rank {rank}: {touched} uses the buffer of a {call.kind} before its wait",
                f"a race: where the values are right, that is luck. {cure.rule.capitalize()}",
            )
    if lost := [call.kind for call in calls if call.waited is None]:
        raise CheckFailed(
            f"{world}: every call is waited for",
            f"a {lost[0]} on rank {rank} is not",
            KEPT,
        )


def _judge_alike(number: int, report: CaseReport, world: World, cure: _Cure) -> None:
    """Hold the job to be done: the bytes were summed, or sent, and not made up."""
    n = world.world_size
    for rank, calls in enumerate(report.calls):
        moved = sum(call.nbytes for call in calls if call.kind != "barrier")
        sends = [call.peer for call in calls if call.kind == "send"]
        numbers = [one for call in calls if call.kind == "send" for one in call.numbers]
        given = [one for call in calls if call.kind != "barrier" for one in call.numbers]
        kinds_made = Counter(call.kind for call in calls)
        right = {
            1: moved == 32,
            2: sends == [(rank + 1) % n] and numbers == [rank],
            3: moved == 12 and sorted(given) == [0.0 if rank == 1 else 1.0, 2.0, 3.0],
            4: set(sends) == ({1} if rank == 0 else set())
            and numbers == (list(range(10)) if rank == 0 else []),
            5: kinds_made["all_reduce"] >= 10
            and sum(given) >= 10
            and (world != cure.worlds[-1] or calls[0].kind != "barrier"),  # a fast clock shows more
            6: moved >= 4 * len(PATIENTS[6].healthy(rank, n))
            and sum(given) >= len(range(rank, 4097, n)),
        }[number]
        if not right:
            told = [f"{count} x {kind}" for kind, count in kinds_made.items()]
            raise CheckFailed(
                f"{world}: every rank still sums or sends its own numbers, all of them",
                f"rank {rank}: {', '.join(told) or 'no call'}; {moved} bytes"
                + (f"; it sends {numbers}" if numbers else ""),
                "the values must come from the other ranks, by the program's own calls",
            )
