"""`python -m course triage`: four numbers, or a file, and the row of the field guide to begin with.

Without files it asks. With files it reads what `examples/checkup.py` printed, nccl-tests' output,
NCCL's own log, and traces (Chrome JSON) of torch.profiler, those of all ranks together. The rows
are FIELD_GUIDE.md's.
"""

import argparse
import re
import statistics
import sys
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from course import traces
from course.catalogue import ROOT
from labkit.logs import logs, nccl_debug

_ROW = re.compile(r"^\|" + r"([^|\n]*)\|" * 5 + "$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the field guide: what to measure next, the remedy if that is it, cases near it."""

    number: int
    question: str
    measure: str
    remedy: str
    cases: tuple[str, ...]


@cache
def guide() -> dict[int, Row]:
    """Read the rows of the field guide, by number."""
    text = (ROOT / "FIELD_GUIDE.md").read_text(encoding="utf-8")
    rows = {}
    for number, *texts, places in _ROW.findall(text):
        if number.strip().isdigit():
            plain = (re.sub("[*`]", "", one).strip() for one in texts)
            rows[int(number)] = Row(int(number), *plain, tuple(re.findall("`([^`]+)`", places)))
    return rows


def place(
    step: float,
    without: float,
    wait: float | None = None,
    calls: float | None = None,
    *,
    queued: float = 0.0,
) -> list[tuple[Row, str]]:
    """Return the rows that four numbers lead to, the likeliest first, each with its arithmetic.

    Args:
        step: Milliseconds of one step.
        without: Milliseconds of the step without communication.
        wait: Milliseconds, of the difference, in which a rank waits for the last one; the median
            rank's. None: not known.
        calls: Milliseconds that its calls would take if they moved nothing: their number times the
            latency of one. None: not known.
        queued: Milliseconds in which a rank was ready to run and had no CPU.

    Raises:
        ValueError: A number is negative, or the step is shorter without communication than nothing.
    """
    if min(step, without, wait or 0, calls or 0, queued) < 0 or step == 0:
        raise ValueError("times are milliseconds, none negative, and a step takes some.")
    rows, lost = guide(), step - without
    share = f"communication costs {max(lost, 0):.3g} of {step:.3g} ms"
    if queued > 0.3 * step:
        return [(rows[3], f"a rank had no CPU for {queued:.3g} of {step:.3g} ms")]
    if lost < 0.05 * step:
        return [(rows[1], share)]
    if wait is None:
        unknown = "how much of it is waiting is not known: a checkup or traces of all ranks say it"
        return [(rows[2], f"{share}; {unknown}")]
    if wait >= 0.5 * lost:
        return [(rows[2], f"{wait:.3g} of these {lost:.3g} ms are waiting for the last rank")]
    rest = lost - wait
    if calls is None:
        shown = f"{rest:.3g} ms move data; calls × latency is not known: measure that first"
        return [(rows[4], shown), (rows[5], ""), (rows[6], "")]
    if calls >= 0.5 * rest:
        return [(rows[4], f"calls × latency are {calls:.3g} of {rest:.3g} ms that are not waiting")]
    shown = f"{rest - calls:.3g} ms are neither waiting nor latency: bytes over a rate"
    leads = [(rows[5], shown), (rows[6], "if the bytes are what they must be"), (rows[7], "")]
    if calls >= 0.2 * rest:
        leads.insert(1, (rows[4], f"calls × latency are {calls:.3g} of {rest:.3g} ms"))
    return leads


def read_checkup(text: str) -> dict[str, float]:
    """Take `place`'s arguments from what `examples/checkup.py` printed; the median rank's.

    Communication is what is exposed: waiting and moving that no computing hides.

    Raises:
        ValueError: It is no such text.
    """
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith("rank  input")), None)
    if head is None:
        raise ValueError("no table of a checkup: no line begins with 'rank  input'")
    names = re.split("  +", lines[head])
    words = [line.split() for line in lines[head + 1 :]]
    rows = [list(map(float, row)) for row in words if len(row) == len(names) and row[0].isdigit()]
    if not rows:
        raise ValueError("the table of the checkup has no rows")
    medians = map(statistics.median, zip(*rows, strict=True))
    column = dict(zip(names, medians, strict=True))
    without = column["input ms"] + column["compute ms"]
    step = without + column["exposed ms"]
    wait = min(column["wait ms"], column["exposed ms"])
    return {"step": step, "without": without, "wait": wait, "queued": column["queued for CPU"]}


def _read_file(path: Path) -> list[tuple[Row, str]]:
    """Say to which rows a checkup's output or a log leads."""
    try:
        return place(**read_checkup(path.read_text(encoding="utf-8", errors="replace")))
    except ValueError:
        (log,) = logs.read([path])
    texts = [f"{text} ({row})" for text, row in nccl_debug.conclusions(log.statements)]
    if log.failures:
        texts.append(f"{len(log.failures)} tests printed no figures")
    if log.records:
        texts.append(f"{len(log.records)} measurements: python -m course report {path.name}")
    return [(guide()[6], "; ".join(texts) or "nothing in it is conspicuous")]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="*", type=Path, help="a checkup's output, logs, traces")


def main(options: argparse.Namespace) -> int:
    """Ask four numbers, or read files; print rows, the next measurement, the nearest cases."""
    events_of = {path: traces.read(path) for path in options.files}
    ranks = [events for events in events_of.values() if events is not None]
    jobs = [(path.name, partial(_read_file, path)) for path in events_of if events_of[path] is None]
    if ranks:
        jobs.insert(0, (f"traces, {len(ranks)} of them", lambda: place(**traces.numbers(ranks))))
    failed = 0
    for name, leads in jobs or [("four numbers", lambda: place(**_asked()))]:
        print(f"{name}:")
        try:
            _print(leads())
        except (OSError, ValueError) as error:
            print(f"  {error}", file=sys.stderr)
            failed = 1
    return failed


_QUESTIONS = {
    "step": "1. One step takes (ms): ",
    "without": "2. Without communication (no_sync, or one rank) it takes (ms): ",
    "wait": "3. Of the difference, a rank waits for the last one for (ms; Enter: not known): ",
    "calls": "4. Number of calls × the latency of one (ms; Enter: not known): ",
}


def _asked() -> dict[str, float | None]:
    answers: dict[str, float | None] = {}
    for name, question in _QUESTIONS.items():
        while name not in answers:
            text = input(question).strip().replace("ms", "").strip()
            try:
                answers[name] = float(text) if text or name in ("step", "without") else None
            except ValueError:
                print(f"  {text!r} is no number of milliseconds.")
    return answers


def _print(leads: list[tuple[Row, str]]) -> None:
    first, because = leads[0]
    print(f"  Row {first.number}. {first.question} {because}.")
    print(f"  Measure next: {first.measure}.")
    print(f"  If so: {first.remedy}.")
    if first.cases:
        print(f"  Nearest case: python -m course case {first.cases[0]}")
    for row, text in leads[1:]:
        print(f"  Then row {row.number}. {row.question} {text}".rstrip())
