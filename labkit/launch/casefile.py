"""The case file of a launch that hung: where every rank stands, and for whom it waits."""

from __future__ import annotations

import json
import linecache
import re
from dataclasses import dataclass, field
from pathlib import Path

_C10D = "torch/distributed/distributed_c10d.py"
_STACK_LINE = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$')


@dataclass(frozen=True, slots=True)
class Line:
    """One frame of a rank's Python stack."""

    filename: str
    lineno: int
    name: str

    @property
    def source(self) -> str:
        """The line's text; empty where it is not known."""
        return linecache.getline(self.filename, self.lineno).strip()

    @property
    def own(self) -> bool:
        """Whether it is the learner's code: neither labkit's nor an installed library's."""
        parts = Path(self.filename).parts
        installed = {"site-packages", "dist-packages"} & set(parts) or self.filename.startswith("<")
        return not installed and "labkit" not in parts and not _is_standard_library(parts)

    def told(self) -> list[str]:
        """Return the frame as Python tells it: the place, then the source where it is known.

        Sources are looked up in the launching process: it alone knows a notebook's cells.
        """
        place = f'File "{self.filename}", line {self.lineno}, in {self.name}'
        return [place, f"    {self.source}"] if self.source else [place]


@dataclass(frozen=True, slots=True)
class Entered:
    """A collective or a point-to-point call that a rank had entered."""

    name: str
    """As in torch.distributed: ``all_reduce``, ``recv``, ..."""
    number: int
    """Its place in the group's sequence of calls, from 1."""
    group: str
    """``default`` for the default group, its description, or the list of its ranks."""
    members: tuple[int, ...]
    """Ranks of the group."""
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    p2p: bool
    finished: bool

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        state = "done" if self.finished else "NOT FINISHED"
        what = f"{self.name}({self.dtype}[{shapes}])" if self.shapes else f"{self.name}()"
        return f"#{self.number} {what} in group {self.group}: {state}"


@dataclass(frozen=True, slots=True)
class RankCase:
    """One rank at the moment of the timeout."""

    rank: int
    state: str
    """``running``, ``finished``, ``raised`` or ``starting``."""
    stack: tuple[Line, ...] = ()
    """The main thread's Python stack, innermost call first."""
    entered: tuple[Entered, ...] = ()
    """Calls in the order in which the rank entered them."""

    @property
    def waiting_in(self) -> Entered | None:
        """The call that it had entered and not left, if any."""
        pending = [call for call in self.entered if not call.finished]
        return pending[0] if pending and self.state == "running" else None

    @property
    def inside(self) -> str | None:
        """The function of torch.distributed that the stack is in, if any.

        The flight recorder knows no send and recv of gloo (torch 2.13); the stack does.
        """
        calls = [line.name for line in self.stack if line.filename.endswith(_C10D)]
        return calls[0] if calls and self.state == "running" else None

    @property
    def line(self) -> Line | None:
        """The innermost line of the learner's own code."""
        return next((line for line in self.stack if line.own), None)


@dataclass(frozen=True, slots=True)
class CaseFile:
    """What every rank was doing when the time ran out."""

    ranks: tuple[RankCase, ...] = field(default_factory=tuple)

    @property
    def running(self) -> list[int]:
        """Ranks that had not finished."""
        return [case.rank for case in self.ranks if case.state != "finished"]

    def missing(self, call: Entered) -> list[int]:
        """Members of the call's group that had not entered a collective of that number."""
        return [
            case.rank
            for case in self.ranks
            if case.rank in call.members
            and not any(
                other.group == call.group and other.number == call.number and not other.p2p
                for other in case.entered
            )
        ]

    def __str__(self) -> str:
        return "\n".join(line for case in self.ranks for line in self._tell(case))

    def _tell(self, case: RankCase) -> list[str]:
        lines = [f"rank {case.rank}: {case.state}"]
        call = case.waiting_in
        if call is not None:
            lines[0] += f", waiting in {call.name} #{call.number} of group {call.group}"
            if not call.p2p and (missing := self.missing(call)):
                lines[0] += f"; not there yet: rank {', '.join(map(str, missing))}"
        elif case.inside:
            lines[0] += f", waiting in {case.inside}"
        if case.state != "finished":
            shown = [line for line in case.stack if line.own] or list(case.stack[:3])
            lines += [f"    {text}" for line in shown[:4] for text in line.told()]
        if len(case.entered) > 4:
            lines.append(f"    entered {len(case.entered) - 4} earlier calls, then")
        lines += [f"    {entered}" for entered in case.entered[-4:]]
        return lines


def parse_stack(text: str) -> tuple[Line, ...]:
    """Read the main thread's stack from what `faulthandler` wrote, innermost call first.

    With ``all_threads=True`` faulthandler lists the oldest thread, the main one, last.
    """
    stack: list[Line] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            stack = []
        elif match := _STACK_LINE.match(line):
            stack.append(Line(match["file"], int(match["line"]), match["name"]))
    return tuple(stack)


def parse_calls(text: str) -> tuple[Entered, ...]:
    """Read the calls from the JSON that a rank wrote: flight recorder entries and groups."""
    dump = json.loads(text)
    return tuple(_entered(entry, dump["groups"]) for entry in dump["entries"])


def _entered(entry: dict, groups: dict[str, list[int]]) -> Entered:
    name, description = entry["process_group"]
    members = tuple(groups.get(name, ()))
    labels = {"default_pg": "default", "undefined": str(list(members))}
    p2p = entry["is_p2p"]
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes") or [""]
    shapes = entry.get("input_sizes") or entry.get("output_sizes") or []
    return Entered(
        name=entry["profiling_name"].rpartition(":")[2],
        number=entry["p2p_seq_id"] if p2p else entry["collective_seq_id"],
        group=labels.get(description, description),
        members=members,
        shapes=tuple(tuple(shape) for shape in shapes),
        dtype=dtypes[0].lower(),
        p2p=p2p,
        finished=bool(entry.get("retired")),
    )


def _is_standard_library(parts: tuple[str, ...]) -> bool:
    return any(re.fullmatch(r"python3\.\d+", part) for part in parts[:-1])
