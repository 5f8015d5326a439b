"""The checks of the hang clinic: does a diagnosis name the rank, the call and the cause?"""

from dataclasses import dataclass

from course import checking

CAUSES = {
    "uneven work": "the ranks make different numbers of calls: they do not have equally much to do",
    "other order": "the ranks make the same calls, in different orders",
    "other shape": "the ranks give tensors of different shapes to one call",
    "other dtype": "the ranks give tensors of different types to one call",
    "circle of sends": "every rank sends first and waits for somebody to receive",
    "branch": "a call that all must make, or none, stands in a branch that only some ranks enter",
    "local decision": "each rank decides for itself whether to make a call: by its clock, its loss",
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


@dataclass(frozen=True, slots=True)
class _Truth:
    """A right diagnosis, and where to look when one of its parts is missed."""

    rank: int | None
    calls: tuple[str, ...]
    """The call, and other names by which one may well call it."""
    cause: str
    look: str
    """For the cause."""
    who: str
    """For the rank."""
    where: str
    """For the call."""


_TRUTHS = {
    "uneven batches": _Truth(
        2, ("all_reduce",), "uneven work",
        "compare how many calls each rank entered, and who has finished",
        "two ranks wait in call #3; somebody has finished without it",
        "which call did the finished rank not make?",
    ),
    "two in a dict": _Truth(
        1, ("all_reduce",), "other order",
        "each value is a sum, but of what? 12 = 1 + 10 + 1: add up which tensors met",
        "nobody waits here: two ranks return the same pair, one returns it the other way round",
        "only one kind of call is in the program",
    ),
    "last batch": _Truth(
        1, ("all_reduce",), "other shape",
        "the message names two lengths in bytes: of pieces of what?",
        "whose piece is the shorter one? it is the rank that expected fewer bytes than came",
        "only one kind of call is in the program",
    ),
    "count samples": _Truth(
        0, ("all_reduce",), "other dtype",
        "100.0 has the bits 0x42c80000: a sum of bits that were read as another type",
        "nobody waits here: two ranks agree on a value, one has quite another",
        "only one kind of call is in the program",
    ),
    "pass it on": _Truth(
        None, ("send",), "circle of sends",
        "every rank stands on the same line; who would have to move first?",
        "all three do the same: there is no odd one out",
        "on which line do they stand?",
    ),
    "checkpoint": _Truth(
        0, ("barrier",), "branch",
        "read which call each rank waits in, and under which `if` that call stands",
        "two ranks wait in the same call, one in another",
        "name the call that not all ranks make",
    ),
    "subgroup": _Truth(
        1, ("all_reduce",), "wrong group",
        "the case file names a group for each waiting call; are they the same?",
        "rank 0 is in the small group and rank 2 in the default group, where they belong",
        "only one kind of call waits",
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
    "slow reader": _Truth(
        2, ("all_reduce", "sleep", "time.sleep"), "straggler",
        "is the missing rank in a call at all? give it more time and run it again",
        "the ranks in the collective wait for the one that is not there yet",
        "the call that the others wait in, or what holds the late rank up",
    ),
    "own clock": _Truth(
        1, ("barrier", "all_reduce"), "local decision",
        "all ranks run the same `if`. On what does it depend, and is that the same on all of them?",
        "two ranks wait in the same call, one in another",
        "name the call that two ranks made and the third did not",
    ),
    "save and load": _Truth(
        0, ("barrier",), "branch",
        "count the barriers in the source for each rank. One has one more: under which `if`?",
        "one rank waits in barrier #3, the others finished after two: who made one too many?",
        "only one kind of call is in the program",
    ),
    "4097 items": _Truth(
        0, ("all_reduce",), "uneven work",
        "4097 = 4 x 1024 + 1, in batches of 256: how many batches does each rank have?",
        "three ranks are at the end of the epoch; who has a batch left?",
        "the others wait where they should; which call does the odd rank make once more?",
    ),
}  # fmt: skip


def check_diagnosis(number: int, name: str, diagnosis: Diagnosis) -> None:
    """Judge the diagnosis of a patient: which of rank, call and cause is not right?"""
    with checking.exercise(f"5b.{number}", par="rank, call and cause named") as verdict:
        said = checking.answer(diagnosis, Diagnosis, what="what is wrong with the patient")
        truth = _TRUTHS[name]
        if said.cause not in CAUSES:
            raise checking.CheckFailed(
                f"a cause out of {', '.join(CAUSES)}",
                repr(said.cause),
                "a cause is one of the words of CAUSES; print it",
            )
        if said.cause != truth.cause:
            got = f"{said.cause!r}: {CAUSES[said.cause]}"
            raise checking.CheckFailed("the cause that the case file shows", got, truth.look)
        if said.rank != truth.rank:
            raise checking.CheckFailed(
                "the rank that departs from the others (None if all do the same)",
                f"rank {said.rank}" if said.rank is not None else "None",
                truth.who,
            )
        call = str(said.call).removeprefix("torch.distributed.").removeprefix("dist.")
        if call.removesuffix("()") not in truth.calls:
            raise checking.CheckFailed(
                "the call in which that rank departs from the others, named as in "
                "torch.distributed",
                repr(said.call),
                truth.where,
            )
        who = "all ranks" if truth.rank is None else f"rank {truth.rank}"
        verdict.reached = f"{truth.cause}, {truth.calls[0]} on {who}"
