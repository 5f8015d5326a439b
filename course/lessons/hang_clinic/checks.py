"""The clinic's judgements: does a diagnosis name rank, call and cause, and does a cure cure?"""

import inspect
import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from course.checks import checking
from course.checks.checking import CheckFailed, hold
from course.checks.memory import BufferLog
from course.lessons.hang_clinic.programs import PATIENTS, patient
from course.lessons.hang_clinic.run_case import POINT_TO_POINT, World, run_case
from course.predictions import ledger

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
    """A right diagnosis, with the names that its call may have, and a hint for each part."""

    rank: int | None
    calls: tuple[str, ...]
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
    program = patient(number).program
    checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
    in_place, truth = ... not in (diagnosis.rank, diagnosis.call), _TRUTHS[number]
    right = diagnosis.rank == truth.rank and _is_call(diagnosis.call, truth)
    if right or os.environ.get("COURSE_GATES") == "open":
        print(inspect.getsource(program))
    if not in_place:
        print("Not judged yet: put rank and call for the dots. Once right, they open the source.")
    elif right and diagnosis.cause is ...:
        print("Rank and call are right; now the cause.")
    else:
        try:
            check_diagnosis(number, diagnosis)
        except CheckFailed as failure:
            print(f"The diagnosis of patient {number} is {failure}")


def check_diagnosis(number: int, diagnosis: Diagnosis) -> None:
    """Judge the diagnosis of a patient: which of rank, call and cause, in this order, is not right?

    Every different diagnosis counts as a try, and the ledger keeps it.
    """
    given = checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
    tries, truth = _tried(number, given), _TRUTHS[number]
    if isinstance(given.rank, str):
        written = "write it without quotation marks"
        raise CheckFailed("a rank: a number, or None", repr(given.rank), written)
    hold(
        given.rank == truth.rank,
        "the rank that departs from the others (None if all do the same)",
        f"rank {given.rank}",
        truth.rank_hint,
    )
    hold(
        _is_call(given.call, truth),
        "the call in which that rank waits, that it left out, or that moved wrong numbers; named "
        "as in torch.distributed",
        repr(given.call),
        truth.call_hint,
    )
    cause = checking.word(given.cause, list(CAUSES), what="a cause")
    words = f"{cause}: {CAUSES[cause]}"
    hold(cause == truth.cause, "the cause, by program and case file", words, truth.cause_hint)
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


def _is_call(name: str, truth: _Truth) -> bool:
    call = str(name).removeprefix("torch.distributed.").removeprefix("dist.")
    return call.partition("(")[0].partition(" ")[0] in truth.calls


# Cures


@dataclass(frozen=True, slots=True)
class _Cure:
    """What a cure may do, and in which worlds it is tried after the patient's own."""

    rule: str
    """What a cure of this patient rests on."""
    kinds: Collection[str]
    """The calls that it may make, beside barriers."""
    worlds: tuple[World, ...]
    more: int = 0
    """Calls of a rank, beside barriers, beyond the values that rank 1 returns: at most."""
    barriers: tuple[int, int] = (0, 0)
    """How many a rank makes, at least and at most."""
    mistakes: Callable[[int, int], dict[str, list[float]]] = lambda rank, n: {}
    """(rank, world_size) -> what is usually meant -> the wrong values which that gives."""


_DECIDING = ("broadcast", "scatter", "all_gather", "all_gather_into_tensor", "all_reduce")
CURES = {
    1: _Cure(
        "all ranks sum the same tensor in the same call: give the calls an order that depends on "
        "no rank, and on no set, whose order differs from process to process",
        ("all_reduce", "all_reduce_coalesced"),
        (World(2), World(4, late=1), World(3, own_sets=True)),
        mistakes=lambda rank, n: {
            "these are means: sums are asked": [1.0, 10.0],
            "the sums are right, and returned the other way round": [10.0 * n, 1.0 * n],
        },
    ),
    2: _Cure(
        "somebody must receive before it sends, or send and receive must be started together; each "
        "rank sends one message to its right and receives one from its left",
        POINT_TO_POINT,
        (World(4), World(2), World(3, late=2)),
        more=1,
        mistakes=lambda rank, n: {
            "that is the right neighbour's number: the left one's is asked": [(rank + 1.0) % n],
            "that is the rank's own number: return what was received": [float(rank)],
        },
    ),
    3: _Cure(
        "a rank that has nothing to add takes part all the same, and adds zero",
        ("all_reduce",),
        (World(2), World(3, late=1)),
        mistakes=lambda rank, n: {
            "the bad sample is in the first sum: it adds nothing": [1.0 * n, 2.0 * n, 3.0 * n]
        },
    ),
    4: _Cure(
        "a buffer is the send's until its wait: wait before you fill it anew, or give each send a "
        "buffer of its own",
        POINT_TO_POINT,
        (World(2), World(3, late=1), World(3, late=0)),
    ),
    5: _Cure(
        "a decision that all must take alike is made once and told, or rests on something that all "
        "have alike, such as the number of the step. Ten steps take a second and a little more, so "
        "two or three checkpoints are due: the age of the *last* one is asked for",
        _DECIDING,
        (World(3, late=2), World(3, fast_clock=1), World(2, fast_clock=0)),
        more=20,  # in each step it is told; broadcast_object_list tells with two calls
        barriers=(2, 5),
    ),
    6: _Cure(
        "all ranks go through the same number of batches, as many as the rank with the most has; a "
        "rank that has no items left takes part with a count of zero",
        _DECIDING,
        (World(3), World(2), World(4, late=3)),
        more=1,
        barriers=(0, 1),
    ),
}
"""By patient."""
KEPT = "keep the handle and wait for it: without, the message may never arrive"
"""What befits a call that nobody waited for; whether it hangs then differs from run to run."""
BARRIER = "a barrier makes ranks meet; it does not cure what keeps them apart"
PAR = "right values in every world, and no call that is not needed"


def treat(number: int, program: Callable[[], list[float]]) -> None:
    """Try a cure in the lesson: print what `check_cure` says, and go on."""
    try:
        _judge_cure(number, program)
    except CheckFailed as failure:
        print(f"Patient {number}: the cure is {failure}")
    except NotImplementedError:
        print(f"Patient {number} is not treated yet.")
    else:
        ledger.passed(f"5b.{number}")
        print(f"✔ Patient {number} is cured: {PAR}.")


def check_cure(number: int, program: Callable[[], list[float]]) -> None:
    """Judge a cure in the patient's own world, and in those of `CURES`.

    It ends; every call is waited for, and no buffer is used before that; the values are right, and
    came by calls; and no rank makes more calls, other ones or more barriers than the job needs.
    """
    with checking.exercise(f"5b.{number}", program, par=PAR):
        _judge_cure(number, program)


def _judge_cure(number: int, program: Callable[[], list[float]]) -> None:
    healthy, cure = patient(number).healthy, CURES[number]
    for world in (World(patient(number).world_size), *cure.worlds):
        n = world.world_size
        timeout = checking.patience(4.0 if number == 5 else 1.5)  # patient 5 trains for one to two
        report = run_case(number, program, world=world, timeout=timeout, log=BufferLog)
        still_open = [sum(call.waited is None for call in calls) for calls in report.calls]
        several = report.kind == "hang" and max(still_open, default=0) > 1
        hold(
            report.returned,
            f"{world}: it ends",
            f"{'it never ends' if report.kind == 'hang' else 'an error'}\n{report.report}",
            f"{cure.rule}; {KEPT}" if several else cure.rule,
        )
        for rank, (calls, values) in enumerate(zip(report.calls, report.returned, strict=True)):
            for call in calls:
                done = call.waited is not None
                hold(
                    done, f"{world}: every call is waited for", f"rank {rank}: no {call.kind}", KEPT
                )
                hold(
                    not call.touched,
                    f"{world}: no buffer is used while it is under way",
                    f"rank {rank}: {call.touched} uses the buffer of a {call.kind} before its wait",
                    f"a race: where the values are right, that is luck: {cure.rule}",
                )
            right, wrong = healthy(rank, n), cure.mistakes(rank, n)
            known = [meaning for meaning, those in wrong.items() if those == values]
            known += [checking.NO_RETURN] if values is None else []
            expected = f"{world}: rank {rank} returns {right}"
            hold(values == right, expected, repr(values)[:200], [*known, cure.rule][0])
            made = Counter(call.kind for call in calls)
            barriers, (least, most) = made.pop("barrier", 0), cure.barriers
            allowed = f"from {least} to {most} barriers of a rank" if most else "no barrier"
            hold(
                least <= barriers <= most,
                f"{world}: {allowed}",
                f"{barriers} on rank {rank}",
                cure.rule if most else f"{BARRIER}: {cure.rule}",
            )
            budget = len(healthy(1, n)) + cure.more
            hold(
                {*made} <= {*cure.kinds} and made.total() <= budget,
                f"{world}: at most {budget} calls of a rank, out of {', '.join(cure.kinds)}",
                f"rank {rank}: {', '.join(f'{k} x {kind}' for kind, k in made.items())}",
                f"the job can be done with less: {cure.rule}",
            )
