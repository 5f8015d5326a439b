"""What other tools have logged, as records: nccl-tests, and NCCL itself under NCCL_DEBUG=INFO.

    for log in logs.read(sorted(Path("elsewhere").iterdir())):
        print(log.tool, len(log.records), "records", *log.problems)

Records are RECORDED; their provenance holds what the text holds (versions, GPUs, which ranks shared
a host) and neither users nor addresses. Where a file is damaged, what could be read is kept and
`problems` says what is lost, with the number of the line.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.logs import nccl_debug, nccl_tests
from labkit.logs.nccl_debug import DebugLines, Statement
from labkit.logs.nccl_tests import Failure
from labkit.measure.records import Record
from labkit.measure.untrusted import one_line


class UnknownLog(ValueError):
    """A file that no tool wrote which `read` knows; the message says what was found instead."""


@dataclass(slots=True)
class Log:
    """What one file holds, or several of one tool."""

    tool: str
    paths: list[Path]
    records: list[Record] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    """What NCCL itself says, under NCCL_DEBUG=INFO."""
    failures: list[Failure] = field(default_factory=list)
    """Tests of nccl-tests that printed no figures."""
    problems: list[str] = field(default_factory=list)
    """What could not be read: ``"x.log, line 12: cut short: 9 of 13 columns"``."""


def read(paths: Iterable[Path | str]) -> list[Log]:
    """Read the logs of other tools, a `Log` for each file.

    Raises:
        OSError: A file cannot be opened.
        UnknownLog: A file is of none of the tools.
    """
    return [_read(Path(path)) for path in paths]


def _read(path: Path) -> Log:
    tool, debug = _recognize(path), DebugLines(path.name)
    log = Log(tool, [path])

    def problem(line: int | None, text: str) -> None:
        place = path.name if line is None else f"{path.name}, line {line}"
        log.problems.append(one_line(f"{place}: {text}"))

    lines = _lines_of(path, debug)
    if tool == nccl_debug.TOOL:
        for _ in lines:
            pass  # each has passed `debug`
    else:
        log.records, failed = nccl_tests.parse(lines, problem, name=path.name)
        log.failures = [replace(one, file=path.name) for one in failed]
    log.statements = debug.statements()
    return log


def _lines_of(path: Path, debug: DebugLines) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            debug.add(number, line)
            yield line


def _recognize(path: Path) -> str:
    """Return the tool that wrote a file; nccl-tests' lines may come after much else.

    Raises:
        OSError: The file cannot be opened.
        UnknownLog: It is of none of the tools.
    """
    speaks, first = False, ""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if nccl_tests.recognized(line):
                return nccl_tests.EXPERIMENT
            speaks = speaks or "CCL INFO" in line or "CCL WARN" in line
            first = first or line.strip()
    if speaks:
        return nccl_debug.TOOL
    if not first:
        raise UnknownLog(f"{path} is empty.")
    raise UnknownLog(
        f"{path} is no log that labkit reads (nccl-tests' output, NCCL_DEBUG=INFO). "
        f"It begins: {one_line(first, 60)!r}"
    )
