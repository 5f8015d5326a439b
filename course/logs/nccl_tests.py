"""Read what nccl-tests printed, of any version from 2.0 on.

The columns are found by the header's words, since versions and collectives differ: `redop` and
`root` only where they mean something (until 2.11), `error` (until 2.11) or `#wrong`, statistics per
iteration (2.19), a timestamp at the end. What mpirun or Slurm put before the lines is passed over,
and so are NCCL's own lines, also where one of them stands in the middle of a row. rccl-tests prints
the same.

A time of nccl-tests is the average over iterations, and over ranks unless `-a` says otherwise; it
becomes one sample. A test that is repeated within a file gives a sample per repetition.
Source: github.com/NVIDIA/nccl-tests, src/common.cu and src/util.cu, tags v2.0.0 to v2.19.6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from course.logs.layout import Layout, Place, Problem, case_name
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.untrusted import one_line

EXPERIMENT = "nccl-tests"
COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""nccl-tests' name -> torch.distributed's. A name that contains another stands before it."""
MAKING = "while communicators were made"
MOVING = "after that, before the first size was done"
"""Phases of a test: nccl-tests prints the header of its table once the communicators are made
(source: common.cu, run, all versions; with -p it prints the header first)."""
_TYPES = r"u?int(?:8|32|64)?|char|half|float|double|bfloat16|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2"
_OPERATIONS = r"sum|prod|min|max|avg|mulsum|none"
_COLUMNS = ["size", "count", "type", "redop", "root"] + 2 * ["time", "algbw", "busbw", "#wrong"]
_OUT_OF_PLACE = 6
"""Words behind the type where nothing was measured in place."""
_NAME = re.compile(rf"(?<![a-z])({'|'.join(COLLECTIVES)})(?![a-z])")
_ROW = re.compile(rf"(?:^|[\s:>\]|])(\d{{1,18}})\s+\d+\s+({_TYPES})(?:\s+(.*\S))?\s*$")
_HEADER = re.compile(r"size\s+count\s+type\b.*time\s+algbw\s+busbw\s+\S.*")
_BEGUN = re.compile(
    rf"(?:^|[\s:>\]|])(\d+\s+\d+\s+(?:{_TYPES})(?:\s+(?:{_OPERATIONS}))?(?:\s+(?:-1|\d+))?)"
)
_FIGURES = re.compile(r"[\s\d.eE+/NA-]{20,}")
_DEVICE = re.compile(
    r"\sRank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+(\S+) device\s+\d+ \[([^\]]*)\]\s*(.*)"
)
_WHO = re.compile(r"\[\d+,(\d+)\]<\w+>:|\s*(\d+):\s")
"""What mpirun and Slurm put before a line: which process printed it."""
_TAG = re.compile(r"\[\d+,\d+\]<\w+>:")
"""mpirun's, which may stand within a row, too, where the program flushed."""
_OWN = re.compile("NCCL (?:INFO|WARN|TRACE)")
"""In lines that NCCL itself prints."""
_TESTS = re.compile(r"([nr]ccl)-tests:? [Vv]ersion (\S+)(?: .*ccl-library=(\d+))?")
_LIBRARY = re.compile(r"\b([NR]CCL) version(?: :)? (\d+\.[\d.]*\d)")
_SETTINGS = re.compile(r"nThread .*warmup iters: (\d+)\s+iters: (\d+)")
_NETWORK = re.compile(r"Using network (\S.*\S|\S)")
_EMPTY = {"\n", "#\n", "# \n"}
_INTEGER = re.compile(r"-?\d{1,9}")
_FOREVER = 1e15
"""Microseconds; whatever lasts longer is no time."""
_SETTING = re.compile(r"\b([NR]CCL_[A-Z0-9_]+)(?:=| set by environment to | set to )([^\s'\"`;]+)")
_TALK = re.compile(r".CCL_(?:DEBUG|HOSTID)")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that printed no figures, or not all of them."""

    collective: str | None
    params: dict[str, Any]
    """`hosts`, `gpus_per_host`, `world_size`."""
    hosts: list[str]
    line: int
    text: str
    """What it printed, in short."""
    phase: str = ""
    """How far it had come: see `MAKING` and `MOVING`."""
    file: str = ""
    slots: tuple[str, ...] = ()
    """PCI addresses of the GPUs that took part."""


@dataclass(slots=True)
class _Row:
    """The figures of one size and place; those of the last repetition, but all its seconds."""

    seconds: list[float] = field(default_factory=list)
    number: int = 0
    algbw: float = 0.0
    """GB/s, as printed."""
    busbw: float = 0.0
    wrong: float | None = None


class _Test:
    """One test, as its lines come by."""

    def __init__(self, problem: Problem, name: str | None, file: str) -> None:
        self.problem, self.name, self.file = problem, name, file
        self.library, self.tests, self.network = "NCCL", "", ""
        self.layout, self.group = Layout(), ""
        self.alone = False
        """Whether several processes called themselves rank 0."""
        self.iters: tuple[int, int] | None = None
        """To warm up, and timed."""
        self.columns: list[str] = []
        self.rows: dict[tuple, _Row] = {}
        """By size, type, operation, root, in place or not."""
        self.begun: str | None = None
        """The beginning of a row whose figures have not come yet."""
        self.last, self.ended = 0, False
        self.settings: dict[str, str] = {}
        self.failures: list[tuple[int, str]] = []

    def header(self, columns: list[str]) -> None:
        """Learn from the header what stands where in a row."""
        self.columns = columns
        self.head = columns.index("time") - 3
        """How many words there are between the type and the figures: operation, root."""
        self.width = [*columns[3:], "time"].index("time", self.head + 1) - self.head
        """How many figures there are per place."""
        self.operated = "redop" in columns
        self.rooted = "root" in columns

    def row(self, number: int, match: re.Match) -> None:
        """Take a row, out of place and in place."""
        self.last = number
        size, dtype, rest = match.groups()
        if rest and "<" in rest:
            rest = _TAG.sub(" ", rest)
        words = rest.split() if rest else []
        if not self.columns:
            self.problem(number, "a row without a header before it: read as version 2.13 or later")
            self.header(_COLUMNS[: 3 + len(words)] if len(words) == _OUT_OF_PLACE else _COLUMNS)
        head, width = self.head, self.width
        if len(words) <= head:
            self.begun = match[0]  # the figures come later, in a line of their own
            return
        if len(words) < len(self.columns) - 3:
            self.problem(number, f"cut short: {len(words) + 3} of {len(self.columns)} columns")
        if size == "0":  # less than an element per rank moves nothing
            return
        root = words[head - 1] if self.rooted else "-1"
        if root != "-1" and not _INTEGER.fullmatch(root):
            self.problem(number, f"no root: {root}")
            return
        key = size, dtype, words[0] if self.operated else "", root
        for in_place in (False, True):
            if len(words) >= head + width:
                self._figures(number, (*key, in_place), words, head)
            head += width

    def _figures(self, number: int, key: tuple, words: list[str], at: int) -> None:
        try:
            time, algbw, busbw = float(words[at]), float(words[at + 1]), float(words[at + 2])
            last = words[at + 3] if self.width > 3 else "N/A"
            wrong = 0.0 if last == "0" else None if last == "N/A" else float(last)
            if not 0 < time < _FOREVER:
                raise ValueError
        except ValueError:
            self.problem(number, f"no figures: {' '.join(words[at : at + min(self.width, 4)])}")
            return
        if wrong and "#wrong" in self.columns:
            self.problem(number, f"{wrong:g} wrong elements: its time proves nothing")
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = _Row()
        row.seconds.append(time / 1e6)
        row.number, row.algbw, row.busbw, row.wrong = number, algbw, busbw, wrong

    def failure(self, number: int) -> Failure | None:
        """Return what is known of a test that failed, or began and printed no figures."""
        if not self.failures and (self.rows or not (self.columns or self.layout.places)):
            return None
        line, text = self.failures[0] if self.failures else (number, "no figures")
        collective = COLLECTIVES.get(self.name or "")
        phase = MOVING if self.columns else MAKING
        if self.rows:
            phase = f"after {max(int(key[0]) for key in self.rows)} bytes were done"
        layout, slots = self.layout, tuple(self.layout.slots)
        return Failure(collective, layout.params(), layout.hosts, line, text, phase, slots=slots)

    def finish(self, number: int) -> None:
        """Say what is missing, and infer what can be inferred."""
        best = max(self.rows.values(), key=lambda row: row.algbw, default=_Row())
        ratio = best.busbw / best.algbw if best.algbw else 0.0
        self.name = self.name or self._inferred(ratio)
        name = f"{self.name}_perf" if self.name else "a test"
        if self.failures:
            at, line = self.failures[0]
            others = f" (one of {len(self.failures)} such lines)" if self.failures[1:] else ""
            self.problem(at, f"{name} failed: {line}{others}")
        if not self.rows:
            if (self.columns or self.layout.places) and not self.failures:
                self.problem(number, f"{name} began and printed no figures")
            return
        if not self.ended and not self.failures:
            self.problem(self.last, f"{name} ends here without its summary: is the text cut short?")
        if self.alone or len(self.layout.places) == 1:
            self.problem(
                self.last,
                "one rank moves nothing. If there were several processes, each of them "
                "ran alone: build nccl-tests with MPI=1",
            )
        if self.name is None:
            self.problem(
                self.last,
                "nothing says which collective this is. The file's name may: all_gather.log",
            )
        elif self.layout.world_size is None:
            most = 2 if self.name == "all_reduce" else 1
            follows = ""
            if self.name not in ("broadcast", "reduce", "sendrecv") and 0 < ratio < most:
                self.layout.inferred = round(most / (most - ratio))
                follows = f"; {self.layout.world_size} follow from busbw / algbw = {ratio:.4g}"
            self.problem(self.last, f"no full list of ranks{follows}")

    def add(self, other: _Test) -> None:
        """Take the rows of a repetition."""
        for key, row in other.rows.items():
            mine = self.rows.setdefault(key, row)
            if mine is not row:
                mine.seconds += row.seconds

    def identity(self) -> tuple:
        """Return what two tests have in common whose rows are repetitions of each other."""
        ranks = tuple(self.layout.places)
        made_with = self.name, self.library, self.tests, self.iters, tuple(self.settings.items())
        return *made_with, ranks, self.layout.world_size

    def _inferred(self, ratio: float) -> str | None:
        """Tell which collective it is where no line names it, but its figures leave one.

        Only all_reduce has a busbw above its algbw; `ratio` is one by the other. On two ranks they
        are alike, where a sum without a root is an all_reduce or, at half, a reduce_scatter
        (source: nccl-tests, doc/PERFORMANCE.md).
        """
        if ratio > 1.01:
            return "all_reduce"
        n = self.layout.world_size or 0
        sums = {(key[2], str(key[3])) for key in self.rows} == {("sum", "-1")}
        if n < 2 or not sums:
            return None
        for name, factor in (("all_reduce", 2 * (n - 1) / n), ("reduce_scatter", (n - 1) / n)):
            if abs(ratio / factor - 1) < 0.05:
                told = (
                    f"no line names the collective: redop sum, no root and busbw/algbw fit {name}"
                )
                self.problem(None, told)
                return name
        return None

    def records(self) -> list[Record]:
        """Make a record of each row and place."""
        warmup, iters = self.iters or (None, None)
        params = {
            **self.layout.params(),
            "tests": self.tests,
            "network": self.network,
            "settings": _written(self.settings),
            "warmup": warmup,
            "iters": iters,
        }
        command = f"{self.name}_perf" if self.name else ""
        provenance = self.layout.provenance(library=self.library, command=command)
        hosts, slots = self.layout.hosts, self.layout.slots
        collective = COLLECTIVES.get(self.name or "")
        origin = _Origin(collective, params, provenance, hosts, slots)
        records = [origin.record(key, row.seconds, row.busbw * 1e9, row.wrong)
                   for key, row in self.rows.items()]  # fmt: skip
        for record, row in zip(records, self.rows.values(), strict=True):
            at = f", line {row.number}" if row.number else ""
            record.values["row"] = f"{self.file}{at}"
            ours = (record.busbw or 0.0) / 1e9
            if ours and len(row.seconds) == 1 and abs(row.busbw - ours) > 0.02 * ours + 0.011:
                self.problem(
                    row.number,
                    f"busbw {row.busbw:g} GB/s is printed, but {record.collective} on "
                    f"{record.world_size} ranks makes {ours:.3g}: is it another collective?",
                )
                break
        return records


@dataclass(frozen=True, slots=True)
class _Origin:
    """What the rows of a test have in common."""

    collective: str | None
    """As in torch.distributed; None if nobody knows."""
    params: dict[str, Any]
    """The test's settings."""
    provenance: Provenance
    hosts: list[str]
    slots: list[str]

    def record(self, key: tuple, seconds: list[float], busbw: float, wrong: float | None) -> Record:
        """Make the record of a row: `key` is size, type, operation, root (-1: none), in place."""
        nbytes, dtype, redop, root, in_place = int(key[0]), *key[1:3], int(key[3]), key[4]
        params = {name: value for name, value in self.params.items() if value not in (None, "")}
        params |= {"dtype": dtype, "redop": redop, "in_place": in_place}
        if root >= 0:
            params["root"] = root
        case = case_name(self.collective or "unknown", nbytes, params)
        known = "world_size" in params  # without the number of ranks there is no bus bandwidth
        values = {"busbw": busbw, "wrong": wrong, "hosts": self.hosts, "slots": self.slots}
        return Record(
            EXPERIMENT,
            case,
            params,
            [seconds],
            Tier.RECORDED,
            self.provenance,
            collective=self.collective if known else None,
            nbytes=nbytes,
            values=values,
        )


def parse(
    lines: Iterable[str], problem: Problem, *, name: str = ""
) -> tuple[list[Record], list[Failure]]:
    """Read the text of any number of tests.

    The file's `name` may tell the collective where the text does not.

    Returns:
        A record for each size, type and place of each test (a test that is repeated adds samples),
        and the tests that failed.
    """
    hint = match[1] if (match := _NAME.search(name)) else None
    current: dict[str, _Test] = {}
    """By process: the lines of several jobs may be mixed."""
    finished: dict[tuple, _Test] = {}
    failed: list[Failure] = []
    number = 0

    def test(line: str, *, new: Callable[[_Test], Any] = lambda test: False) -> _Test:
        """Return the test that a line belongs to; a new one if it has that already."""
        match = _WHO.match(line)
        who = next(filter(None, match.groups()), "") if match else ""
        if who not in current or new(current[who]):
            if who in current:
                finish(current[who])
            current[who] = _Test(problem, hint, one_line(name, 80))
            if who and "" in current and not current[""].rows:  # the command stood before them
                current[who].name = current[""].name
                current[who].settings = dict(current[""].settings)
        return current[who]

    def finish(test: _Test) -> None:
        test.finish(number)
        if failure := test.failure(number):
            failed.append(failure)
        first = finished.setdefault(test.identity(), test)
        if first is not test:
            first.add(test)

    for number, line in enumerate(lines, 1):
        if line in _EMPTY:
            continue
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
    for one in current.values():
        finish(one)
    return [record for one in finished.values() for record in one.records()], failed


def parse_json(
    text: str, problem: Problem, *, name: str = ""
) -> tuple[list[Record], list[Failure]]:
    """Read the document that nccl-tests writes under ``-J``, of versions 1 to 3.

    Of its environment, which is the user's whole one, NCCL's variables are taken and nothing else.
    Source: github.com/NVIDIA/nccl-tests, src/util.cu, JSON_FILE_VERSION 1 (v2.17.6) to 3.

    Returns:
        As `parse`.

    Raises:
        ValueError: It is no such document.
    """
    try:
        document = json.loads(text)
        words, config = list(map(str, document["args"])), document["config"]
        match = _NAME.search(words[0].rpartition("/")[2]) or _NAME.search(name)
        test = _Test(problem, match[1] if match else None, one_line(name, 80))
        test.library = f"NCCL {_version(int(document['nccl_version']))}"
        test.iters = int(config["warmup_iters"]), int(config["iterations"])
        for one in config.get("devices", ()):
            place = Place(str(one["hostname"]), str(one["device_info"]), str(one["device_hex"]))
            test.layout.places.append(place)
        test.settings = _settings("\n".join(map(str, document.get("env", ()))))
        test.failures = [(0, one_line(error, 120)) for error in document.get("errors", ())]
        test.ended = bool(document.get("end_time"))
        results = document.get("results")
        test.columns, test.width = ([] if results is None else ["#wrong"]), 4
        for row in results or ():
            key = int(row["size"]), str(row["type"]), str(row["redop"]), str(row["root"]).strip()
            for place in ("out_of_place", "in_place"):
                if key[0] and (one := row.get(place)):
                    seconds, wrong = one.get("time", one.get("cpu_time")), one.get("nwrong")
                    words = [
                        seconds,
                        one["alg_bw"],
                        one["bus_bw"],
                        "N/A" if wrong is None else wrong,
                    ]
                    test._figures(0, (*key, place == "in_place"), list(map(str, words)), 0)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"no JSON of nccl-tests as its -J writes it: {reason}") from None
    test.finish(0)
    failure = test.failure(0)
    return test.records(), [failure] if failure else []


def recognized(line: str) -> bool:
    """Whether a line shows that a text is nccl-tests' output."""
    return (
        ("algbw" in line and "busbw" in line)
        or _TESTS.search(line) is not None
        or "Collective test starting" in line
        or _SETTINGS.search(line) is not None
        or (line.count(".") >= 2 and _ROW.search(line) is not None)
    )


def _remark(line: str, number: int, test: Callable[..., _Test]) -> bool:
    """Take what a line that is no row says; return whether it says anything."""
    if "algbw" in line and "busbw" in line and (match := _HEADER.search(line)):
        words = match[0].replace("cputime", "time").split()
        mine = test(line, new=lambda test: test.rows)
        mine.header([word for word in words if word != "timestamp"])
    elif " Rank " in line and (match := _DEVICE.search(line)):
        rank, group, host, pci, gpu = match.groups()
        mine = test(line, new=lambda test: test.rows)
        if int(rank) == 0 and mine.layout.places:
            mine.alone = True
        elif not mine.layout.places or group == mine.group:  # else of another communicator
            mine.group = group
            mine.layout.places.append(Place(host, gpu, pci))
    elif "ccl-tests" in line and (match := _TESTS.search(line)):
        mine = test(line, new=lambda test: test.tests or test.rows)
        library, mine.tests, code = match.groups()
        mine.library = f"{library.upper()} {_version(int(code)) if code else ''}".rstrip()
    elif "CCL version" in line and (match := _LIBRARY.search(line)):
        test(line).library = f"{match[1]} {match[2]}"
    elif "nThread" in line and (match := _SETTINGS.search(line)):
        test(line, new=lambda test: test.iters or test.rows).iters = int(match[1]), int(match[2])
    elif "Avg bus bandwidth" in line:
        test(line).ended = True
    elif "Test NCCL failure" in line or "Test CUDA failure" in line:
        test(line).failures.append((number, one_line(line.strip(), 120)))
    elif line.strip("# \t\r\n") == "...":
        test(line).layout.complete = False
    elif ("_perf" in line and "concluded" not in line) or "CCL_" in line:  # a command
        set_here, command = _settings(line), _NAME.search(line)
        if not set_here and not command:
            return False
        mine = test(line, new=lambda test: test.rows)
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
        if "/" not in value and not _ADDRESS.search(value) and not _TALK.match(name)
    }


def _version(code: int) -> str:
    """Write NCCL's version number as its name: 22807 is 2.28.7, 2708 was 2.7.8."""
    base = 10000 if code >= 10000 else 1000
    return f"{code // base}.{code % base // 100}.{code % 100}"


def _written(variables: dict[str, str]) -> str:
    return " ".join(f"{name}={variables[name]}" for name in sorted(variables))
