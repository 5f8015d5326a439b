"""The checks of the hang clinic: does a diagnosis name the rank, the call and the cause?"""

from dataclasses import dataclass

from labkit.course import checking

CAUSES = {
    "fewer calls": "a rank makes fewer calls than the others, because it has less to do",
    "other order": "the ranks make the same calls, in different orders",
    "other shape": "the ranks give tensors of different shapes to one call",
    "other dtype": "the ranks give tensors of different types to one call",
    "circle of sends": "every rank sends first and waits for somebody to receive",
    "branch": "a call that all must make stands inside a branch that only some enter",
    "wrong group": "a rank makes its call on another group than its partner",
    "swallowed exception": "an exception was caught, and with it a call was skipped",
    "early reuse": "a buffer was changed before the wait on its isend had ended",
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


_TRUTH = {
    "uneven batches": Diagnosis(2, "all_reduce", "fewer calls"),
    "two in a dict": Diagnosis(1, "all_reduce", "other order"),
    "last batch": Diagnosis(1, "all_reduce", "other shape"),
    "count samples": Diagnosis(0, "all_reduce", "other dtype"),
    "pass it on": Diagnosis(None, "send", "circle of sends"),
    "checkpoint": Diagnosis(0, "barrier", "branch"),
    "subgroup": Diagnosis(1, "all_reduce", "wrong group"),
    "best effort": Diagnosis(1, "all_reduce", "swallowed exception"),
    "double buffer": Diagnosis(0, "isend", "early reuse"),
    "slow reader": Diagnosis(2, "all_reduce", "straggler"),
}
_LOOK = {
    "fewer calls": "compare how many calls each rank entered, and who has finished",
    "other order": "each value is a sum, but of what? add up by hand which tensors met",
    "other shape": "the message names two lengths in bytes; which rank's tensor is shorter?",
    "other dtype": "1 as a float has the bits 0x3f800000: a sum of bits read as another type",
    "circle of sends": "every rank stands on the same line; who would have to move first?",
    "branch": "read which call each rank waits in, and under which `if` that call stands",
    "wrong group": "the case file names a group for each waiting call; are they the same?",
    "swallowed exception": "who finished, with fewer calls and without complaint? open it up "
    "and look for `except`",
    "early reuse": "all numbers are the last one: what was in the buffer when it was sent?",
    "straggler": "is the missing rank in a call at all? give it more time and run it again",
}


def check_diagnosis(number: int, name: str, diagnosis: Diagnosis) -> None:
    """Judge the diagnosis of a patient.

    Raises:
        CheckFailed: Says which of rank, call and cause is not right, and where to look.
    """
    with checking.exercise(f"5b.{number}", par="rank, call and cause named") as verdict:
        checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
        if diagnosis.cause not in CAUSES:
            raise checking.CheckFailed(
                f"a cause out of {', '.join(CAUSES)}",
                repr(diagnosis.cause),
                "a cause is one of the words of CAUSES; print it",
            )
        truth = _TRUTH[name]
        if diagnosis.cause != truth.cause:
            raise checking.CheckFailed(
                "the cause that the case file shows",
                f"{diagnosis.cause!r}: {CAUSES[diagnosis.cause]}",
                _LOOK[truth.cause],
            )
        if diagnosis.rank != truth.rank:
            raise checking.CheckFailed(
                "the rank that departs from the others (None if all do the same)",
                f"rank {diagnosis.rank}",
                "the rank that waits is the victim; look for the one that it waits for",
            )
        if diagnosis.call != truth.call:
            raise checking.CheckFailed(
                "the call in which that rank departs from the others",
                repr(diagnosis.call),
                "name it as in torch.distributed, without `dist.` and brackets",
            )
        verdict.reached = f"{truth.cause}, {_who(truth)}"


def _who(truth: Diagnosis) -> str:
    return f"{truth.call} on " + ("all ranks" if truth.rank is None else f"rank {truth.rank}")
