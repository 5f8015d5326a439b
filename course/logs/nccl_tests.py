"""Read what nccl-tests printed, of any version from 2.0 on.

The columns are found by the header's words, since versions and collectives differ: `redop` and
`root` only where they mean something (until 2.11), `error` (until 2.11) or `#wrong`, statistics per
iteration (2.19), a timestamp at the end. What mpirun or Slurm put before the lines is passed over,
and so are NCCL's own lines, also where one of them stands in the middle of a row. rccl-tests prints
the same. (The JSON of its -J repeats what it prints, and is not read.)

A time of nccl-tests is the average over iterations, and over ranks unless `-a` says otherwise; it
becomes one sample of one record.
Source: github.com/NVIDIA/nccl-tests, src/common.cu and src/util.cu, tags v2.0.0 to v2.19.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.untrusted import one_line
from labkit.ranks.machine import Machine

EXPERIMENT = "nccl-tests"
_ALIKE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter")
COLLECTIVES = {name: name for name in _ALIKE} | {"alltoall": "all_to_all", "sendrecv": "send"}
"""nccl-tests' name -> torch.distributed's. A name that contains another stands before it."""
MAKING = "while communicators were made"
MOVING = "after that, before the first size was done"
"""Phases of a test: nccl-tests prints the header of its table once the communicators are made
(source: common.cu, run, all versions; with -p it prints the header first)."""
_TYPES = r"u?int(?:8|32|64)?|char|half|float|double|bfloat16|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2"
_OPERATIONS = r"sum|prod|min|max|avg|mulsum|none"
_COLUMNS = ["size", "count", "type", "redop", "root"] + 2 * ["time", "algbw", "busbw", "#wrong"]
_NAME = re.compile(rf"(?<![a-z])({'|'.join(COLLECTIVES)})(?![a-z])")
_ROW = re.compile(rf"(?:^|[\s:>\]|])(\d{{1,18}})\s+\d+\s+({_TYPES})(?:\s+(.*\S))?\s*$")
_HEADER = re.compile(r"size\s+count\s+type\b.*\s(?:cpu)?time\s+algbw\s+busbw\s+\S.*")
_BEGUN = re.compile(
    rf"(?:^|[\s:>\]|])(\d+\s+\d+\s+(?:{_TYPES})(?:\s+(?:{_OPERATIONS}))?(?:\s+(?:-1|\d+))?)"
)
_FIGURES = re.compile(r"[\s\d.eE+/NA-]{20,}")
_DEVICE = re.compile(
    r"\sRank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+(\S+) device\s+\d+ "
    r"\[([^\]]*)\]\s*(.*)"
)
_WHO = re.compile(r"\[\d+,(\d+)\]<\w+>:|\s*(\d+):\s")
"""What mpirun and Slurm put before a line: which process printed it."""
_TAG = re.compile(r"\[\d+,\d+\]<\w+>:")
"""mpirun's, which may stand within a row, too, where the program flushed."""
_OWN = re.compile("NCCL (?:INFO|WARN|TRACE)")  # in lines that NCCL itself prints
_TESTS = re.compile(r"([nr]ccl)-tests:? [Vv]ersion (\S+)(?: .*ccl-library=(\d{1,9}))?")
_LIBRARY = re.compile(r"\b([NR]CCL) version(?: :)? (\d+\.[\d.]*\d)")
_NETWORK = re.compile(r"Using network (\S.*\S|\S)")
_short = cache(one_line)
_FOREVER = 1e15  # microseconds; whatever lasts longer is no time
_SETTING = re.compile(
    r"\b([NR]CCL_(?!DEBUG|HOSTID)[A-Z0-9_]+)(?:=| set by environment to | set to )([^\s'\"`;]+)"
)
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that printed no figures, or not all of them."""

    collective: str | None
    gpus_per_host: int | None
    hosts: list[str]
    line: int
    text: str  # what it printed, in short
    phase: str  # how far it had come: see `MAKING` and `MOVING`
    file: str
    slots: Sequence[str] = ()  # PCI addresses of the GPUs that took part

    @property
    def kind(self) -> tuple[str | None, int | None]:
        """What was tested: the collective, and with how many GPUs of each host."""
        return self.collective, self.gpus_per_host


@dataclass(slots=True)
class Log:
    """What one file holds, or several."""

    files: list[str]  # their names
    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What could not be read: ``"x.log, line 12: cut short: 9 of 13 columns"``."""

    def problem(self, line: int, text: str) -> None:
        """Note what is wrong in a line of the first file; lines are counted from 1."""
        self.problems.append(one_line(f"{self.files[0]}, line {line}: {text}"))


class Place(NamedTuple):
    """Where one rank ran."""

    host: str
    gpu: str  # the model's name
    pci: str = ""  # the GPU's PCI address, which tells the slot: ``"0000:9d:00"``


class Row(NamedTuple):
    """The figures of one size and place, as printed."""

    number: int
    nbytes: int
    params: dict[str, str | bool]  # type, operation, and whether it was in place
    seconds: float
    algbw: float = 0.0  # GB/s
    busbw: float = 0.0
    wrong: float | None = None


class Test:
    """One test of a log, as its lines come by."""

    def __init__(self, log: Log, name: str | None) -> None:
        self.problem, self.name, self.file = log.problem, name, one_line(log.files[0], 80)
        self.library, self.tests, self.network, self.group = "NCCL", "", "", ""
        self.places: list[Place] = []  # by rank
        self.alone = False  # whether several processes called themselves rank 0
        self.columns: list[str] = []
        self.rows: list[Row] = []
        self.begun: str | None = None  # the beginning of a row whose figures have not come yet
        self.opened = self.ended = False
        self.last = 0
        self.settings: dict[str, str] = {}
        self.errors: list[tuple[int, str]] = []

    def header(self, columns: list[str]) -> None:
        """Learn from the header what stands where in a row."""
        self.columns = columns
        self.head = columns.index("time") - 3  # words between type and figures: operation, root
        self.width = [*columns[3:], "time"].index("time", self.head + 1) - self.head
        """How many figures there are per place."""

    def row(self, number: int, match: re.Match) -> None:
        """Take a row, out of place and in place."""
        self.last = number
        size, dtype, rest = match.groups()
        words = _TAG.sub(" ", rest or "").split()
        if not self.columns:
            self.problem(number, "a row without a header before it: read as version 2.13 or later")
            self.header(_COLUMNS)
        if len(words) <= self.head:
            self.begun = match[0]  # the figures come later, in a line of their own
            return
        if len(words) < len(self.columns) - 3:
            self.problem(number, f"cut short: {len(words) + 3} of {len(self.columns)} columns")
        if size == "0":  # less than an element per rank moves nothing
            return
        redop = words[0] if "redop" in self.columns else ""
        for in_place in (False, True):
            figures = words[self.head + in_place * self.width :][: self.width]
            params = {"dtype": dtype, "redop": redop, "in_place": in_place}
            if len(figures) == self.width:
                self._figures(number, int(size), params, figures)

    def _figures(self, number: int, nbytes: int, params: dict, words: list[str]) -> None:
        """Take the figures of one place."""
        try:
            time, algbw, busbw = map(float, words[:3])
            wrong = None if self.width < 4 or words[3] == "N/A" else float(words[3])
        except ValueError:
            time = 0.0
        if not 0 < time < _FOREVER:
            self.problem(number, f"no figures: {' '.join(words[:4])}")
            return
        if wrong and "#wrong" in self.columns:
            self.problem(number, f"{wrong:g} wrong elements: its time proves nothing")
        self.rows.append(Row(number, nbytes, params, time / 1e6, algbw, busbw, wrong))

    @property
    def ratio(self) -> float:
        """Of the bandwidths printed, busbw / algbw (source: nccl-tests, doc/PERFORMANCE.md)."""
        best = max(self.rows, key=lambda row: row.algbw, default=None)
        return best.busbw / best.algbw if best and best.algbw else 0.0

    @property
    def world_size(self) -> int | None:
        """Number of ranks, as listed or as `ratio` tells; None where nobody knows."""
        most = 2 if self.name == "all_reduce" else 1
        if self.places or self.name in (None, "broadcast", "reduce", "sendrecv"):
            return len(self.places) or None
        return round(most / (most - self.ratio)) if 0 < self.ratio < most else None

    @property
    def ranks(self) -> dict[str, list[int]]:
        """The ranks of each host."""
        ranks: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            ranks.setdefault(place.host, []).append(rank)
        return ranks

    @property
    def gpus_per_host(self) -> int | None:
        """How many GPUs each host has in the test; None if they differ, or nobody knows."""
        counts = set(map(len, self.ranks.values()))
        return counts.pop() if len(counts) == 1 else None

    @property
    def slots(self) -> list[str]:
        """The PCI addresses in use, each once, in the order of the ranks."""
        return list(dict.fromkeys(place.pci for place in self.places if place.pci))

    def failure(self, number: int) -> Failure | None:
        """Say what is missing; return what is known if it failed, or printed no figures."""
        if self.ratio > 1.01:  # of all collectives
            self.name = self.name or "all_reduce"
        name = f"{self.name}_perf" if self.name else "a test"
        if self.rows:
            self._doubt(name)
        if self.errors:
            line, text = self.errors[0]
            others = f" (one of {len(self.errors)} such lines)" if self.errors[1:] else ""
            self.problem(line, f"{name} failed: {text}{others}")
        elif not self.rows and (self.columns or self.places):
            line, text = number, "no figures"
            self.problem(line, f"{name} began and printed {text}")
        else:
            return None
        phase = MOVING if self.columns else MAKING
        if self.rows:
            phase = f"after {max(row.nbytes for row in self.rows)} bytes were done"
        where = COLLECTIVES.get(self.name or ""), self.gpus_per_host, list(self.ranks)
        return Failure(*where, line, text, phase, self.file, self.slots)

    def _doubt(self, name: str) -> None:
        """Say what is doubtful about its figures."""
        if not self.ended and not self.errors:
            self.problem(self.last, f"{name} ends here without its summary: is the text cut short?")
        if self.alone or len(self.places) == 1:
            several = "If there were several processes, each ran alone: build nccl-tests with MPI=1"
            self.problem(self.last, f"one rank moves nothing. {several}")
        if self.name is None:
            may = "The file's name may: all_gather.log"
            self.problem(self.last, f"nothing says which collective this is. {may}")
        elif not self.places:
            n = self.world_size
            follows = f"; {n} follow from busbw / algbw = {self.ratio:.4g}" if n else ""
            self.problem(self.last, f"no list of ranks{follows}")

    def records(self) -> list[Record]:
        """Make a record of each row and place."""
        ranks, slots = self.ranks, self.slots
        known = {
            "hosts": len(ranks) or None,
            "gpus_per_host": self.gpus_per_host,
            "world_size": self.world_size,
            "tests": self.tests,
            "network": self.network,
            "settings": " ".join(f"{name}={self.settings[name]}" for name in sorted(self.settings)),
        }
        params = {name: value for name, value in known.items() if value not in (None, "")}
        collective = COLLECTIVES.get(self.name or "", "unknown")
        nodes = tuple(map(tuple, ranks.values()))
        first_node = next(iter(ranks.values()), [])
        gpus = tuple(filter(None, (self.places[rank].gpu for rank in first_node)))
        command = f"{self.name}_perf" if self.name else ""
        where = _provenance(gpus, one_line(self.library, 60), command, nodes)
        # without the number of ranks there is no bus bandwidth
        named = collective if self.name and self.world_size else None
        records = []
        for row in self.rows:
            case, at = f"{collective}, {row.nbytes} bytes", f"{self.file}, line {row.number}"
            values = {"wrong": row.wrong, "hosts": list(ranks), "slots": slots, "row": at}
            fields = {"collective": named, "nbytes": row.nbytes, "values": values}
            measured = params | row.params, [[row.seconds]], Tier.RECORDED, where
            records.append(Record(EXPERIMENT, case, *measured, **fields))
        for row, record in zip(self.rows, records, strict=True):
            ours = (record.busbw or 0.0) / 1e9
            if ours and abs(row.busbw - ours) > 0.02 * ours + 0.011:
                text = f"busbw {row.busbw:g} GB/s is printed, but {collective} on "
                text += f"{record.world_size} ranks makes {ours:.3g}: is it another collective?"
                self.problem(row.number, text)
                break
        return records


@cache
def _provenance(gpus: tuple[str, ...], library: str, command: str, nodes: tuple) -> Provenance:
    """Tests of one cluster share it: a thousand hosts have half a million pairs."""
    machine = Machine("", 0, None, 0, gpus, "", "", "", virtual=False)
    return Provenance(machine, library, "", command, nodes)


def parse(lines: Iterable[str], log: Log) -> None:
    """Read the text of any number of tests into a log.

    The name of its file may tell the collective where the text does not.
    """
    match = _NAME.search(log.files[0])
    hint = match[1] if match else None
    current: dict[str, Test] = {}  # by process: the lines of several jobs may be mixed
    number = 0

    def test(line: str, *begun: str) -> Test:
        """Return the test that a line belongs to: a new one if that has any of `begun` already."""
        match = _WHO.match(line)
        who = next(filter(None, match.groups()), "") if match else ""
        if who not in current or any(getattr(current[who], name) for name in begun):
            if who in current:
                finish(current[who])
            current[who] = Test(log, hint)
            if who and "" in current and not current[""].rows:  # the command stood before them
                current[who].name = current[""].name
                current[who].settings = dict(current[""].settings)
        return current[who]

    def finish(test: Test) -> None:
        log.failures += filter(None, [test.failure(number)])
        log.records += test.records()

    for number, line in enumerate(lines, 1):
        if "NCCL " in line and (prefix := _OWN.search(line)):
            at = prefix.start()
            if match := _NETWORK.search(line, at):
                test(line).network = one_line(match[1], 60)
            elif match := _LIBRARY.search(line, at):
                test(line).library = f"{match[1]} {match[2]}"
            elif "set by environment" in line:
                test(line).settings |= _settings(line)
            elif match := _BEGUN.search(line, 0, at):
                test(line).begun = match[1]
        elif line[:1] != "#" and (match := _ROW.search(line)):
            mine = None if ":" in line else current.get("")  # nobody's name stands before it
            (mine or test(line)).row(number, match)
        elif not _remark(line, number, test) and (mine := test(line)).begun:
            figures = _WHO.sub("", line, count=1)
            if _FIGURES.fullmatch(figures) and (row := _ROW.search(f"{mine.begun} {figures}")):
                mine.row(number, row)
                mine.begun = None
    for last in current.values():
        finish(last)


def _remark(line: str, number: int, test: Callable[..., Test]) -> bool:
    """Take what a line that is no row says; return whether it says anything."""
    if "algbw" in line and "busbw" in line and (match := _HEADER.search(line)):
        words = match[0].replace("cputime", "time").split()
        columns = [word for word in words if word != "timestamp"]
        test(line, "rows").header(columns)
    elif " Rank " in line and (match := _DEVICE.search(line)):
        rank, group, host, pci, gpu = match.groups()
        mine = test(line, "rows")
        if int(rank) == 0 and mine.places:
            mine.alone = True
        elif not mine.places or group == mine.group:  # else of another communicator
            mine.group = group
            mine.places.append(Place(_short(host, 64), _short(gpu, 80), _short(pci, 20)))
    elif "ccl-tests" in line and (match := _TESTS.search(line)):
        mine = test(line, "tests", "rows")
        library, mine.tests, code = match.groups()
        mine.library = f"{library.upper()} {_version(int(code)) if code else ''}".rstrip()
    elif "CCL version" in line and (match := _LIBRARY.search(line)):
        test(line).library = f"{match[1]} {match[2]}"
    elif "nThread" in line:
        test(line, "opened", "rows").opened = True
    elif "Avg bus bandwidth" in line:
        test(line).ended = True
    elif "Test NCCL failure" in line or "Test CUDA failure" in line:
        test(line).errors.append((number, one_line(line.strip(), 120)))
    elif ("_perf" in line and "concluded" not in line) or "CCL_" in line:  # a command
        set_here, command = _settings(line), _NAME.search(line)
        if not set_here and not command:
            return False
        mine = test(line, "rows")
        mine.settings |= set_here
        mine.name = command[1] if command and "_perf" in line else mine.name
    else:
        return False
    return True


def _settings(text: str) -> dict[str, str]:
    """Return the variables of NCCL that a text sets, but for paths and addresses."""
    return {
        name: one_line(value.rstrip("."), 60)
        for name, value in _SETTING.findall(text)
        if "/" not in value and not _ADDRESS.search(value)
    }


def _version(code: int) -> str:
    """Write NCCL's version number as its name: 22807 is 2.28.7, 2708 was 2.7.8."""
    base = 10000 if code >= 10000 else 1000
    return f"{code // base}.{code % base // 100}.{code % 100}"
