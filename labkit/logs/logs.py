"""Records of what other tools have logged: nccl-tests, flight recorder, P2P test.

    for log in logs.read(sorted(Path("elsewhere").iterdir())):
        print(log.tool, len(log.records), "records", *log.problems)

Records are RECORDED; their provenance holds what the text holds (versions, GPUs, which ranks shared
a host) and neither users nor addresses. Where a file is damaged, what could be read is kept and
`problems` says what is lost, with the number of the line.
"""

import contextlib
import functools
import gc
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.logs import nccl_tests
from labkit.logs.flight_recorder import RECORDER, Dumped
from labkit.logs.origins import Devices, Say, lines_of
from labkit.measure.records import Record, Tier
from labkit.measure.untrusted import one_line

P2P_TEST = "p2pBandwidthLatencyTest"
Progress = Callable[[float], object]
"""Told the share of all bytes that has been read."""


class UnknownLog(ValueError):
    """A file that no tool wrote which `read` knows; the message says what was found instead."""


@dataclass(slots=True)
class Log:
    """What one file holds, or the files that the ranks of one job wrote."""

    tool: str
    paths: list[Path]
    records: list[Record] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """What follows from the log without any figures: who waits for whom."""
    problems: list[str] = field(default_factory=list)
    """What could not be read: ``"x.log, line 12: cut short: 9 of 13 columns"``."""

    def problem(self, path: Path, line: int | None, text: str) -> None:
        """Note what could not be read, and where."""
        where = path.name if line is None else f"{path.name}, line {line}"
        self.problems.append(one_line(f"{where}: {text}"))


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from looking through millions of figures: a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
def read(paths: Iterable[Path | str], *, progress: Progress | None = None) -> list[Log]:
    """Read the logs of other tools.

    Files that the ranks of a job wrote, one each (flight recorder), become one
    `Log` if they lie in one folder. `progress` is told how far it is, for large files.

    Raises:
        OSError: A file cannot be opened.
        UnknownLog: A file is of none of the tools.
    """
    paths = [Path(path) for path in paths]
    total, done = sum(path.stat().st_size for path in paths) or 1, 0
    logs: list[Log] = []
    of_ranks: dict[tuple[str, Path], tuple[Log, Dumped]] = {}

    def told(nbytes: int) -> None:
        if progress:
            progress((done + nbytes) / total)

    for path in paths:
        tool = recognize(path)
        if tool == RECORDER:
            log, ranks = of_ranks.setdefault((tool, path.parent), (Log(tool, []), Dumped()))
            ranks.read(path, functools.partial(log.problem, path), told)
        else:
            log = Log(tool.removesuffix(" -J"), [])
            text = lines_of(path, told)
            say = functools.partial(log.problem, path)
            if tool == P2P_TEST:
                log.records = _p2p_test(text, say)
            elif tool == nccl_tests.JSON:
                log.records = nccl_tests.parse_json("".join(text), say)
            else:
                log.records = nccl_tests.parse(text, say, name=path.name)
        log.paths.append(path)
        if log.paths == [path]:
            logs.append(log)
        done += path.stat().st_size
        told(0)
    for log, ranks in of_ranks.values():
        log.records, log.findings = ranks.records(), ranks.findings()
    return logs


def recognize(path: Path) -> str:
    """Return the tool that wrote a file, by its beginning; nccl-tests' may come after much else.

    Raises:
        OSError: The file cannot be opened.
        UnknownLog: It is of none of the tools.
    """
    with path.open("rb") as file:
        begin = file.read(2**16)
    if begin[:1] == b"\x80" and begin[1:2] in b"\x02\x03\x04\x05":
        return RECORDER
    text = begin.decode(errors="replace").lstrip()
    if text.startswith("{"):
        if ('"entries"' in text and '"pg_' in text) or '"profiling_name"' in text:
            return RECORDER
        if '"nccl_version"' in text or '"config"' in text or '"results"' in text:
            return nccl_tests.JSON
    if "GPU Bandwidth Latency Test]" in text or ("P2P=" in text and "Matrix" in text):
        return P2P_TEST
    for line in lines_of(path):
        if nccl_tests.recognized(line):
            return nccl_tests.EXPERIMENT
        if "P2P=" in line and "Matrix" in line:
            return P2P_TEST
    if not text:
        raise UnknownLog(f"{path} is empty.")
    first = next(iter(text.splitlines()))
    raise UnknownLog(
        f"{path} is neither a record file nor a log that labkit reads (nccl-tests' output or its "
        "JSON, torch's flight recorder, p2pBandwidthLatencyTest). It begins: "
        f"{one_line(first, 60)!r}"
    )


# p2pBandwidthLatencyTest. Source: github.com/NVIDIA/cuda-samples.

_MATRIX = re.compile(r"(Unidirectional|Bidirectional)?\s*P2P=(\w+)\s+(Bandwidth|Latency)")


def _p2p_test(lines: Iterable[str], say: Say) -> list[Record]:
    """Make a record per matrix: ``values["matrix"]``, by GPU, bytes per second or seconds.

    A figure that is missing is None.
    """
    gpus: dict[int, str] = {}
    matrices: dict[str, list[list[float | None]]] = {}
    about: dict[str, dict[str, Any]] = {}
    name, width = None, 0
    for number, line in enumerate(lines, 1):
        words = line.split()
        if found := re.match(r"\s*Device: (\d{1,4}), (.*?), pciBusID", line):
            gpus[int(found[1])] = found[2]
        elif found := _MATRIX.search(line):
            direction, p2p, quantity = found.groups()
            reads = ", reads" if "Reads" in line else ""
            name = f"{direction or ''} {quantity}, P2P {p2p}{reads}".strip().lower()
            about[name] = {"p2p": p2p == "Enabled", "latency": quantity == "Latency"}
        elif words[:1] in (["D\\D"], ["GPU"]) and name:
            width, matrices[name] = len(words) - 1, []
        elif words[:1] == ["CPU"]:
            name = None  # the same again, by the host's clock
        elif name in matrices and words and words[0].isdigit():
            try:
                row = [float(word) for word in words[1:]]
            except ValueError:
                row = []
            if int(words[0]) != len(matrices[name]) or len(row) != width:
                say(number, f"row {words[0]} of {name!r} has no {width} figures")
            scale = 1e-6 if about[name]["latency"] else 1e9
            row = [x * scale for x in row] + [None] * (width - len(row))
            matrices[name].append(row[:width])
    where = Devices([("", gpus[i]) for i in sorted(gpus)]).provenance(library="CUDA")
    records = []
    for name, matrix in matrices.items():
        if matrix and len(matrix) < len(matrix[0]):
            say(number, f"{name!r} ends after {len(matrix)} of {len(matrix[0])} rows")
        params = about[name] | {"gpus": len(matrix)}
        records.append(
            Record(P2P_TEST, name, params, [], Tier.RECORDED, where, values={"matrix": matrix})
        )
    return records
