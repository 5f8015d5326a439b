"""`python -m course run NAME ...`: run experiments without a notebook; keep records and pictures.

Under torchrun (or srun) every rank gives this same command; rank 0 alone prints and writes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from course import catalogue
from course.catalogue import Lesson
from labkit.ranks import torchrun

if TYPE_CHECKING:
    from labkit.measure.records import Record
    from labkit.measure.tables import Table

RUNS = Path("work") / "runs"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    known = f"experiments to run: {', '.join(catalogue.experiments())}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=known)
    parser.add_argument("--all", action="store_true", help="run all of them; takes minutes")
    parser.add_argument("--quick", action="store_true", help="fewer cases and repetitions")
    purpose = "write the records here (one experiment only)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=purpose)


def main(options: argparse.Namespace) -> int:
    """Run what was named; return 0 when all of it ran, 2 where nothing can be run."""
    names = list(catalogue.experiments()) if options.all else options.names
    if not names:
        print("course run: name one or more of these, or give --all, which takes minutes:")
        for name, lesson in catalogue.experiments().items():
            print(f"  {name:<24}{lesson.number} {lesson.title}")
        return 2
    if options.out and len(names) > 1:
        print("course run: --out FILE takes one experiment's records; name one.", file=sys.stderr)
        return 2
    try:
        chosen = {name: catalogue.experiment(name) for name in names}
    except ValueError as error:
        print(f"course run: {error}", file=sys.stderr)
        return 2
    from labkit.show import alt_text  # noqa: F401 (what is missing is told before anything runs)

    if options.out and is_first_rank():
        _try_to_write(options.out)
    folder = RUNS / datetime.now().strftime("%Y%m%d-%H%M%S")
    for name, lesson in chosen.items():
        records = _run(lesson, quick=options.quick)
        if is_first_rank():
            _report(lesson, records, options.out or folder / f"{name}.json")
    return 0


def _try_to_write(path: Path) -> None:
    """Raise an `OSError`, before anything is measured, where no file can be; leave none behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    path.open("a").close()
    if is_new:
        path.unlink()


def _run(lesson: Lesson, *, quick: bool) -> list[Record]:
    start = time.perf_counter()
    say(f"{lesson.experiment}: {lesson.title}")
    return lesson.module.run(
        quick=quick, progress=lambda text: say(f"  {time.perf_counter() - start:6.1f} s  {text}")
    )


def _report(lesson: Lesson, measured: list[Record], path: Path) -> None:
    from labkit.measure import records
    from labkit.show import alt_text

    print(f"\n{lesson.title}")
    if not measured:
        print("Nothing was measured here: no file is written.\n")
        return
    print(f"{records.tiers_of(measured)} · {measured[0].provenance}")
    print(tabulate(measured))
    watched = [record.others for record in measured if record.others is not None]
    if watched:
        print(f"Meanwhile other programs used up to {max(watched):.2f} CPUs.")
    records.save(measured, path)
    picture = alt_text.save(lesson.draw(measured), path.with_suffix(".png"))
    print(f"\nrecords: {path}\npicture: {picture}\n")


def tabulate(records: Sequence[Record]) -> Table:
    """Lay the records of any experiment out: the slowest rank's times, and `algbw`."""
    from labkit.measure.tables import Table

    rows = []
    for record in records:
        summary, rate = record.summary, record.algbw
        times = [summary.median, summary.p10, summary.p90, record.predicted]
        settings = [f"{k}={v}" for k, v in record.params.items() if isinstance(v, str | int)]
        row = [record.case, ", ".join(settings), record.world_size, record.nbytes]
        row += [None if seconds is None else float(f"{1e3 * seconds:.4g}") for seconds in times]
        rows.append([*row, None if rate is None else float(f"{rate / 1e9:.3g}")])
    columns = ["case", "settings", "ranks", "bytes", "ms", "p10", "p90", "predicted ms", "GB/s"]
    filled = [i for i in range(len(columns)) if any(row[i] not in (None, "") for row in rows)]
    return Table([columns[i] for i in filled], [[row[i] for i in filled] for row in rows])


def is_first_rank() -> bool:
    """Tell whether this process is the one that prints and writes."""
    return not torchrun.is_here() or os.environ["RANK"] == "0"


def say(text: str) -> None:
    """Tell how it goes on, beside what is printed as a result."""
    if is_first_rank():
        print(text, file=sys.stderr, flush=True)
