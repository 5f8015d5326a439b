"""Run a sick program, or somebody's cure of it, with a short timeout; write down what came of it.

Every rank notes its calls in a file, while it makes them: so they are known, sends and receives
among them, whether the program ends or hangs.
"""

import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch.distributed as dist

from course.checks import checking
from course.checks.memory import BufferCall, BufferLog
from course.checks.sets import own_sets
from course.lessons.hang_clinic import programs
from course.place import launch
from labkit.ranks.errors import LaunchTimeout, RankCase

OUTCOMES = {
    "right": "every rank returned what a healthy program returns",
    "wrong values": "every rank returned, nobody complained, and values are wrong",
    "error": "a rank raised or died, with a message",
    "hang": "some ranks had not finished when the time was up",
}
POINT_TO_POINT = ("send", "recv")
FAST = 1.4


@dataclass(frozen=True, slots=True)
class World:
    """In what circumstances a program runs."""

    world_size: int = 3
    late: int | None = None
    """A rank that starts 0.25 s after the others, and makes each call 10 ms late."""
    fast_clock: int | None = None  # a rank whose clocks run `FAST` times as fast
    own_sets: bool = False
    """Whether each rank's sets have an order of their own, as under torchrun: there each process
    draws how texts hash. Here all sets that the program's own lines make are such (`own_sets`)."""

    def __str__(self) -> str:
        late = "" if self.late is None else f", rank {self.late} late"
        fast = "" if self.fast_clock is None else f", rank {self.fast_clock}'s clock fast"
        sets = ", each with an order of its own in sets" if self.own_sets else ""
        return f"{self.world_size} ranks{late}{fast}{sets}"


class Wait(NamedTuple):
    """A rank that waits, in which call, and for whom."""

    rank: int
    call: str  # with its number or its peer: ``"all_reduce #2"``, ``"send to rank 1"``
    for_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What became of a program."""

    name: str
    kind: str  # one of OUTCOMES
    report: str
    """The case file: what each rank returned or where it stood, and its calls; an error's words."""
    calls: tuple[tuple[BufferCall, ...], ...] = ()
    """Of each rank, in the order in which it made them."""
    running: tuple[int, ...] = ()  # the ranks that had not finished
    returned: tuple[Any, ...] = ()  # what each rank returned; empty if any did not
    seconds: float = 0.0  # that the program took, on the rank that it took longest
    healthy: tuple[Any, ...] = ()  # what each rank of a healthy program returns; empty likewise

    def __str__(self) -> str:
        return f"{self.name}\nOutcome: {self.kind}: {OUTCOMES[self.kind]}\n\n{self.report}"

    @property
    def waits(self) -> list[Wait]:
        """Return who waits for whom when the time was up; nobody where the program ended."""
        waits = []
        for rank in self.running:
            calls = self.calls[rank]
            if still_open := [call for call in calls if call.waited is None]:
                call = still_open[-1]
                waits.append(Wait(rank, name_of(call, calls), self._awaited(call, calls)))
        return waits

    def _awaited(self, call: BufferCall, calls: Sequence[BufferCall]) -> tuple[int, ...]:
        """Name the ranks without which a call cannot end."""
        if call.kind in POINT_TO_POINT:
            return (call.peer,)
        place, ranks = _number(call, calls) - 1, call.ranks
        kinds_of = {rank: [x.kind for x in _collectives(self.calls[rank], ranks)] for rank in ranks}
        return tuple(r for r, kinds in kinds_of.items() if kinds[place : place + 1] != [call.kind])


def run_case(
    number: int,
    program: Callable[[], list[float]] | None = None,
    *,
    world: World | None = None,
    timeout: float = 1.5,
    checks: bool = False,
) -> CaseReport:
    """Run a patient, or a `program` of somebody's own, by default in the patient's own world.

    It hangs if it takes longer than `timeout` seconds. Where a rank still computes then, on a busy
    machine, nothing hangs yet: it runs once more, with five times as many. With `checks` torch
    compares the ranks' calls, as in `launch(..., checks=True)`. What is not written yet raises its
    `NotImplementedError`.
    """
    world = world or World(programs.patient(number).world_size)
    report = _run(number, program, world, timeout, checks)
    if len(report.waits) < len(report.running):  # somebody has not finished, and waits in no call
        report = _run(number, program, world, 5 * timeout, checks)
    return report


def _run(
    number: int, program: Callable | None, world: World, timeout: float, checks: bool
) -> CaseReport:
    patient, n = programs.patient(number), world.world_size
    name = f"Patient {number}" + ("" if program is None else f", your version: {world}")
    chosen = program or patient.program
    played = own_sets(chosen) if world.own_sets else chosen
    with tempfile.TemporaryDirectory() as folder:
        noted = partial(_noted, played, Path(folder), world)
        try:
            ended = launch(noted, world_size=n, timeout=timeout, checks=checks)
        except LaunchTimeout as hang:
            report = CaseReport(name, "hang", "", _read(folder, n), tuple(hang.case.running))
            rows = [row for rank in hang.case.ranks for row in _rows(rank, report)]
            return replace(report, report="\n".join(rows))
        except Exception as error:  # a rank's own, from torch, or RankDied
            of_learner = program is not None and not isinstance(error, RuntimeError)
            if of_learner or isinstance(error, NotImplementedError):
                raise  # the learner's own traceback says more
            if checking.speaks_to_itself(error):
                words = f"a rank sends to itself, or receives from itself:\n{checking.TO_ITSELF}"
            else:
                words = "\n".join(str(error).splitlines()[-8:])
            return CaseReport(name, "error", words, _read(folder, n))
        calls = _read(folder, n)
    expected = [patient.healthy(rank, n) for rank in range(n)]
    returned = [_figures(value) for value, _ in ended]
    lines = []
    for rank, (value, right) in enumerate(zip(returned, expected, strict=True)):
        wrong = "" if value == right else f", not {right}"
        lines.append(f"rank {rank}: returned {value}{wrong}")
        lines += _told(calls[rank])
    kind, seconds = "right" if returned == expected else "wrong values", max(s for _, s in ended)
    values = {"returned": tuple(returned), "healthy": tuple(expected), "seconds": seconds}
    return CaseReport(name, kind, "\n".join(lines), calls, **values)


def _figures(value: Any) -> Any:
    """Return what a program returned as a list of figures, also if each is a tensor of one."""
    if not isinstance(value, list | tuple):
        return value
    return [part[0] if isinstance(part, list) and len(part) == 1 else part for part in value]


# On the ranks


def _noted(program: Callable, folder: Path, world: World) -> tuple[Any, float]:
    """Run a program on this rank, and keep its calls in a file while it makes them.

    Returns what it returned, and how many seconds it took.
    """
    rank, notes, ended = dist.get_rank(), _Notes(), threading.Event()
    dist.barrier()  # connects the ranks: none begins with that
    if world.late == rank:
        notes.delay = 0.01
        time.sleep(0.25)

    def keep() -> None:
        last = False
        while not last:
            last = ended.wait(0.05)
            (folder / f"{rank}.new").write_bytes(pickle.dumps([*notes.calls]))
            (folder / f"{rank}.new").replace(folder / f"{rank}")

    factor = FAST if world.fast_clock == rank else 1.0
    clocks = time.time, time.monotonic, time.perf_counter
    fast = {c.__name__: partial(lambda clock: factor * clock(), c) for c in clocks}
    writer = threading.Thread(target=keep, daemon=True)
    clock, start = time.perf_counter, time.perf_counter()
    with mock.patch.multiple(time, **fast), notes:
        writer.start()
        try:
            return checking.plain(program()), clock() - start
        finally:
            ended.set()
            writer.join()


class _Notes(BufferLog):
    """The calls of a rank, of which a late one makes each late."""

    delay = 0.0

    def before_call(self, *given: Any) -> None:
        time.sleep(self.delay)
        super().before_call(*given)


def _read(folder: str, world_size: int) -> tuple[tuple[BufferCall, ...], ...]:
    files = [Path(folder, f"{rank}") for rank in range(world_size)]
    return tuple(tuple(pickle.loads(f.read_bytes())) if f.exists() else () for f in files)


# In words


def _rows(case: RankCase, report: CaseReport) -> list[str]:
    """Describe a rank of a hang: where it waits, on which line, after which calls."""
    state = f"rank {case.rank}: {case.state}"
    for wait in report.waits:
        if wait.rank == case.rank:
            whom = ", ".join(map(str, wait.for_ranks))
            state += f", waiting in {wait.call}" + (f", for rank {whom}" if whom else "")
    lines = [x for x in case.stack if x.of_program or x.filename == programs.__file__]
    rows = [state, *(f"    in {x.name}, line {x.lineno}: {x.source}" for x in lines[:1])]
    return rows + _told(report.calls[case.rank])


def _told(calls: Sequence[BufferCall]) -> list[str]:
    """Say which calls a rank made, equal ones in a row once."""
    runs = [(text, len([*same])) for text, same in groupby(_line(call, calls) for call in calls)]
    lines = [text if many == 1 else f"{many} times {text}" for text, many in runs]
    if len(lines) > 4:
        lines[:-4] = [f"{len(lines) - 4} earlier lines, then"]
    return [f"    {text}" for text in lines]


def _line(call: BufferCall, calls: Sequence[BufferCall]) -> str:
    """Describe a call, with an i where Python went on before its end."""
    goes_on = not call.blocking and not (call.waited is None and call is calls[-1])
    letter = "i" if goes_on and call.kind in POINT_TO_POINT else ""
    size, state = f", {call.nbytes} bytes" if call.nbytes else "", ""
    if call.waited is None:
        state = ": not ended"
    elif any(call.at < other.at < call.waited for other in calls):
        state = ", waited for after a later call"
    return f"{letter}{name_of(call, calls)}{size}{state}"


def name_of(call: BufferCall, calls: Sequence[BufferCall]) -> str:
    """Name a call of a rank: a collective by its number in its group, a message by its peer."""
    if call.kind in POINT_TO_POINT:
        return f"{call.kind} {'to' if call.kind == 'send' else 'from'} rank {call.peer}"
    return f"{call.kind} #{_number(call, calls)}"


def _collectives(calls: Sequence[BufferCall], ranks: tuple[int, ...]) -> list[BufferCall]:
    return [call for call in calls if call.ranks == ranks and call.kind not in POINT_TO_POINT]


def _number(call: BufferCall, calls: Sequence[BufferCall]) -> int:
    return 1 + [other.at for other in _collectives(calls, call.ranks)].index(call.at)


def circle(waits: Sequence[Wait]) -> list[int]:
    """Return the ranks of a circle of who waits for whom; [] where there is none."""
    import networkx as nx  # slowly: ranks do without

    graph = nx.DiGraph((wait.rank, other) for wait in waits for other in wait.for_ranks)
    return min(nx.simple_cycles(graph), key=lambda ranks: (len(ranks), ranks), default=[])
