"""The clinic's judgements: does a diagnosis name rank, call and cause, and does a cure cure?"""

import contextlib
import inspect
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

from course.checks import checking
from course.checks.checking import CheckFailed, hold
from course.checks.memory import BufferCall
from course.lessons.hang_clinic.programs import PATIENTS, patient
from course.lessons.hang_clinic.run_case import FAST, POINT_TO_POINT, World, run_case
from course.lessons.hang_clinic.unseen import MENDS, truths
from course.predictions import ledger

CAUSES = [
    "uneven work", "other order", "other shape", "circle of sends", "branch", "local decision",
    "wrong group", "swallowed exception", "early reuse", "straggler",
]  # fmt: skip
"""The words for a cause; the lesson says what each means."""
TRIES = "05b.tries"
"""Where the ledger keeps every diagnosis that was judged: patient -> [rank, call, cause], ..."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a program."""

    rank: int | None  # whose behaviour departs from the others'; None when all do the same
    call: str  # in which it waits, that it left out, or that moved wrong numbers
    cause: str  # one of CAUSES


class _Truth(NamedTuple):
    """A right diagnosis, with the names that its call may have, two hints, and what a cure does."""

    rank: int | None
    calls: list[str]
    cause: str
    file_hint: str
    cause_hint: str
    rule: str


def _truth(number: int) -> _Truth:
    rows = json.loads(Path(__file__).with_name("patients.json").read_text(encoding="utf-8"))
    return _Truth(**rows[str(number)])


def judge(number: int, diagnosis: Diagnosis) -> None:
    """Print which of rank, call and cause, in this order, is not right yet in a diagnosis.

    A part that is still ``...`` is not judged. When rank and call are right, which the case file
    tells, the program's source is shown: the cause is read there. Every different diagnosis counts
    as a try, and the ledger keeps it.
    """
    program, truth = patient(number).program, _truth(number)
    given = checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
    rank_is_right = str(given.rank) == str(truth.rank)
    call = _bare(given.call)
    call_is_right = call in truth.calls
    case_is_read = rank_is_right and call_is_right
    if case_is_read or os.environ.get("COURSE_GATES") == "open":
        print(inspect.getsource(program))
    if ... in (given.rank, given.call):
        print("Not judged yet: put rank and call for the dots. Once right, they open the source.")
        return
    if case_is_read and given.cause is ...:
        print("Rank and call are right; now the cause.")
        return
    tries = _tried(number, given)
    try:
        rank = "the rank that departs from the others (None if all do the same)"
        hold(rank_is_right, rank, f"rank {given.rank}", truth.file_hint)
        where = "the call in which it waits, that it left out, or that moved wrong numbers"
        hold(call_is_right, where, repr(given.call), truth.file_hint)
        cause = checking.word(given.cause, CAUSES, what="a cause")
        hold(cause == truth.cause, "the cause, by program and case file", cause, truth.cause_hint)
    except CheckFailed as failure:
        print(f"The diagnosis of patient {number} is {failure}")
        return
    who = "all ranks" if truth.rank is None else f"rank {truth.rank}"
    many = "at the first try" if tries == 1 else f"after {tries} tries"
    print(f"✔ Patient {number}, {many}: {truth.cause}, {' or '.join(truth.calls)} on {who}.")


def _bare(call: object) -> str:
    """Return the name of a call alone, of "dist.all_reduce(x)" or "all_reduce #3"."""
    return re.sub(r"(?s)^(torch\.distributed\.)?(dist\.)?|[( ].*", "", str(call))


def _tried(number: int, given: Diagnosis) -> int:
    """Keep a diagnosis in the ledger; return how many different ones there are."""
    tries, words = ledger.recall(TRIES) or {}, [*map(str, astuple(given))]
    mine = tries.setdefault(str(number), [])
    if words not in mine:
        mine.append(words)
        ledger.keep(TRIES, tries)
    return mine.index(words) + 1


def tally() -> list[list]:
    """Return a row for each patient: number, what it is known as, how many diagnoses were tried."""
    tries = ledger.recall(TRIES) or {}
    return [[n, p.known_as, len(tries.get(str(n), [])) or "-"] for n, p in PATIENTS.items()]


# Cures


class _Cure(NamedTuple):
    """What a cure may do, and in which worlds it is tried after the patient's own."""

    kinds: Collection[str]  # the calls that it may make, beside barriers
    worlds: tuple[World, ...]
    more: int = 0  # calls of a rank, beside barriers, beyond the values of rank 1: at most
    barriers: tuple[int, int] = (0, 0)  # of a rank, at least and at most
    apart: float = 0.0  # seconds from one barrier to the next, at least


_DECIDING = ("broadcast", "scatter", "all_gather", "all_gather_into_tensor", "all_reduce")
CURES = {
    1: _Cure(("all_reduce", "all_reduce_coalesced"), (World(4, late=1), World(2, own_sets=True))),
    2: _Cure(POINT_TO_POINT, (World(2), World(4, late=2)), more=1),
    3: _Cure(("all_reduce",), (World(2, late=1),)),
    4: _Cure(POINT_TO_POINT, (World(2, late=1), World(3, late=0))),
    # 20 more: in each step it is told, and broadcast_object_list tells with two calls.
    5: _Cure(
        _DECIDING, (World(3, late=2), World(2, fast_clock=1)), more=20, barriers=(2, 5), apart=0.4
    ),
    6: _Cure(_DECIDING, (World(2), World(3, late=2)), more=1, barriers=(0, 1)),
}
"""By patient."""
PAR = "right values in every world, and no call that is not needed"


def treat(number: int, program: Callable[[], list[float]]) -> None:
    """Try a cure in the lesson: print what `check_cure` says, and go on."""
    heard = io.StringIO()  # it would speak of an exercise
    try:
        with contextlib.redirect_stdout(heard):
            check_cure(number, program)
    except CheckFailed as failure:
        failure.number = ""
        print(f"Patient {number}: the cure is {failure}")
    except NotImplementedError:
        print(f"Patient {number} is not treated yet.")
    else:
        print(f"✔ Patient {number} is cured: {PAR}.")


def check_cure(number: int, program: Callable[[], list[float]]) -> None:
    """Judge a cure in the patient's own world, and in those of `CURES`.

    It ends; every call is waited for, and no buffer is used before that; the values are right, and
    came by calls; and no rank makes more calls, other ones or more barriers than the job needs.
    """
    beyond = "a neighbour's number is fixed: how many ranks are there in this world?"
    raises = {"is none of the": beyond}
    with checking.exercise(f"5b.{number}", program, par=PAR, raises=raises):
        _judge_cure(number, program)


def _mistakes(number: int, rank: int, n: int) -> dict[str, list[float]]:
    """Return what is usually meant in a patient's cure -> the wrong values which that gives."""
    means = "these are means: sums are asked"
    swapped = "the sums are right, and returned the other way round"
    right = "that is the right neighbour's number: the left one's is asked"
    own = "that is the rank's own number: return what was received"
    bad = "the bad sample is in the first sum: it adds nothing"
    mistakes = {
        1: {means: [1.0, 10.0], swapped: [10.0 * n, 1.0 * n]},
        2: {right: [(rank + 1.0) % n], own: [float(rank)]},
        3: {bad: [1.0 * n, 2.0 * n, 3.0 * n]},
        4: {"the first number is 0, and the last one 9": [k + 1.0 for k in range(10)]},
    }
    return mistakes.get(number, {})


def _judge_cure(number: int, program: Callable[[], list[float]]) -> None:
    healthy, cure, rule = patient(number).healthy, CURES[number], _truth(number).rule
    for world in (World(patient(number).world_size), *cure.worlds):
        timeout = checking.patience(4.0 if number == 5 else 1.5)  # patient 5 trains for one to two
        with checking.named(f"{world}"):
            report = run_case(number, program, world=world, timeout=timeout)
        end = "it never ends" if report.kind == "hang" else "an error"
        hold(report.returned, f"{world}: it ends", f"{end}\n{report.report}", rule)
        for rank, (calls, values) in enumerate(zip(report.calls, report.returned, strict=True)):
            _hold_waits(calls, f"{world}: rank {rank}", rule)
            right = healthy(rank, world.world_size)
            wrong = _mistakes(number, rank, world.world_size)
            meanings = [meaning for meaning, those in wrong.items() if those == values]
            meanings += [checking.NO_RETURN if values is None else rule]
            expected = f"{world}: rank {rank} returns {right}"
            hold(values == right, expected, repr(values)[:200], meanings[0])
            budget = len(healthy(1, world.world_size)) + cure.more
            hold_calls(calls, cure, budget, report.seconds, world, f"rank {rank}", rule)


def _hold_waits(calls: Iterable[BufferCall], rank: str, rule: str) -> None:
    for call in calls:
        early = f"{call.touched} uses its buffer before" if call.touched else "nobody waits"
        kept_apart = f"{rank}: each call is waited for, and its buffer not used before"
        luck = f"wait for each; where the values are right, that is luck: {rule}"
        is_kept = call.waited is not None and not call.touched
        hold(is_kept, kept_apart, f"{call.kind}: {early}", luck)


def hold_calls(
    calls: Iterable[BufferCall], cure: _Cure, budget: int, seconds: float, world: World, rank: str,
    rule: str,
) -> None:  # fmt: skip
    """Hold the calls of a rank to those that the job needs, of a run of so many seconds."""
    least, most = cure.barriers
    if cure.apart:
        rate = 1.0 if world.fast_clock is None else FAST
        most = min(most, int(rate * seconds / cure.apart))
    counts = Counter(call.kind for call in calls)
    in_short = f"{rank}: {', '.join(f'{many} x {kind}' for kind, many in counts.items())}"
    barriers = counts.pop("barrier", 0)
    is_of_kinds = {*counts} <= {*cure.kinds}
    usual = {
        "all ranks save in a barrier, and here there is none for it": barriers == 0 < least,
        "that is too seldom: some checkpoint that is due has no barrier": barriers < least,
        "that is too often": barriers > most and least > 0,
        "a barrier makes ranks meet; it does not cure what keeps them apart": barriers > most,
        f"it can be done by {', '.join(cure.kinds)} alone": not is_of_kinds,
        "the job can be done with less": True,
    }
    meaning = next(text for text, fits in usual.items() if fits)
    needed = f"{world}: at most {budget} calls of a rank, out of {', '.join(cure.kinds)}, "
    needed += f"and {least} to {most} barriers"
    fits = is_of_kinds and counts.total() <= budget and least <= barriers <= most
    hold(fits, needed, in_short, f"{meaning}: {rule}")


# Unseen case files


def check_reading(read: Callable[[], dict]) -> None:
    """Judge exercise 5b.7: `read()` returns letter -> (rank, call, mend) of the six jobs.

    Of the healthy job rank and call are None.
    """
    with checking.exercise("5b.7", read, par="rank, call and mend of six jobs") as verdict:
        truth = truths()
        form = f"a dict: each letter of {', '.join(truth)} -> (rank, call, mend)"
        given = checking.answer(checking.ask(read), dict, what=form)
        missing = [letter for letter in truth if letter not in given]
        hold(not missing, form, f"nothing of {', '.join(missing)}", "each job is asked for")
        for letter, right in truth.items():
            parts = given[letter]
            is_triple = isinstance(parts, tuple | list) and len(parts) == 3
            hold(is_triple, f"job {letter}: (rank, call, mend)", repr(parts), "three are asked for")
            rank, call = _rank(parts[0]), _bare(parts[1]).lower()
            not_it = right.ranks.get(str(rank).lower(), "there is no such rank in the report")
            hold(rank == right.rank, f"job {letter}: another rank", f"{parts[0]}", not_it)
            not_there = right.calls.get(call, "the call in which the rank waits, or that it misses")
            hold(call == right.call, f"job {letter}: another call", f"{parts[1]}", not_there)
            mend = checking.word(parts[2], [*MENDS], what=f"job {letter}: a mend")
            no_help = right.mends.get(mend, f"that mends another fault: {MENDS[mend]}")
            hold(mend == right.mend, f"job {letter}: another mend", mend, no_help)
        verdict.reached = "six of six"


def _rank(answer: object) -> object:
    """Read a rank, as 1, 1.0, "rank 1", None or "none"; anything else is returned as it is."""
    whole = int(answer) if isinstance(answer, float) and answer.is_integer() else answer
    figures = re.sub(r"(?i)rank|[\s.]|none", "", str(whole))
    if not figures:
        return None
    return int(figures) if figures.isdigit() else answer
