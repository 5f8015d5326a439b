"""What nccl-tests has logged, as records.

    log = logs.read(Path("elsewhere/all_reduce.log"))
    print(len(log.records), "records", *log.problems)

Records are RECORDED; their provenance holds what the text holds (versions, GPUs, which ranks shared
a host). Where a file is damaged, what could be read is kept and `problems` says what is lost, with
the number of the line.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from course.logs import nccl_tests
from course.logs.nccl_tests import Log
from labkit.measure.untrusted import one_line

_LONGEST = 10_000
"""Letters of a line that are looked at; a row of nccl-tests has 200, a command perhaps 2000."""


class UnknownLog(ValueError):
    """A file without a test of nccl-tests; the message says what was found instead."""


def read(path: Path) -> Log:
    """Read a log of nccl-tests; `UnknownLog` where it holds no test, `OSError` as of any file."""
    log = Log([path.name])
    with path.open(encoding="utf-8", errors="replace") as file:
        nccl_tests.parse((line[:_LONGEST] for line in file), log)
        if not log.records and not log.failures and not log.problems:
            file.seek(0)
            begins = one_line(next(filter(str.strip, file), "").strip(), 60)
            content = f"It begins: {begins!r}" if begins else "It is empty."
            raise UnknownLog(f"{path} holds no test of nccl-tests. {content}")
    return log


def together(logs: Iterable[Log]) -> Log:
    """Put several logs into one."""
    whole = Log([])
    for log in logs:
        for name in ("files", "records", "failures", "problems"):
            getattr(whole, name).extend(getattr(log, name))
    return whole


def anonymous(log: Log) -> Log:
    """Return a log that calls its hosts host 1, host 2, ..., also where a text names them."""
    named = [*(record.values["hosts"] for record in log.records), *(f.hosts for f in log.failures)]
    names = dict.fromkeys(itertools.chain(*named))
    numbers = {name: f"host {number}" for number, name in enumerate(names, 1)}
    any_name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{any_name or '(?!)'})(?![A-Za-z0-9])")

    def hidden(text: str) -> str:
        return pattern.sub(lambda match: numbers[match[0]], text)

    records, failures = [], []
    for record in log.records:
        hosts = [numbers[host] for host in record.values["hosts"]]
        values = record.values | {"hosts": hosts, "row": hidden(record.values["row"])}
        records.append(replace(record, values=values))
    for failure in log.failures:
        words = {"text": hidden(failure.text), "file": hidden(failure.file)}
        failures.append(replace(failure, hosts=[numbers[host] for host in failure.hosts], **words))
    return Log([*map(hidden, log.files)], records, failures, [*map(hidden, log.problems)])
