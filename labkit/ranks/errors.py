"""What can go wrong in a launch, in words that a reader can act on.

The tree of exceptions::

    LaunchError                   anything below; also: the fork server could not start
    ├── RankError                 a rank raised something that cannot travel between processes
    ├── RankDied                  a rank's process ended before it returned
    └── LaunchTimeout             ranks had not finished in time; carries a CaseFile

A rank's *own* exception is not wrapped: ``launch`` raises it as it is, with its chain of causes and
a note that names the rank. The rank's traceback is the cause at the end of the chain.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_C10D = "torch/distributed/distributed_c10d.py"
_THREAD = re.compile("^(?:Current t|T)hread ", re.MULTILINE)
_STACK_LINE = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$')
_OURS = str(Path(__file__).parents[1])
LIBRARIES = {_OURS}
"""Folders of code that is not the program's own, beside what is installed: add to them.

What ranks import of it the fork server imports as well, once for all ranks that follow, as long as
nobody writes to its files. So its import must not depend on the rank nor start threads, and may
happen twice.
"""
_SIGNALS = {
    "SIGKILL": "Often memory ran out (see dmesg); else a person or the program itself sent it.",
    "SIGSEGV": "A crash in native code: the stack is on its stderr.",
    "SIGABRT": "Native code gave up: its reason is on its stderr.",
    "SIGBUS": "Often a full /dev/shm (in Docker: --shm-size).",
}
_HINTS = {
    "initialize the default process group twice": "launch has made the default group already: "
    "leave init_process_group out, or say launch(..., init=False).",
    "Default process group has not been initialized": "With init=False, or once it is destroyed, "
    "the program makes the default group itself.",
    "^ModuleNotFoundError": "Ranks import it from your sys.path: is its folder there?",
    "^EOFError": "Ranks have no keyboard, so input() ends at once: pass what it would ask for.",
    "Resource temporarily unavailable": "No further process or thread can be made here; a rank has "
    "about ten. Raise the limit (ulimit -u; in Docker --pids-limit), or take fewer ranks.",
    "Unable to find address for: lo": "This machine's loopback interface is down, and ranks talk "
    "through it. Switch it on: ip link set lo up",
}
_DEBUGGER = (
    "breakpoint() ends at once in a rank, which has no keyboard. Print what you want to see, or "
    "call the program without launch, in a group of one rank."
)
_UNLIKE = (
    "The ranks' calls may not fit together (shapes, dtypes, or which call): "
    "launch(..., checks=True) compares them and names the ranks."
)
_FOLLOWS = re.compile(
    "Connection (closed|reset) by peer|reached monitoredBarrier, but received errors"
    "|timed out connecting: SO_ERROR: Connection refused"  # where gloo connects late
)
"""What a rank raises because another one has failed."""


class LaunchError(RuntimeError):
    """A launch failed; ``results`` has what ranks had returned that had finished, by rank."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.results: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel on, as from a pool's worker, as the text alone."""
        return LaunchError, self.args


class RankError(LaunchError):
    """A rank raised what cannot travel between processes; the message has its type and text."""


class RankDied(LaunchError):
    """A rank's process ended before it returned: killed, crashed, or left by ``os._exit``.

    Attributes:
        rank: The rank that died first.
        signal: The signal's number, or None when the process exited by itself.
        exitcode: The exit status, or None when a signal ended it.
        stderr: The last lines that the rank wrote to its standard error.
        later: What became of other ranks after that, a clause each.
    """

    def __init__(
        self, rank: int, world_size: int, status: int, stderr: list[str], later: Sequence[str] = ()
    ) -> None:
        text = f"rank {rank} of {world_size} {death(status)} before its program returned"
        if status >= 0:
            text += " (os._exit, or a library that ends the process)"
        hints = (hint for name, hint in _SIGNALS.items() if name in death(status))
        text = " ".join([f"{text}.", *hints])
        if later:
            text += f"\nAfter that, {'; '.join(later)}."
        if stderr:
            text += "\nThe last lines of its stderr:" + "".join(f"\n    {line}" for line in stderr)
        if any("gloo::EnforceNotMet" in line for line in stderr):
            text += f"\n{_UNLIKE}"
        super().__init__(text)
        self.rank, self.stderr, self.later = rank, stderr, list(later)
        self.signal = -status if status < 0 else None
        self.exitcode = status if status >= 0 else None


class LaunchTimeout(LaunchError, TimeoutError):
    """Ranks had not finished in time; ``case`` has each one's state, stack and collectives."""

    def __init__(self, timeout: float, case: CaseFile, shown: float = 0.0) -> None:
        late = f"{len(case.running)} of {len(case.ranks)} ranks had not finished"
        late += f" after {timeout:g} s"
        if 4 * shown > timeout:
            late += f", {shown:.3g} s of which went into showing what they print"
        hint = f"\n{_UNLIKE}" if case.unlike else ""
        super().__init__(f"{late}.\n{case}{hint}")
        self.case = case


class RankTraceback(Exception):
    """A rank's traceback as text: the ``__cause__`` of the exception that `launch` raises."""


def of_library(filename: str) -> bool:
    """Say whether a file lies in one of `LIBRARIES`."""
    return filename.startswith(tuple(folder + os.sep for folder in LIBRARIES))


@dataclass(frozen=True, slots=True)
class Line:
    """One frame of a rank's Python stack."""

    filename: str
    lineno: int
    name: str

    @property
    def source(self) -> str:
        """The line's text; empty where it is not known.

        Sources are looked up in the launching process: it alone knows a notebook's cells.
        """
        return linecache.getline(self.filename, self.lineno).strip()

    @property
    def of_program(self) -> bool:
        """Whether it is the program's own code, of no library: labkit's, installed, Python's."""
        *folders, _ = parts = Path(self.filename).parts
        return not (
            {"site-packages", "dist-packages"} & set(parts)
            or self.filename.startswith("<")
            or of_library(self.filename)
            or any(re.fullmatch(r"python3\.\d+", folder) for folder in folders)
        )

    @property
    def of_package(self) -> bool:
        """Whether it is of an installed package other than torch, whose insides say nothing."""
        *folders, _ = Path(self.filename).parts
        home = next((i for i, name in enumerate(folders) if name.endswith("-packages")), None)
        return home is not None and folders[home + 1 : home + 2] not in ([], ["torch"])

    def lines(self) -> list[str]:
        """Return the frame as Python shows it: the place, then the source where it is known."""
        place = f'File "{self.filename}", line {self.lineno}, in {self.name}'
        return [place, f"    {self.source}"] if self.source else [place]


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception on its way from a rank."""

    exception: BaseException | None  # the exception, or None where it could not be pickled
    kind: str  # qualified name of its type
    text: str  # ``str`` of it
    frames: tuple[Line, ...]  # the traceback below labkit's own frames
    direct: bool = False
    """Whether the next one in the chain is its ``__cause__``, and not only what was handled."""

    @property
    def in_words(self) -> str:
        """Its type and text; of a debugger's end, what to do instead."""
        return _DEBUGGER if self.kind == "bdb.BdbQuit" else f"{self.kind}: {self.text}"

    def __str__(self) -> str:
        lines = [f"  {line}" for frame in self.frames for line in frame.lines()]
        return "\n".join([*lines, f"{self.kind}: {self.text}"])


@dataclass(frozen=True, slots=True)
class Failure:
    """What a rank reports when its program raised."""

    rank: int
    chain: tuple[Raised, ...]  # the exception, then its cause, and so on
    moment: float = 0.0  # when it came, on this machine's monotonic clock

    @property
    def follows(self) -> bool:
        """Whether it only says that another rank has failed, or began with that."""
        return any(_FOLLOWS.search(raised.text) for raised in self.chain)

    @property
    def headline(self) -> str:
        """Type and first line of the exception."""
        first, (line, *_) = self.chain[0], self.chain[0].text.splitlines() or [""]
        return f"{first.kind}: {line}" if line else first.kind

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for ranks that failed in the same way at the same place."""
        first = self.chain[0]
        return (first.kind, first.frames[-1] if first.frames else None, self.follows)


def root_cause(
    failures: list[Failure], world_size: int, results: dict[int, Any], later: list[str]
) -> BaseException:
    """Return a rank's own exception, with its causes, naming every rank that failed likewise.

    The failures are in the order in which they came, and there is one. The first one counts that
    does not follow from another. ``later`` tells, in a clause each, what became of ranks that died.
    """
    first = min(failures, key=lambda failure: failure.follows)
    alike = sorted(f.rank for f in failures if f.signature == first.signature)
    others = sorted(f.rank for f in failures if f.signature != first.signature)
    if len(alike) == 1:
        note = f"raised on rank {first.rank} of {world_size}"
    else:
        which = "all" if len(alike) == world_size else _listed(alike)
        note = f"raised on {len(alike)} of {world_size} ranks ({which}), here rank {first.rank}'s"
    if others:
        note += f"; rank(s) {_listed(others)} failed in another way"
    chain = [raised.exception or RankError(raised.in_words) for raised in first.chain]
    text, *causes = map(str, first.chain)
    for i, (raised, cause) in enumerate(zip(first.chain, causes, strict=False)):
        text += f"\n{'cause' if raised.direct else 'handled meanwhile'}:\n{cause}"
        chain[i].__context__ = chain[i + 1]
        if raised.direct:
            chain[i].__cause__ = chain[i + 1]
    chain[-1].__cause__ = RankTraceback(f"the traceback of rank {first.rank}:\n{text}")
    if later:
        note += f"; after that, {'; '.join(later)}"
    chain[0].add_note(f"[labkit] {note}")
    head = f"{first.chain[0].kind}: {first.chain[0].text}"
    if remedy := hint(head):
        chain[0].add_note(f"[labkit] {remedy}")
    if not hasattr(chain[0], "results") or isinstance(chain[0], LaunchError):
        with contextlib.suppress(Exception):  # a type of its own may refuse
            chain[0].results = results  # type: ignore[attr-defined]
    return chain[0]


def hint(text: str) -> str:
    """Say what to do about an error of that text; nothing where there is nothing to say."""
    return " ".join(remedy for pattern, remedy in _HINTS.items() if re.search(pattern, text))


def together(clauses: Iterable[tuple[int, str]]) -> list[str]:
    """Put what is true of several ranks into one clause, in order of the first of each.

    Example:
        >>> together([(0, "raised KeyError: 1"), (2, "hung"), (1, "raised KeyError: 1")])
        ['ranks 0, 1 raised KeyError: 1', 'rank 2 hung']
    """
    ranks: dict[str, list[int]] = {}
    for rank, what in clauses:
        ranks.setdefault(what, []).append(rank)
    return [
        f"{'ranks' if len(some) > 1 else 'rank'} {_listed(sorted(some))} {what}"
        for what, some in ranks.items()
    ]


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective or a point-to-point call that a rank had entered."""

    name: str  # as in torch.distributed: ``all_reduce``, ``recv``, ...
    number: int  # its place in the group's sequence of calls, from 1
    group: str  # ``default`` for the default group, its description, or the list of its ranks
    members: tuple[int, ...]  # ranks of the group
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    p2p: bool
    finished: bool

    @classmethod
    def from_record(cls, entry: dict[str, Any], groups: dict[str, list[int]]) -> CollectiveCall:
        """Read an entry of torch's flight recorder; ``groups`` has each group's ranks by name."""
        name, description = entry["process_group"]
        members = tuple(groups.get(name, ()))
        labels = {"default_pg": "default", "undefined": str(list(members))}
        dtypes = entry.get("input_dtypes") or entry.get("output_dtypes") or [""]
        shapes = entry.get("input_sizes") or entry.get("output_sizes") or []
        return cls(
            name=entry["profiling_name"].rpartition(":")[2],
            number=entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"],
            group=labels.get(description, description),
            members=members,
            shapes=tuple(map(tuple, shapes)),
            dtype=dtypes[0].lower(),
            p2p=entry["is_p2p"],
            finished=bool(entry.get("retired")),
        )

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        state = "done" if self.finished else "NOT FINISHED"
        what = f"{self.name}({self.dtype}[{shapes}])" if self.shapes else f"{self.name}()"
        return f"#{self.number} {what} in group {self.group}: {state}"


@dataclass(frozen=True, slots=True)
class RankCase:
    """One rank at the moment of the timeout."""

    rank: int
    state: str  # ``running``, ``finished`` or ``raised``
    stack: tuple[Line, ...] = ()  # the main thread's Python stack, innermost call first
    entered: tuple[CollectiveCall, ...] = ()  # calls in the order in which the rank entered them
    messages: tuple[str, ...] = ()
    """Messages posted and not ended: ``"recv from rank 2"``; for gloo, whose calls are no such."""
    forgotten: int = 0  # how many calls it had entered before these: torch keeps the last ones only

    @classmethod
    def read(cls, rank: int, state: str, stack: str = "", calls: str = "") -> RankCase:
        """Read what the rank wrote: `faulthandler`'s stacks, and its calls as JSON.

        With ``all_threads=True`` faulthandler lists the oldest thread, the main one, last.
        """
        main = _THREAD.split(stack)[-1]
        matches = filter(None, map(_STACK_LINE.match, main.splitlines()))
        lines = tuple(Line(line["file"], int(line["line"]), line["name"]) for line in matches)
        record = json.loads(calls or '{"entries": []}')
        entries = record["entries"]
        entered = (CollectiveCall.from_record(entry, record["groups"]) for entry in entries)
        messages = tuple(record.get("messages", ()))
        forgotten = entries[0].get("record_id", 0) if entries else 0
        return cls(rank, state, lines, tuple(entered), messages, forgotten)

    @property
    def waiting_in(self) -> CollectiveCall | None:
        """The call that it had entered and not left, if any."""
        pending = [call for call in self.entered if not call.finished]
        return pending[0] if pending and self.state == "running" else None

    @property
    def inside(self) -> str | None:
        """The function of torch.distributed that the stack is in: also a gloo send or recv."""
        calls = [line.name for line in self.stack if line.filename.endswith(_C10D)]
        return calls[0] if calls and self.state == "running" else None

    @property
    def line(self) -> Line | None:
        """The innermost line of the program's own code."""
        return next((line for line in self.stack if line.of_program), None)


@dataclass(frozen=True, slots=True)
class CaseFile:
    """What every rank was doing when the time ran out: where it stood, for whom it waited."""

    ranks: tuple[RankCase, ...] = ()

    @property
    def running(self) -> list[int]:
        """Ranks that had not finished."""
        return [case.rank for case in self.ranks if case.state == "running"]

    def missing(self, call: CollectiveCall) -> list[int]:
        """Members of the call's group that had not entered a collective of that number."""

        def is_there(case: RankCase) -> bool:
            own = (other for other in case.entered if not other.p2p)
            return (call.group, call.number) in ((other.group, other.number) for other in own)

        members = (case for case in self.ranks if case.rank in call.members)
        return [case.rank for case in members if not is_there(case)]

    @property
    def unlike(self) -> bool:
        """Whether ranks wait in different collectives at the same place of a group's sequence."""
        waiting = [case.waiting_in for case in self.ranks]
        calls = [call for call in waiting if call is not None and not call.p2p]
        different = {(call.group, call.number, call.name, call.dtype) for call in calls}
        return len(different) > len({(call.group, call.number) for call in calls})

    def __str__(self) -> str:
        return "\n".join(line for case in self.ranks for line in self._describe(case))

    def _describe(self, case: RankCase) -> list[str]:
        lines = [f"rank {case.rank}: {case.state}"]
        call = case.waiting_in
        if call is not None:
            lines[0] += f", waiting in {call.name} #{call.number} of group {call.group}"
            if not call.p2p and (missing := self.missing(call)):
                lines[0] += f"; not there yet: rank {_listed(missing)}"
        elif case.inside in ("send", "recv") and case.messages:  # the last one is that call's
            lines[0] += f", waiting in {case.messages[-1]}"
        elif case.inside:
            lines[0] += f", waiting in {case.inside}"
        elif case.messages:
            lines[0] += f"; not ended: {_counted(case.messages)}"
        if case.state != "finished":
            ours = (_OURS, "<string>")  # what a rank begins with
            outside = [line for line in case.stack if not line.filename.startswith(ours)]
            shown = [line for line in outside if line.of_program] or outside[:3]
            innermost = next((line for line in outside if line.of_program or line.of_package), None)
            if innermost is not None and innermost not in shown:
                shown = [innermost, *shown]  # the program called a package, and it waits in there
            lines += [f"    {text}" for line in shown[:4] for text in line.lines()]
        if len(case.entered) > 4:
            earlier = case.forgotten + len(case.entered) - 4
            lines.append(f"    entered {earlier} earlier calls, then")
        lines += [f"    {call}" for call in case.entered[-4:]]
        return lines


def _counted(messages: Sequence[str]) -> str:
    """Write each message once, in its order, with how often it is there."""
    counts = Counter(messages).items()
    return ", ".join(message if n == 1 else f"{n} x {message}" for message, n in counts)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def death(status: int) -> str:
    """Return what became of a process, as a clause without its subject."""
    if status >= 0:
        return f"exited with status {status}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was killed by {known.get(-status, f'signal {-status}')}"
