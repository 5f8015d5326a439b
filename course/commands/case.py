"""`python -m course case [NAME]`: play a case of the ward in a terminal."""

import argparse
import json
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    file = Path(__file__).parents[1] / "lessons" / "casebook" / "cases.json"
    cases = json.loads(file.read_text(encoding="utf-8"))
    parser.add_argument("name", nargs="?", choices=[*cases, "final"], help="the case")


def main(options: argparse.Namespace) -> int:
    """List the cases, play one, or play the final."""
    from course.lessons.casebook.cases import CASES, draw_final, overview, play_in_terminal, score
    from course.lessons.casebook.ward import Ward

    if options.name is None:
        print("Play one with: python -m course case NAME\n")
        print(overview())
        print("\nfinal: three jobs drawn at random")
        return 0
    wards = draw_final() if options.name == "final" else [Ward(CASES[options.name])]
    for ward in wards:
        if not play_in_terminal(ward):
            return 0
    if options.name == "final":
        print(score(wards))
    return 0
