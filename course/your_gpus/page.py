"""The page of `python -m course gpus`: each row measured in turn, its table, its picture.

    make(cpu=True, quick=True, ranks=4, out=Path("your-gpus.html"))

Under torchrun every rank does the same; rank 0 alone prints and writes.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from course import runs
from course.comm.collectives import free_bytes
from course.commands.run import is_first_rank, say
from course.gpu_row import MIB, Row, Sizes
from course.lessons.coalesced_broadcast.on_gpus import STATES
from course.lessons.equivalent_collectives.on_gpus import THREE_WAYS
from course.lessons.gloo_scaling.on_gpus import NEVER_TALK
from course.lessons.gradient_all_reduce.on_gpus import GRADIENTS, SUMS
from course.lessons.p2p_topology.on_gpus import PAIRS
from course.lessons.pipeline_p2p.on_gpus import MESSAGES
from course.logs.page import Page
from course.place import Place
from labkit import device
from labkit.measure import records
from labkit.measure.records import Record
from labkit.measure.tables import Table
from labkit.ranks import machine, torchrun

ROWS: tuple[Row, ...] = (PAIRS, SUMS, GRADIENTS, STATES, THREE_WAYS, MESSAGES, NEVER_TALK)
RECORDING = Path(__file__).with_name("recording.json")
SECONDS = 5  # that a row takes once its ranks are there: 3 or 4, on four ranks of two CPUs
SHARE = 0.8  # of a GPU's free memory: nothing here takes more


class Answer(NamedTuple):
    """What a row came to: its records, or the reason why there are none."""

    row: Row
    records: Sequence[Record]
    reason: str = ""
    failed: bool = False


def make(*, cpu: bool, quick: bool, ranks: int | None, out: Path) -> int:
    """Measure row by row, and write what there is; return 0 if every row ran that could.

    Without `ranks` each GPU has one.
    """
    answers: list[Answer] = []
    status = 0
    try:
        for answer in answered(cpu=cpu, quick=quick, ranks=ranks):
            answers.append(answer)
    except ValueError as error:
        status = 2
        say(str(error))
    except KeyboardInterrupt:
        status = 130
        say("interrupted; what was measured so far is kept")
    except RuntimeError as error:
        status = 1
        say(f"stopped: {first_line(error)}")
    if is_first_rank() and answers:
        write(answers, out)
    return status or int(any(answer.failed for answer in answers))


def first_line(error: BaseException) -> str:
    """Return what an error says first: NCCL and CUDA go on for pages."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def answered(*, cpu: bool, quick: bool, ranks: int | None) -> Iterator[Answer]:
    """Measure each row here, or show what is recorded of it."""
    kinds = Counter(machine.Machine.here().gpus)
    alike = "; unlike ones wait for the slowest" if len(kinds) > 1 else ""
    there = ", ".join(f"{count} x {name}" for name, count in kinds.items())
    say(f"found: {there or 'no GPU'}{alike}")
    gpus = machine.gpu_count()
    place = Place(hosts=1, ranks_per_host=ranks or gpus, backend="gloo" if cpu else "nccl")
    if lack := what_lacks(place, gpus):
        say(f"{lack} Shown: what ranks that shared one H200 took, RECORDED.")
        library = records.load(RECORDING, recorded=True)
        for row in ROWS:
            kept = row.recorded(library)
            yield Answer(row, kept, "" if kept else "Nobody has recorded it: it takes two GPUs.")
        return
    yield from measured(*choose_sizes(place, quick=quick))


def what_lacks(place: Place, gpus: int) -> str:
    """Say why nothing can be measured at a place; empty where something can."""
    if place.backend == "gloo" and torchrun.is_here() and gpus:
        return "torchrun's ranks take GPUs where they see any: for gloo, CUDA_VISIBLE_DEVICES= ."
    if place.backend == "nccl" and not gpus:
        return "With --cpu gloo measures here."
    if place.backend == "nccl" and not dist.is_nccl_available():
        return "This build of torch has no NCCL, which carries what lies on GPUs."
    if place.world_size == 1:
        shared = "From NCCL 2.30 on ranks can share a GPU: NCCL_MULTI_RANK_GPU_ENABLE=1, --ranks 2."
        return f"One rank has nobody to talk to. {shared}"
    return ""


def room() -> tuple[int, int] | None:
    """Return the bytes that this rank may fill of its GPU, and those filled; None on a CPU."""
    if device().type == "cpu":
        return None
    free, whole = torch.cuda.mem_get_info()
    return int(SHARE * free_bytes()), whole - free


def networks(width: float) -> int:
    """Return how many bytes of a network the row that holds most has on a rank at a time."""
    return max(row.holds(width) for row in ROWS)


def choose_sizes(place: Place, *, quick: bool) -> tuple[Place, Sizes]:
    """Ask every rank where it computes and what it may fill, before anything is measured.

    Ranks of a job that see too few GPUs compute on CPUs: then gloo measures. A `ValueError` says
    what a number of ranks lacks, or its GPUs.
    """
    say("asked: whether all ranks start, and how much memory is free")
    start, count = time.perf_counter(), len(ROWS)
    rooms = [of_rank for of_rank in place.launch(room) if of_rank]
    seconds = count * (time.perf_counter() - start + SECONDS)
    say(f"estimated: {seconds:.0f} s, for {count} starts like this one and {SECONDS} s after each")
    if len(rooms) < place.world_size:
        if place.backend == "nccl":
            say("these ranks compute on CPUs, so gloo measures here, as with --cpu")
        return replace(place, backend="gloo"), Sizes.on_cpus(quick=quick)
    free, filled = min(rooms)
    others = f"; {filled / MIB:,.0f} MiB are filled already" if filled > free else ""
    say(f"each rank may fill {free / MIB:,.1f} MiB, {SHARE:.0%} of what is free on its GPU{others}")
    return place, Sizes.on_gpus(free, place.world_size, networks)


def measured(place: Place, sizes: Sizes) -> Iterator[Answer]:
    """Measure one row after the other; a row that fails says why, and the next one begins."""
    start, rows = time.perf_counter(), ROWS
    for number, row in enumerate(rows, 1):
        say(f"{time.perf_counter() - start:6.1f} s  {number} of {len(rows)}: {row.question}")
        if place.world_size < row.ranks:
            yield Answer(row, [], f"It takes {row.ranks} ranks.")
            continue
        try:
            yield Answer(row, runs.watched(partial(row.measure, place, sizes)))
        except (RuntimeError, ArithmeticError) as error:
            if torchrun.is_here():  # the other ranks have lost this one: the job is over
                raise
            yield Answer(row, [], f"It failed: {first_line(error)}", failed=True)


def write(answers: Sequence[Answer], path: Path) -> None:
    """Print the table; write the page, a section for each row, and the records."""
    page, rows = Page("Your machine, asked what the threads asked"), []
    kept = [record for answer in answers for record in answer.records]
    origins = sorted({str(record.provenance) for record in kept})
    page.table(Table(["measured on"], [[origin] for origin in origins]))
    for number, (row, measured, reason, _) in enumerate(answers, 1):
        lines = list(row.lines(measured)) if measured else [(reason, "", "")]
        rows.append([number, row.question, "", ""])
        rows += [["", f"  {what}", here, elsewhere] for what, here, elsewhere in lines]
        page.heading(row.question)
        page.table(Table(["", records.tiers_of(measured) or "not measured", "PUBLISHED"], lines))
        if measured:
            page.picture(row.picture(measured))
    print(Table(["", "question", records.tiers_of(kept) or "here", "PUBLISHED"], rows))
    if shutil.which("nvidia-smi"):
        page.heading("How the GPUs are wired, by nvidia-smi topo -m")
        page.plain(os.popen("nvidia-smi topo -m").read())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(page), encoding="utf-8")
    print(f"\npage: {path}")
    if kept:
        print(f"records: {records.save(kept, path.with_suffix('.json'))}")
