"""`python -m labkit report`: one self-contained page of what this machine measured.

Every figure is recomputed from the samples in the record files when the page is made, and the
samples are embedded, so that whoever gets the page can compute them again.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from labkit import experiments
from labkit.commands.run import found_runs
from labkit.measure import records as recording
from labkit.measure.records import Record
from labkit.show.page import Page


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files", nargs="*", type=Path, help="record files (the latest of each under work/runs/)"
    )
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="page to write")


def main(options: argparse.Namespace) -> int:
    """Write the page; return 0 unless there is nothing to tell."""
    paths = options.files or found_runs()
    if not paths:
        print("nothing was measured yet: python -m labkit run --quick", file=sys.stderr)
        return 1
    try:
        loaded = {path: recording.load(path) for path in paths}
    except (OSError, ValueError) as error:
        print(f"labkit report: {error}", file=sys.stderr)
        return 2
    options.out.write_text(str(page(loaded)), encoding="utf-8")
    print(f"{sum(map(len, loaded.values()))} records of {len(loaded)} runs: {options.out}")
    return 0


def page(loaded: dict[Path, list[Record]]) -> Page:
    """Build the page, one section per file of records."""
    result = Page("What this machine measured")
    for path, records in loaded.items():
        if records:
            _section(result, path, records)
    return result


def _section(result: Page, path: Path, records: list[Record]) -> None:
    name, origin = records[0].experiment, records[0].provenance
    machine = origin.machine
    experiment = experiments.load(name) if name in experiments.MODULES else None
    result.heading(experiment.TITLE if experiment else name)
    result.table(
        ["", ""],
        [
            ("experiment", name),
            ("tier", " + ".join(dict.fromkeys(str(record.tier) for record in records))),
            ("date", origin.date),
            ("machine", f"{machine.cpu_model}, {machine.cores:g} CPUs, {machine.system}"),
            ("GPUs", ", ".join(machine.gpus) or "none"),
            ("versions", f"torch {machine.torch}, Python {machine.python}, {origin.backend}"),
            ("command", origin.command),
        ],
    )
    if experiment:
        drawing = importlib.import_module(f"labkit.show.{experiments.MODULES[name]}")
        result.picture(drawing.draw(records))
        result.table(*experiment.table(records))
    result.table(
        ["case", "median [µs]", "p10", "p90", "samples", "busbw [GB/s]"],
        [_row(record) for record in records if record.samples and record.samples[0]],
    )
    result.data(f"records-{path.stem}", path.read_text(encoding="utf-8"))


def _row(record: Record) -> tuple:
    summary = record.summary
    busbw = None if record.busbw is None else record.busbw / 1e9
    case = ", ".join([record.case, *(f"{key}={value}" for key, value in record.params.items())])
    times = (summary.median * 1e6, summary.p10 * 1e6, summary.p90 * 1e6)
    return (case[:100], *times, summary.count, busbw)
