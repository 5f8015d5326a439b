"""`python -m labkit class FILES...`: one HTML page from what the learners of a class handed in."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from labkit.course import handin
from labkit.course.handin import HandIn
from labkit.measure.tables import Table
from labkit.show.page import Page


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="+", type=Path, help="what the learners handed in (JSON)")
    parser.add_argument("--out", type=Path, default=Path("class.html"), help="page to write")


def main(options: argparse.Namespace) -> int:
    """Write the page; return 0 unless no file could be read."""
    hand_ins, complaints = handin.load_all(options.files)
    for complaint in complaints:
        print(f"left out: {complaint}", file=sys.stderr)
    if not hand_ins:
        return 1
    options.out.write_text(str(page(hand_ins)), encoding="utf-8")
    print(f"{len(hand_ins)} hand-ins: {options.out}")
    return 0


def page(hand_ins: Sequence[HandIn]) -> Page:
    """Build the page: predictions, machines, exercises."""
    from labkit.course import class_pictures

    result = Page(f"A class of {len(hand_ins)}: predictions, machines, exercises")
    result.heading("What was predicted, and what came")
    for key, question in _questions(hand_ins).items():
        counted = [e for h in hand_ins for e in h.entries if e.key == key and e.counts]
        if counted:
            pairs = [(entry.predicted, entry.measured) for entry in counted]
            result.picture(class_pictures.predictions(question, pairs))
    result.heading("The machines")
    figures = [
        (hand_in.machine, hand_in.passport["alpha"], hand_in.passport["beta"])
        for hand_in in hand_ins
        if min(hand_in.passport.get("alpha", 0), hand_in.passport.get("beta", 0)) > 0
    ]
    if figures:
        result.picture(class_pictures.machines(figures))
    result.text(
        f"{len(figures)} of {len(hand_ins)} machines have a passport (lesson 00).", note=True
    )
    result.heading("How far people came")
    for title, lists in (
        ("lesson run to its end", [hand_in.finished for hand_in in hand_ins]),
        ("exercise passed", [hand_in.passed for hand_in in hand_ins]),
    ):
        counts = Counter(number for numbers in lists for number in set(numbers))
        rows = [(n, counts[n], f"{counts[n] / len(hand_ins):.0%}") for n in sorted(counts)]
        result.table(Table([title, "learners", "of the class"], rows))
    if named := [hand_in for hand_in in hand_ins if hand_in.name]:
        result.heading("By name, of those who gave one")
        rows = [(h.name, len(h.finished), ", ".join(h.passed)) for h in named]
        result.table(Table(["name", "lessons", "exercises passed"], sorted(rows)))
    return result


def _questions(hand_ins: Sequence[HandIn]) -> dict[str, str]:
    asked = {entry.key: entry.question for h in hand_ins for entry in h.entries}
    return {key: asked[key] for key in sorted(asked)}
