"""`python -m course report`: one self-contained page of what this machine measured.

Every figure is recomputed from the samples in the record files when the page is made, and the
samples are embedded, so that whoever gets the page can compute them again.

Other tools' logs are read as well (`labkit.logs.logs`): what nccl-tests printed, and more.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from course import catalogue, untrusted
from course.run import found_runs
from labkit.logs import logs, report
from labkit.logs.page import Page
from labkit.measure import records as recording
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.measure.untrusted import one_line
from labkit.ranks.machine import Machine


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files", nargs="*", type=Path,
        help="record files (the latest of each under work/runs/), or logs of nccl-tests and "
        "of NCCL_DEBUG=INFO",
    )  # fmt: skip
    parser.add_argument(
        "--wire", type=float, metavar="GB/S",
        help="what one network card carries, to hold logs of several hosts against (if not given: "
        "the most that a run with one GPU per host reached)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="page to write")


def main(options: argparse.Namespace) -> int:
    """Write the page; return 0 unless there is nothing to tell."""
    paths = options.files or found_runs()
    if not paths:
        print("nothing was measured yet: python -m course run --quick", file=sys.stderr)
        return 1
    loaded, others = {}, []
    for path in paths:
        try:
            loaded[path] = _load(path)
        except ValueError as error:
            try:
                logs.recognize(path)
                others.append(path)
            except (OSError, logs.UnknownLog) as unknown:
                no_records = path.suffix == ".json"
                print(f"left out: {error if no_records else unknown}", file=sys.stderr)
    found = logs.read(others)
    if not any(loaded.values()) and not any(log.records or log.statements for log in found):
        for problem in [problem for log in found for problem in log.problems][:20]:
            print(problem, file=sys.stderr)
        print("report: no record could be read", file=sys.stderr)
        return 2
    card = None if options.wire is None else options.wire * 1e9
    options.out.write_text(str(page(loaded, found, card=card)), encoding="utf-8")
    for log in report.together(found):
        files = log.paths[0].name if len(log.paths) == 1 else f"{len(log.paths)} files"
        problems = f"{len(log.problems)} problems" if log.problems else "no problems"
        print(f"{files}: {log.tool}, {len(log.records)} records, {problems}")
    count = sum(map(len, [*loaded.values(), *(log.records for log in found)]))
    print(f"{count} records of {len(loaded) + len(found)} runs: {options.out}")
    return 0


def page(
    loaded: dict[Path, list[Record]], others: Sequence[logs.Log] = (), *, card: float | None = None
) -> Page:
    """Build the page: a section for each run, those of one experiment together; then logs.

    `card`: bytes per second of one network card, for other tools' logs; inferred if not given.
    """
    every = [record for records in [*loaded.values(), *(log.records for log in others)]
             for record in records]  # fmt: skip
    elsewhere = any(record.tier is Tier.RECORDED for record in every)
    result = Page("What was measured" if elsewhere else "What this machine measured")
    runs: dict[str, dict[Path, list[Record]]] = {}
    for path, records in loaded.items():
        if records:
            runs.setdefault(records[0].experiment, {})[path] = records
    for files in runs.values():
        for path, records in files.items():
            _section(result, _name(path, files), records)
            result.data(f"records-{_name(path, loaded)}", path.read_text(encoding="utf-8"))
    if others:
        card = card or report.one_card(record for log in others for record in log.records)
        for log in report.together(others):
            report.add(result, log, card=card)
    return result


def _load(path: Path) -> list[Record]:
    """Read records; those of another machine are RECORDED."""
    here = Machine.here()
    return [
        record if record.provenance.machine == here else recording.as_recorded(record)
        for record in untrusted.records(path)
    ]


def _name(path: Path, among: Iterable[Path]) -> str:
    """Name a file without its folders, unless another has the same name."""
    alone = sum(other.stem == path.stem for other in among) == 1
    return path.stem if alone else f"{path.parent.name}/{path.stem}"


def _section(result: Page, file: str, records: list[Record]) -> None:
    name, origin = records[0].experiment, records[0].provenance
    result.heading(_title(name))
    rows = [
        ("experiment", name),
        ("file", file),
        ("tier", recording.tiers_of(records)),
        ("date", origin.date),
        ("backend", origin.backend),
        ("command", origin.command),
        *_machines(origin),
    ]
    result.table(Table(["", ""], rows))
    if experiment := catalogue.experiments().get(name):
        try:
            table = experiment.module.table(records)
            table.html()
            result.picture(experiment.draw(records))
            result.table(table)
            return
        except Exception as error:  # a case or a value that this lesson does not know
            reason = one_line(f"{type(error).__name__}: {error}")
            result.text(f"The lesson's picture and table cannot be made of {file} ({reason}).")
            print(f"{file}: without the lesson's picture and table ({reason})", file=sys.stderr)
    rows = [_row(record) for record in records if record.samples and record.samples[0]]
    columns = ["case", "median [µs]", "p10", "p90", "samples", "busbw [GB/s]"]
    result.table(Table(columns, rows))


def _title(name: str) -> str:
    experiment = catalogue.experiments().get(name)
    return experiment.module.TITLE if experiment else name


def _machines(origin: Provenance) -> Iterator[tuple[str, str]]:
    """Describe the machine, or every node with its ranks."""
    nodes = {f"node {i}, ranks {_ranks(n.ranks)}": n.machine for i, n in enumerate(origin.nodes)}
    for name, machine in (nodes or {"machine": origin.machine}).items():
        yield name, f"{machine.cpu_model}, {machine.cores:g} CPUs, {machine.system}"
        yield "GPUs", ", ".join(machine.gpus) or "none"
        yield "versions", f"torch {machine.torch}, Python {machine.python}"


def _ranks(ranks: Sequence[int]) -> str:
    """Write ranks briefly: torchrun numbers a node's ranks one after the other."""
    first, last = ranks[0], ranks[-1]
    return f"{first} to {last}" if last - first == len(ranks) - 1 > 0 else str(list(ranks))[1:-1]


def _row(record: Record) -> tuple:
    summary = record.summary
    busbw = None if record.busbw is None else record.busbw / 1e9
    case = ", ".join([record.case, *(f"{key}={value}" for key, value in record.params.items())])
    times = (summary.median * 1e6, summary.p10 * 1e6, summary.p90 * 1e6)
    return (case[:100], *times, summary.count, busbw)
