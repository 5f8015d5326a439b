"""`python -m course gpus`: your machine on one page: each thread's question, asked of your GPUs.

Under torchrun every rank gives this same command; rank 0 alone prints and writes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from course.commands.run import is_first_rank
from labkit.ranks import machine, torchrun

if TYPE_CHECKING:
    from course.place import Place
    from course.your_gpus import Row, Sizes
    from labkit.measure.records import Record
    from labkit.measure.tables import Table

RECORDING = Path(__file__).parents[1] / "gpus.json"
RANKS = 4  # on CPUs, where nobody says how many
SECONDS = 5  # that a row takes once its ranks are there: 3 or 4, on four ranks of two CPUs


class Answer(NamedTuple):
    """What a row came to: its records, or the reason why there are none."""

    row: Row
    records: Sequence[Record]
    reason: str = ""
    failed: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--cpu", action="store_true", help="make the same page by gloo, on CPUs")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for --cpu")
    how_many = f"ranks; if not given, one for each GPU, or {RANKS} on CPUs"
    parser.add_argument("--ranks", type=int, metavar="N", help=how_many)
    page = "page to write; the records lie beside it, as .json"
    parser.add_argument("--out", type=Path, default=Path("your-gpus.html"), help=page)


def main(options: argparse.Namespace) -> int:
    """Measure row by row, and keep what there is; return 0 if every row ran that could."""
    from course import your_gpus

    say(found())
    place = choose_place(options)
    if place is None:
        from labkit.measure import records

        library = records.load(RECORDING, recorded=True)
        answers = [recorded(row, library) for row in your_gpus.ROWS]
        say("Shown: what ranks that shared one H200 took, RECORDED. With --cpu gloo measures here.")
        return finish(answers, options.out)
    answers = []
    try:
        place, sizes = choose_sizes(place, quick=options.quick)
        for answer in measured(place, sizes, your_gpus.ROWS):
            answers.append(answer)
    except ValueError as error:
        say(str(error))
        return finish(answers, options.out) or 2
    except KeyboardInterrupt:
        say("interrupted; what was measured so far is kept")
        return finish(answers, options.out) or 130
    except RuntimeError as error:
        say(f"stopped: {first_line(error)}")
        return finish(answers, options.out) or 1
    return finish(answers, options.out)


def say(text: str) -> None:
    """Tell how it goes on, beside the table."""
    if is_first_rank():
        print(text, file=sys.stderr, flush=True)


def first_line(error: BaseException) -> str:
    """Return what an error says first: NCCL and CUDA go on for pages."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def found() -> str:
    """Say in a line which GPUs are here, and whether they are alike."""
    kinds = Counter(machine.Machine.here().gpus)
    if not kinds:
        return "found: no GPU"
    alike = "" if len(kinds) == 1 else "; unlike ones wait for the slowest"
    return "found: " + ", ".join(f"{count} x {name}" for name, count in kinds.items()) + alike


def choose_place(options: argparse.Namespace) -> Place | None:
    """Return where the ranks run; None where there are no GPUs and nobody asked for CPUs.

    A `ValueError` says what a number of ranks lacks.
    """
    import torch.distributed as dist

    from course.place import Place

    gpus = machine.gpu_count()
    if options.cpu:
        if torchrun.is_here() and gpus:
            say("torchrun's ranks take GPUs where they see any: for gloo, CUDA_VISIBLE_DEVICES=")
            return None
        return Place(hosts=1, ranks_per_host=options.ranks or RANKS)
    if not gpus:
        return None
    if not dist.is_nccl_available():
        say("this build of torch has no NCCL, which carries what lies on GPUs")
        return None
    place = Place(hosts=1, ranks_per_host=options.ranks or gpus, backend="nccl")
    if place.world_size == 1:
        say(
            "one GPU; from NCCL 2.30 on ranks can share it: NCCL_MULTI_RANK_GPU_ENABLE=1, --ranks 2"
        )
        return None
    return place


def choose_sizes(place: Place, *, quick: bool) -> tuple[Place, Sizes]:
    """Ask every rank where it computes and what it may fill, before anything is measured.

    Ranks of a job that see too few GPUs compute on CPUs: then gloo measures. A `ValueError` says
    what a number of ranks lacks, or its GPUs.
    """
    from course.your_gpus import MIB, ROWS, SHARE, Sizes, room

    say("asked: whether all ranks start, and how much memory is free")
    start = time.perf_counter()
    told = place.launch(room)
    seconds = len(ROWS) * (time.perf_counter() - start + SECONDS)
    after = f"{SECONDS} s after each"
    say(f"estimated: {seconds:.0f} s, for {len(ROWS)} starts like this one and {after}")
    rooms = [one for one in told if one]
    if len(rooms) < len(told):
        if place.backend == "nccl":
            say("these ranks compute on CPUs, so gloo measures here, as with --cpu")
        return replace(place, backend="gloo"), Sizes.on_cpus(quick=quick)
    free, filled = min(rooms)
    others = f"; {filled / MIB:,.0f} MiB are filled already" if filled > free else ""
    say(f"each rank may fill {free / MIB:,.1f} MiB, {SHARE:.0%} of what is free on its GPU{others}")
    return place, Sizes.on_gpus(free, place.world_size)


def measured(place: Place, sizes: Sizes, rows: Sequence[Row]) -> Iterator[Answer]:
    """Measure one row after the other; a row that fails says why, and the next one begins."""
    from course import runs

    start = time.perf_counter()
    for number, row in enumerate(rows, 1):
        say(f"{time.perf_counter() - start:6.1f} s  {number} of {len(rows)}: {row.question}")
        try:
            yield Answer(row, runs.watched(lambda row=row: row.measure(place, sizes)))
        except (RuntimeError, ArithmeticError) as error:
            if torchrun.is_here():  # the other ranks have lost this one: the job is over
                raise
            yield Answer(row, [], f"It failed: {first_line(error)}", failed=True)


def recorded(row: Row, library: Sequence[Record]) -> Answer:
    """Return what is recorded of a row."""
    records = row.recorded(library)
    return Answer(row, records, "" if records else "Nobody has recorded it: it takes two GPUs.")


def finish(answers: Sequence[Answer], page: Path) -> int:
    """Print the table, write the page and the records; return 1 if a row failed."""
    if is_first_rank() and answers:
        from labkit.measure import records

        print(table(answers))
        kept = [record for answer in answers for record in answer.records]
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(written(answers), encoding="utf-8")
        print(f"\npage: {page}")
        if kept:
            print(f"records: {records.save(kept, page.with_suffix('.json'))}")
    return int(any(answer.failed for answer in answers))


def table(answers: Sequence[Answer]) -> Table:
    """Lay all rows out: what was asked, what was measured, and what somebody published."""
    from labkit.measure.tables import Table

    rows = []
    for number, (row, records, reason, _) in enumerate(answers, 1):
        lines = row.lines(records) if records else [(reason, "", "")]
        rows.append([number, row.question, "", ""])
        rows += [["", f"  {what}", here, elsewhere] for what, here, elsewhere in lines]
    tiers = {record.tier for answer in answers for record in answer.records}
    return Table(["", "question", " + ".join(sorted(tiers)) or "here", "PUBLISHED"], rows)


def written(answers: Sequence[Answer]) -> str:
    """Return the page: a section for each row, and what nvidia-smi says of the wiring."""
    from course.logs.page import Page
    from labkit.measure.tables import Table

    page = Page("Your machine, asked what the threads asked")
    origins = {str(record.provenance) for answer in answers for record in answer.records}
    page.table(Table(["measured on"], [[origin] for origin in sorted(origins)]))
    for row, records, reason, _ in answers:
        page.heading(row.question)
        if not records:
            page.table(Table(["not measured"], [[reason]]))
            continue
        page.table(Table(["", str(records[0].tier), "PUBLISHED"], list(row.lines(records))))
        page.picture(row.picture(records))
    if shutil.which("nvidia-smi"):
        page.heading("How the GPUs are wired, by nvidia-smi topo -m")
        command = ["nvidia-smi", "topo", "-m"]
        page.plain(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return str(page)
