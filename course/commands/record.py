"""`python -m course record NAME ...`: run experiments on a calm machine, keep their records."""

import argparse
import sys
from pathlib import Path

from course import catalogue
from course.catalogue import ROOT, Lesson
from labkit.measure import records
from labkit.measure.records import Tier

CALM = 0.1  # CPUs that other programs may use while a run is recorded


OWN = "own"  # the lesson's own world, in which nobody was made guilty


def record(lesson: Lesson, only: str = "") -> Path:
    """Run a lesson's experiment in all its worlds, or in `only` one; keep the records there.

    What was not measured anew stays. Raises `RuntimeError`, and writes nothing, where others
    disturbed it or some could not run here.
    """
    print(f"{lesson.experiment}:")
    measured: list[records.Record] = []
    if only in ("", OWN):
        measured += lesson.module.run(quick=False, progress=lambda text: print(f"  {text}"))
    if only != OWN:
        measured += lesson.guilty(progress=lambda text: print(f"  {text}"), only=only)
    if not measured:
        raise RuntimeError(f"{lesson.experiment} is not recorded: nothing was measured here.")
    if doubts := [*filter(None, map(why_not_to_keep, measured))]:
        raise RuntimeError("\n".join([f"{lesson.experiment} is not recorded:", *doubts]))
    anew = [(new.case, new.params) for new in measured]
    before = records.load(lesson.recording) if only else []
    kept = [old for old in before if (old.case, old.params) not in anew]
    return records.save(kept + measured, lesson.recording)


def why_not_to_keep(record: records.Record) -> str:
    """Say why a record cannot stand in a lesson's `recording.json`; empty where it can."""
    if record.tier is Tier.RECORDED:
        return f"  {record.case}: could not run here"
    if record.samples and record.others is None:
        return f"  {record.case}: nobody watched what other programs did meanwhile"
    if record.samples and record.others > CALM:
        return f"  {record.case}: other programs used {record.others:.2f} CPUs, {CALM} may be used"
    return ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    names = catalogue.experiments()
    parser.add_argument("names", nargs="+", metavar="NAME", choices=names, help="as for run")
    world = f"measure one world anew: a letter of the lesson's `guilty`, or {OWN!r}"
    parser.add_argument("--only", default="", metavar="WORLD", help=world)


def main(options: argparse.Namespace) -> int:
    """Record what was named; return 1 where one could not be."""
    try:
        for lesson in map(catalogue.experiment, options.names):
            print(f"written: {record(lesson, options.only).relative_to(ROOT)}")
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
