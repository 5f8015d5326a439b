"""What nccl-tests has logged, as records.

    log = logs.read(Path("elsewhere/all_reduce.log"))
    print(len(log.records), "records", *log.problems)

Records are RECORDED; their provenance holds what the text holds (versions, GPUs, which ranks shared
a host). Where a file is damaged, what could be read is kept and `problems` says what is lost, with
the number of the line.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from course.logs import nccl_tests
from course.logs.nccl_tests import Failure
from labkit.measure.records import Record
from labkit.measure.untrusted import one_line


class UnknownLog(ValueError):
    """A file that nccl-tests did not write; the message says what was found instead."""


@dataclass(slots=True)
class Log:
    """What one file holds, or several."""

    paths: list[Path]
    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """Tests that printed no figures."""
    problems: list[str] = field(default_factory=list)
    """What could not be read: ``"x.log, line 12: cut short: 9 of 13 columns"``."""


def read(path: Path) -> Log:
    """Read a log of nccl-tests.

    Raises:
        OSError: The file cannot be opened.
        UnknownLog: nccl-tests did not write it.
    """
    log = Log([path])

    def problem(line: int | None, text: str) -> None:
        place = f"{path.name}, line {line}" if line else path.name
        log.problems.append(one_line(f"{place}: {text}"))

    with path.open(encoding="utf-8", errors="replace") as file:
        is_json = file.read(4096).lstrip().startswith("{")
        file.seek(0)
        if is_json:
            try:
                log.records, failed = nccl_tests.parse_json(
                    json.load(file), problem, name=path.name
                )
            except (RecursionError, ValueError) as error:
                raise UnknownLog(one_line(f"{path} is no log that can be read: {error}")) from None
        else:
            _recognize(path, file)
            file.seek(0)
            log.records, failed = nccl_tests.parse(file, problem, name=path.name)
    log.failures = [replace(failure, file=path.name) for failure in failed]
    return log


def _recognize(path: Path, lines: Iterable[str]) -> None:
    """Look for nccl-tests' lines, which may come after much else.

    Raises:
        UnknownLog: There is none.
    """
    first = ""
    for line in lines:
        if nccl_tests.recognized(line):
            return
        first = first or line.strip()
    if not first:
        raise UnknownLog(f"{path} is empty.")
    raise UnknownLog(f"{path} is no log of nccl-tests. It begins: {one_line(first, 60)!r}")
