"""What nccl-tests has logged, as records.

    log = logs.read(Path("elsewhere/all_reduce.log"))
    print(len(log.records), "records", *log.problems)

Records are RECORDED; their provenance holds what the text holds (versions, GPUs, which ranks shared
a host). Where a file is damaged, what could be read is kept and `problems` says what is lost, with
the number of the line.
"""

import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from course.logs import nccl_tests
from course.logs.nccl_tests import Failure, Problem
from labkit.measure.records import Record
from labkit.measure.untrusted import one_line

_LONGEST = 10_000
"""Letters of a line that are looked at; a row of nccl-tests has 200, a command perhaps 2000."""


class UnknownLog(ValueError):
    """A file without a test of nccl-tests; the message says what was found instead."""


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
    """Read a log of nccl-tests, also one that gzip has compressed.

    Raises:
        OSError: The file cannot be opened.
        UnknownLog: It holds no test of nccl-tests.
    """
    log = Log([path])

    def problem(line: int | None, text: str) -> None:
        place = f"{path.name}, line {line}" if line else path.name
        log.problems.append(one_line(f"{place}: {text}"))

    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as file:
        lines = _whole(file, problem)
        begun = []
        for line in lines:
            begun.append(line)
            if line.strip():
                break
        else:
            raise UnknownLog(f"{path} is empty, or cut short.")
        first, lines = begun[-1], itertools.chain(begun, lines)
        if first.startswith("{"):
            try:
                log.records, failed = nccl_tests.parse_json("".join(lines), problem, name=path.name)
            except ValueError as error:
                raise UnknownLog(one_line(f"{path} is no log that can be read: {error}")) from None
        else:
            text = (line[:_LONGEST] for line in lines)
            log.records, failed = nccl_tests.parse(text, problem, name=path.name)
    if not log.records and not failed and not log.problems:
        begins = one_line(first.strip(), 60)
        raise UnknownLog(f"{path} holds no test of nccl-tests. It begins: {begins!r}")
    log.failures = [replace(failure, file=path.name) for failure in failed]
    return log


def _whole(file: Iterable[str], problem: Problem) -> Iterator[str]:
    """Yield the lines of a file; where gzip's data end too early, say so."""
    try:
        yield from file
    except (EOFError, zlib.error) as error:
        problem(None, f"cut short: {error}")


def anonymous(log: Log) -> Log:
    """Return a log that calls its hosts host 1, host 2, ..., also where a text names them."""
    named = [*(record.values["hosts"] for record in log.records), *(f.hosts for f in log.failures)]
    names = list(dict.fromkeys(itertools.chain(*named)))
    numbers = {name: f"host {number}" for number, name in enumerate(names, 1)}
    any_name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{any_name})(?![A-Za-z0-9])")

    def hidden(text: str) -> str:
        return pattern.sub(lambda match: numbers[match[0]], text) if names else text

    def changed(values: dict[str, Any]) -> dict[str, Any]:
        hosts = [numbers[host] for host in values["hosts"]]
        return values | {"hosts": hosts, "row": hidden(values["row"])}

    return Log(
        [Path(hidden(path.name)) for path in log.paths],
        [replace(record, values=changed(record.values)) for record in log.records],
        [
            replace(
                failure,
                hosts=[numbers[host] for host in failure.hosts],
                text=hidden(failure.text),
                file=hidden(failure.file),
            )
            for failure in log.failures
        ],
        [hidden(problem) for problem in log.problems],
    )
