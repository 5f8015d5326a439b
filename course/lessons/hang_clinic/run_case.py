"""Run a sick program with a short timeout, and write down what came of it."""

from dataclasses import dataclass
from pathlib import Path

from course.lessons.hang_clinic import programs
from course.lessons.hang_clinic.programs import PATIENTS
from labkit.ranks.errors import CaseFile, LaunchTimeout, RankCase
from labkit.ranks.launcher import launch

OUTCOMES = {
    "right": "every rank returned what a healthy program returns",
    "wrong values": "every rank returned, nobody complained, and values are wrong",
    "error": "a rank raised or died, with a message",
    "hang": "some ranks had not finished when the time was up",
}


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What became of a program."""

    name: str
    kind: str
    """One of OUTCOMES."""
    report: str
    """The case file: the stacks and calls of a hang, an error's words, or the values."""

    def __str__(self) -> str:
        return f"Patient: {self.name}\nOutcome: {self.kind}: {OUTCOMES[self.kind]}\n\n{self.report}"


def run_case(name: str, *, timeout: float = 1.5, checks: bool = False) -> CaseReport:
    """Run one of `PATIENTS`, which hangs if it takes longer than `timeout` seconds.

    With `checks` torch compares the ranks' calls, as in `launch(..., checks=True)`.
    """
    if name not in PATIENTS:
        raise ValueError(f"no patient {name!r}; there are: {', '.join(PATIENTS)}.")
    patient = PATIENTS[name]
    try:
        results = launch(
            patient.program, world_size=patient.world_size, timeout=timeout, checks=checks
        )
    except LaunchTimeout as hang:
        rows = [row for rank in hang.case.ranks for row in _rows(rank, hang.case)]
        return CaseReport(name, "hang", "\n".join(rows))
    except RuntimeError as error:  # a rank's own, from torch, or RankDied
        text = str(error)
        return CaseReport(name, "error", text if len(text) <= 700 else f"{text[:700]} ...")
    expected = [patient.healthy(rank) for rank in range(patient.world_size)]
    rows = [
        f"rank {rank}: returned {got}" + ("" if got == right else f", a healthy one {right}")
        for rank, (got, right) in enumerate(zip(results, expected, strict=True))
    ]
    return CaseReport(name, "right" if results == expected else "wrong values", "\n".join(rows))


def _rows(rank: RankCase, case: CaseFile) -> list[str]:
    state = f"rank {rank.rank}: {rank.state}"
    call = rank.waiting_in
    if call is not None:
        state += f", waiting in {call.name} #{call.number} of group {call.group}"
        missing = [] if call.p2p else case.missing(call)
        state += f"; not there yet: {missing}" if missing else ""
    lines = [line for line in rank.stack if Path(line.filename) == Path(programs.__file__)]
    rows = [state, *(f"    in {line.name}: {line.source}" for line in lines[:1])]
    return rows + [f"    {entered}" for entered in rank.entered[-4:]]
