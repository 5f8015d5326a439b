"""What a lesson says of the learner's own run: held, not on this run, or not judged.

    claim(late > 1.5 * calm, "the late rank costs half as much again", measured=late / calm,
          records=[late_run, calm_run])

A claim never ends a lesson. On a machine that others use, too, a true claim can fail: what others
used of the CPUs is known from the records, or from the cells that ran since the last claims, and
where it is more than `DISTURBED`, what does not hold is not judged.

Where COURSE_CLAIMS names a file, each claim adds a JSON line to it: that is how tests count them.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from course import other_programs
from course.other_programs import DISTURBED
from labkit.measure.records import Record

HELD, NOT_HELD, NOT_JUDGED = "held", "not on this run", "not judged"
SHORTEST = 0.3
"""Seconds over which what others used can be told."""


def claim(holds: bool, expected: str, *, measured: object, records: Iterable[Record] = ()) -> None:
    """Say in a line whether the learner's run shows what the lesson claims.

    Args:
        holds: Whether it does.
        expected: The claim, in words.
        measured: What was measured.
        records: From which it was computed; they know what other programs used meanwhile.

    Example:
        >>> claim(2.0 > 1.5, "twice the pairs take over 1.5 times as long", measured=2.0)
        ✔ held: twice the pairs take over 1.5 times as long (measured: 2)
    """
    watched = [record.others for record in records if record.others is not None]
    others = max(watched, default=None) if watched else _watch.others()
    outcome = verdict(bool(holds), others=others)
    sign = {HELD: "✔", NOT_HELD: "✘", NOT_JUDGED: "–"}[outcome]
    figure = f"{measured:.4g}" if isinstance(measured, float) else str(measured)
    used = "" if holds or others is None else f"; other programs used {others:.1f} CPUs"
    print(f"{sign} {outcome}: {expected} (measured: {figure}{used})")
    if named := os.environ.get("COURSE_CLAIMS"):
        line = {"verdict": outcome, "expected": expected, "measured": figure, "others": others}
        with Path(named).open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def verdict(holds: bool, *, others: float | None) -> str:
    """Return one of the three: a claim that fails is judged only where the machine was calm."""
    if holds:
        return HELD
    return NOT_JUDGED if others is not None and others > DISTURBED else NOT_HELD


class _Watch:
    """What others used of the CPUs in each of this notebook's cells since the last claims."""

    def __init__(self) -> None:
        self.cells: list[tuple[float, float]] = []  # seconds, CPUs
        self.claimed = False
        self.stack = contextlib.ExitStack()
        if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
            shell.events.register("pre_run_cell", self.begin_cell)
            shell.events.register("post_run_cell", self.end)
        self.begin()

    def begin_cell(self, _: object) -> None:
        if self.claimed:
            self.cells.clear()
        self.claimed = False
        self.begin()

    def begin(self) -> None:
        start = time.perf_counter()

        def note() -> None:
            if used.cpus is not None:
                self.cells.append((time.perf_counter() - start, used.cpus))

        self.stack.callback(note)
        used = self.stack.enter_context(other_programs.watch())

    def end(self, _: object = None) -> None:
        self.stack.close()

    def others(self) -> float | None:
        """Return the most that others used in a cell, this one so far among them.

        Cells too short for such a figure count together.
        """
        self.end()
        self.begin()
        self.claimed = True
        long = [cpus for seconds, cpus in self.cells if seconds >= SHORTEST]
        total = sum(seconds for seconds, _ in self.cells)
        if long or total < SHORTEST:
            return max(long, default=None)
        return sum(seconds * cpus for seconds, cpus in self.cells) / total


_watch = _Watch()
