"""`python -m course triage`: four numbers, or a file, and the row of the field guide to begin with.

Without files it asks. With files it reads what `examples/checkup.py` printed, nccl-tests' output
and NCCL's own log, and says of each what it can tell. The rows are FIELD_GUIDE.md's.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit.logs import logs, nccl_debug


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the field guide."""

    number: int
    name: str
    next_step: str
    """What to measure next."""
    cases: tuple[str, ...]
    """Names of the nearest cases of the ward."""


ROWS = {
    row.number: row
    for row in (
        Row(1, "computing", "profile the computing: communication is not what takes the time", ()),
        Row(
            2,
            "waiting for a late rank",
            "on every rank, when each call begins: the last to begin, the one with the smallest "
            "timer, is late. Then its input, its work, its clock",
            ("228-bytes", "stretches"),
        ),
        Row(
            3,
            "waiting for a CPU",
            "torch.get_num_threads() × ranks against the CPUs that the job may use",
            ("idle-gpus",),
        ),
        Row(
            4,
            "too many calls",
            "count the calls of one step, and which code makes them",
            ("first-sum",),
        ),
        Row(
            5,
            "more bytes than needed",
            "bytes that a rank sends in a step against 2(n-1)/n of the gradients",
            ("two-nodes", "averages"),
        ),
        Row(
            6,
            "a link that is not what you think",
            "one large call of the same collective in nccl-tests, and NCCL_DEBUG=INFO of both runs",
            ("alltoall", "above-the-wire"),
        ),
        Row(
            7,
            "communication that could be hidden, or stands in a queue",
            "a timeline: transfers whose ends are both ready and that do not run",
            (),
        ),
        Row(
            8,
            "a hang",
            "py-spy dump on every rank, the flight recorder and torchfrtrace",
            (),
        ),
    )
}


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
    lost = step - without
    share = f"communication costs {max(lost, 0):.3g} of {step:.3g} ms"
    if queued > 0.3 * step:
        return [(ROWS[3], f"a rank had no CPU for {queued:.3g} of {step:.3g} ms")]
    if lost < 0.1 * step:
        return [(ROWS[1], share)]
    if wait is None:
        return [(ROWS[2], f"{share}; how much of it is waiting is not known: measure that first")]
    if wait >= 0.5 * lost:
        return [(ROWS[2], f"{wait:.3g} of these {lost:.3g} ms are waiting for the last rank")]
    rest = lost - wait
    if calls is None:
        told = f"{rest:.3g} ms move data; calls × latency is not known: measure that first"
        return [(ROWS[4], told), (ROWS[5], ""), (ROWS[6], "")]
    if calls >= 0.5 * rest:
        return [(ROWS[4], f"calls × latency are {calls:.3g} of {rest:.3g} ms that are not waiting")]
    told = f"{rest - calls:.3g} ms are neither waiting nor latency: bytes over a rate"
    return [(ROWS[5], told), (ROWS[6], "if the bytes are what they must be"), (ROWS[7], "")]


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
    names = [name.strip() for name in lines[head].split("  ") if name.strip()]
    names = names[: names.index("queued for CPU") + 1]
    rows = [line.split() for line in lines[head + 1 :]]
    rows = [[float(x) for x in row] for row in rows if len(row) == len(names) and row[0].isdigit()]
    if not rows:
        raise ValueError("the table of the checkup has no rows")
    column = {
        name: statistics.median(column)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    without = column["input ms"] + column["compute ms"]
    step = without + column["exposed ms"]
    wait = min(column["wait ms"], column["exposed ms"])
    return {"step": step, "without": without, "wait": wait, "queued": column["queued for CPU"]}


def read_file(path: Path) -> list[tuple[Row, str]]:
    """Say to which rows a file leads.

    Raises:
        OSError: It cannot be read.
        ValueError: It is nothing that is known here.
    """
    try:
        return place(**read_checkup(path.read_text(encoding="utf-8", errors="replace")))
    except ValueError:
        (log,) = logs.read([path])
    told = [f"{text} ({row})" for text, row in nccl_debug.conclusions(log.statements)]
    if log.failures:
        told.append(f"{len(log.failures)} tests printed no figures")
    if log.records:
        told.append(f"{len(log.records)} measurements: python -m course report {path.name}")
    return [(ROWS[6], "; ".join(told) or "nothing in it is conspicuous")]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="*", type=Path, help="a checkup's output, logs of NCCL")


def main(options: argparse.Namespace) -> int:
    """Ask four numbers, or read files; print rows, the next measurement, the nearest cases."""
    if not options.files:
        _print(place(**_asked()))
        return 0
    failed = 0
    for path in options.files:
        print(f"{path.name}:")
        try:
            _print(read_file(path))
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


def _print(found: list[tuple[Row, str]]) -> None:
    first, because = found[0]
    print(f"  Row {first.number}, {first.name}: {because}.")
    print(f"  Measure next: {first.next_step}.")
    if first.cases:
        print(f"  Nearest case: python -m course case {first.cases[0]}")
    for row, text in found[1:]:
        print(f"  Then row {row.number}, {row.name}{': ' + text if text else ''}.")
