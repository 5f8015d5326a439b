"""`python -m course case [NAME]`: play a case of the ward in a terminal."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course.lessons.casebook.ward import Ward


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    cases = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
    parser.add_argument("name", nargs="?", choices=[*cases, "final"], help="the case")


def main(options: argparse.Namespace) -> int:
    """List the cases, play one, or play the final."""
    from course.lessons.casebook.cases import CASES, draw_final, overview, score
    from course.lessons.casebook.ward import Ward

    if options.name is None:
        print("Play one with: python -m course case NAME\n")
        print(overview())
        print("\nfinal: three jobs drawn at random")
        return 0
    wards = draw_final() if options.name == "final" else [Ward(CASES[options.name])]
    for ward in wards:
        if not _play(ward):
            return 0
    if options.name == "final":
        print(score(wards))
    return 0


def _play(ward: Ward) -> bool:
    """Play one case; return whether it came to a right diagnosis."""
    from course.lessons.casebook.cases import reported_in
    from course.lessons.casebook.observe import INSTRUMENTS
    from course.lessons.casebook.ward import ROUNDS

    case, instruments = ward.case, dict(zip("123456", INSTRUMENTS, strict=True))
    print(f"\n{case.title}\n{case.story}")
    if case.symptom:
        print(f"Reported in {reported_in(case)}.")
    lines = [f"  {digit}  ask: {name}" for digit, name in instruments.items()]
    lines += [f"  {letter}  diagnose: {one.says}" for letter, one in ward.suspects.items()]
    menu = "\n".join(["", *lines, "  q  leave", "> "])
    while not ward.solved:
        word = input(menu).strip().lower()
        if word == "q":
            return False
        if word in instruments:
            print(f"{instruments[word]}: running ...")
            print(ward.ask(instruments[word]))
        elif word in ward.suspects:
            reason = input("because: ").strip()
            print(f"its deciding instrument, {ROUNDS} times: running ...")
            print(f"{ward.diagnose(word, reason)}\n\n{ward.board}")
        else:
            print("a number asks an instrument, a letter diagnoses, q leaves")
    if case.cure is not None:
        whose = "The source's own fix" if case.by_source else "A fix of ours (the source has none)"
        print(f"\n{whose}, measured:\n{ward.treat(case.cure)}\n\n{ward.close()}")
    return True
