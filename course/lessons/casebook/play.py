"""`python -m course case NAME`: play a case of the casebook in a terminal."""

import argparse

from course.lessons.casebook.cases import CASES
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import Case, Ward


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", choices=CASES, help="the case")
    parser.add_argument("--ask", action="append", default=[], choices=INSTRUMENTS, metavar="NAME",
                        help=f"ask an instrument at once: {', '.join(INSTRUMENTS)}")  # fmt: skip
    parser.add_argument("--diagnose", metavar="SUSPECT", help="commit a diagnosis at once")


def main(options: argparse.Namespace) -> int:
    """Play the case: by the options, or by asking what to do next."""
    ward = Ward(CASES[options.name])
    print(told(ward.case))
    for instrument in options.ask:
        print(f"\n{instrument}\n{ward.ask(instrument)}")
    diagnosis = options.diagnose
    while not options.ask and diagnosis is None:
        word = input("\ninstrument or suspect (empty to stop): ").strip()
        if not word:
            return 0
        if word in ward.case.suspects:
            diagnosis = word
        elif word in INSTRUMENTS:
            print(ward.ask(word))
        else:
            print(f"no such word: {', '.join([*INSTRUMENTS, *ward.case.suspects])}")
    if diagnosis is not None:
        print(f"\n{ward.diagnose(diagnosis)}")
        if diagnosis == ward.case.culprit:
            print(f"\nthe fix, measured\n{ward.treat(ward.case.cure)}")
            print(f"\nin production: {ward.case.production}")
            print(f"it is not this when: {ward.case.not_when}")
    return 0


def told(case: Case) -> str:
    """Tell a case: its report, its instruments, its suspects."""
    reports = (f'  "{one.quotation}"\n  {one.source}' for one in case.report)
    suspects = (f"  {key}: {suspect.says}" for key, suspect in case.suspects.items())
    return "\n".join(
        [case.title, *reports, f"instruments: {', '.join(INSTRUMENTS)}", "suspects:", *suspects]
    )
