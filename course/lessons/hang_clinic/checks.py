"""The checks of the hang clinic: does a diagnosis name the rank, the call and the cause?"""

import inspect
import os
from dataclasses import dataclass

from course import checking
from course.lessons.hang_clinic.programs import PATIENTS

CAUSES = {
    "uneven work": "by their data the ranks have different numbers of calls to make",
    "other order": "the same calls, in different orders",
    "other shape": "tensors of different shapes in one call",
    "circle of sends": "every rank sends first and waits for a receiver",
    "branch": "a call that all must make stands under an `if` that asks for the rank itself",
    "local decision": "all ask the same `if`, of something that each has for itself: a clock, "
    "a loss, a file",
    "wrong group": "a rank makes its call on another group than its partner",
    "swallowed exception": "an exception was caught, and with it a call was skipped",
    "early reuse": "a buffer was changed too soon",
    "straggler": "nothing is wrong but time: a rank is late",
}
"""The words for a cause, and what each means."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a program."""

    rank: int | None
    """The rank whose behaviour departs from the others'; None when all do the same."""
    call: str
    """The torch.distributed call in which it goes wrong, like "all_reduce"."""
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
    "two in a dict": _Truth(
        1, ("all_reduce",), "other order",
        "each value is a sum, but of what? 12 = 1 + 10 + 1: add up which tensors met",
        "nobody waits here: two ranks return the same pair, one returns it the other way round",
        "only one kind of call is in the program",
    ),
    "pass it on": _Truth(
        None, ("send",), "circle of sends",
        "every rank stands on the same line; who would have to move first?",
        "all three do the same: there is no odd one out",
        "on which line do they stand?",
    ),
    "best effort": _Truth(
        1, ("all_reduce",), "swallowed exception",
        "all ranks have three batches; who finished with fewer calls, without complaint? open it "
        "up and look for `except`",
        "two ranks wait for a third that has finished: that one skipped a call",
        "which call did it skip?",
    ),
    "double buffer": _Truth(
        0, ("isend",), "early reuse",
        "all numbers are the last one: what was in the buffer when it was really sent?",
        "nobody waits here, and the receiver does as it should: who fills the buffer?",
        "which call borrows the buffer?",
    ),
    "own clock": _Truth(
        1, ("barrier", "all_reduce"), "local decision",
        "all ranks run the same `if`. On what does it depend, and is that the same on all of them?",
        "two ranks wait in the same call, one in another",
        "name the call that two ranks made and the third did not",
    ),
    "4097 items": _Truth(
        0, ("all_reduce",), "uneven work",
        "4097 = 4 x 1024 + 1, in batches of 256: how many batches does each rank have?",
        "three ranks are at the end of the epoch; who has a batch left?",
        "the others wait where they should; which call does the odd rank make once more?",
    ),
}  # fmt: skip


def judge(name: str, diagnosis: Diagnosis) -> None:
    """Judge a diagnosis in the lesson: print what `check_diagnosis` says, and go on.

    A part that is still ``...`` is not judged yet; with any other the program's source is shown.
    """
    parts = (diagnosis.rank, diagnosis.call, diagnosis.cause)
    if parts != (..., ..., ...) or os.environ.get("COURSE_GATES") == "open":
        print(inspect.getsource(PATIENTS[name].program))
    if ... in parts:
        print("Not judged yet: put rank, call and cause for the dots. The first opens the source.")
        return
    try:
        check_diagnosis(name, diagnosis)
    except checking.CheckFailed as failure:
        print(failure)


def check_diagnosis(name: str, diagnosis: Diagnosis) -> None:
    """Judge the diagnosis of a patient: which of rank, call and cause is not right?"""
    number = list(_TRUTHS).index(name) + 1
    with checking.exercise(f"5b.{number}", par="rank, call and cause named") as verdict:
        given = checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
        truth = _TRUTHS[name]
        if given.cause not in CAUSES:
            raise checking.CheckFailed(
                f"a cause out of {', '.join(CAUSES)}",
                repr(given.cause),
                "a cause is one of the words of CAUSES; print it",
            )
        if given.cause != truth.cause:
            got = f"{given.cause!r}: {CAUSES[given.cause]}"
            raise checking.CheckFailed("the cause, by program and case file", got, truth.cause_hint)
        if given.rank != truth.rank:
            raise checking.CheckFailed(
                "the rank that departs from the others (None if all do the same)",
                f"rank {given.rank}" if given.rank is not None else "None",
                truth.rank_hint,
            )
        call = str(given.call).removeprefix("torch.distributed.").removeprefix("dist.")
        if call.removesuffix("()") not in truth.calls:
            raise checking.CheckFailed(
                "the call in which that rank departs from the others, named as in "
                "torch.distributed",
                repr(given.call),
                truth.call_hint,
            )
        who = "all ranks" if truth.rank is None else f"rank {truth.rank}"
        verdict.reached = f"{truth.cause}, {' or '.join(truth.calls)} on {who}"
