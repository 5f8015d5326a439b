"""What other tools have logged, as records: nccl-tests, and NCCL itself under NCCL_DEBUG=INFO.

    for log in logs.read(sorted(Path("elsewhere").iterdir())):
        print(log.tool, len(log.records), "records", *log.problems)

Records are RECORDED; their provenance holds what the text holds (versions, GPUs, which ranks shared
a host) and neither users nor addresses. Where a file is damaged, what could be read is kept and
`problems` says what is lost, with the number of the line.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from course.logs import nccl_debug, nccl_tests
from course.logs.layout import Problem
from course.logs.nccl_debug import DebugLines, Job, Statement
from course.logs.nccl_tests import Failure
from labkit.measure.records import Record
from labkit.measure.untrusted import one_line

_JSON = "JSON"


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
    job: Job = field(default_factory=Job)
    """What these lines say of the job as a whole; of one file."""
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
        place = f"{path.name}, line {line}" if line else path.name
        log.problems.append(one_line(f"{place}: {text}"))

    lines = _lines_of(path, debug)
    if tool == _JSON:
        log.tool = nccl_tests.EXPERIMENT
        _read_json(path, log, problem)
    elif tool == nccl_debug.TOOL:
        for _ in lines:
            pass  # each has passed `debug`
    else:
        log.records, failed = nccl_tests.parse(lines, problem, name=path.name)
        log.failures = [replace(one, file=path.name) for one in failed]
    log.statements, log.job = debug.statements(), debug.job
    return log


def _read_json(path: Path, log: Log, problem: Problem) -> None:
    """Read what nccl-tests wrote under -J.

    Raises:
        UnknownLog: It is another JSON, or one that was cut short.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        log.records, failed = nccl_tests.parse_json(document, problem, name=path.name)
    except (RecursionError, ValueError) as error:
        raise UnknownLog(one_line(f"{path} is no log that can be read: {error}")) from None
    log.failures = [replace(one, file=path.name) for one in failed]


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
        if file.read(4096).lstrip().startswith("{"):
            return _JSON
        file.seek(0)
        for line in file:
            if nccl_tests.recognized(line):
                return nccl_tests.EXPERIMENT
            speaks = speaks or any(word in line for word in nccl_debug.SPEAKS)
            first = first or line.strip()
    if speaks:
        return nccl_debug.TOOL
    if not first:
        raise UnknownLog(f"{path} is empty.")
    raise UnknownLog(
        f"{path} is no log that can be read (nccl-tests' output, NCCL_DEBUG=INFO). "
        f"It begins: {one_line(first, 60)!r}"
    )
