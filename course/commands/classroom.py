"""`python -m course class FILES...`: one HTML page from what the learners of a class handed in.

With `--watch FOLDER` the page is written again whenever a hand-in comes in or changes, and a
browser that shows it loads it again: for a room. Whoever wrote the page can read it, and nobody
else: it has everybody's votes, and names.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from course.commands import progress
from course.commands.progress import HandIn
from course.logs.page import Page
from course.predictions import inventory
from course.predictions.figures import lettered
from course.predictions.ledger_file import Entry
from labkit.measure.records import for_its_owner
from labkit.measure.tables import Table

EVERY = 3.0  # seconds between two looks at a watched folder


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="*", type=Path, help="what the learners handed in (JSON)")
    parser.add_argument("--out", type=Path, default=Path("class.html"), help="page to write")
    purpose = "follow the hand-ins in a folder; Ctrl-C ends"
    parser.add_argument("--watch", type=Path, metavar="FOLDER", help=purpose)


def main(options: argparse.Namespace) -> int:
    """Write the page; return 0 unless no file could be read."""
    if options.watch is None:
        return _write(options.files, options.out)
    if not options.watch.is_dir():
        print(f"{options.watch} is no folder", file=sys.stderr)
        return 1
    print(f"{options.out} follows the hand-ins in {options.watch}; Ctrl-C ends it", flush=True)
    seen = None
    while True:
        files = sorted(options.watch.glob("*.json"))
        now = {path: _changed(path) for path in files}
        if now != seen and files:
            _write(files, options.out, reload=True)
        seen = now
        time.sleep(EVERY)


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it has gone, or is a link to nothing
        return None


def _write(files: Iterable[Path], out: Path, *, reload: bool = False) -> int:
    hand_ins = []
    for path in files:
        try:
            hand_ins.append(progress.load(path))
        except ValueError as error:
            print(f"left out: {error}", file=sys.stderr)
    if not hand_ins:
        print("no hand-in could be read: name what learners handed in", file=sys.stderr)
        return 1
    refresh = f'<head><meta http-equiv="refresh" content="{2 * EVERY:g}">' if reload else "<head>"
    with open(out, "w", encoding="utf-8", opener=for_its_owner) as file:
        file.write(str(page(hand_ins)).replace("<head>", refresh, 1))
    print(f"{len(hand_ins)} hand-ins: {out}")
    return 0


def page(hand_ins: Sequence[HandIn]) -> Page:
    """Build the page: inventory, votes, predictions, cases, and how far people came."""
    result = Page(f"A class of {len(hand_ins)}")
    _add_inventory(result, hand_ins)
    entries = [entry for hand_in in hand_ins for entry in hand_in.entries]
    questions: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.key):
        questions.setdefault(entry.key, []).append(entry)
    result.heading("Votes, before the result and after it")
    for key, answers in questions.items():
        if any(entry.options and entry.committed for entry in answers):
            result.table(_votes(key, answers))
    result.heading("What was predicted, and what came")
    counted = [[entry for entry in answers if entry.counts] for answers in questions.values()]
    columns = ["question", "learners", "too low", "right size", "too high", "inside their range"]
    result.table(Table(columns, [_predictions(answers) for answers in counted if answers]))
    result.heading("Cases")
    names = sorted({name for hand_in in hand_ins for name in hand_in.games})
    games = [_game(name, [h.games[name] for h in hand_ins if name in h.games]) for name in names]
    result.table(Table(["case", "played", "solved", "instruments asked, median"], games))
    result.heading("How far people came")
    for title, lists in (
        ("lesson run to its end", [hand_in.finished for hand_in in hand_ins]),
        ("exercise passed", [hand_in.passed for hand_in in hand_ins]),
        ("stopped at the question", [[h.stopped] for h in hand_ins if h.stopped]),
        ("skipped", [[e.key for e in h.entries if e.skipped] for h in hand_ins]),
    ):
        counts = Counter(number for numbers in lists for number in set(numbers))
        shares = [(n, counts[n], f"{counts[n] / len(hand_ins):.0%}") for n in sorted(counts)]
        result.table(Table([title, "learners", "of the class"], shares))
    machines = Counter(hand_in.machine for hand_in in hand_ins)
    result.table(Table(["machine", "learners"], machines.most_common()))
    if named := [hand_in for hand_in in hand_ins if hand_in.name]:
        result.heading("By name, of those who gave one")
        people = [(h.name, len(h.finished), ", ".join(h.passed)) for h in named]
        result.table(Table(["name", "lessons", "exercises passed"], sorted(people)))
    return result


def _add_inventory(result: Page, hand_ins: Sequence[HandIn]) -> None:
    known = [inventory.outcome(hand_in.answers) for hand_in in hand_ins]
    if not any(known):
        return
    rows = []
    for name in inventory.questions():
        answers = [outcome.get(name, {}) for outcome in known]
        rights = ([right[form] for right in answers if form in right] for form in inventory.FORMS)
        rows.append([name, *map(_share, rights)])
    result.heading("The inventory")
    result.table(Table(["misconception", "right before", "right after"], rows))


def _votes(key: str, answers: Sequence[Entry]) -> Table:
    options = next(entry.options for entry in answers if entry.options)
    supported = next((str(entry.measured) for entry in answers if entry.measured), "").split(" or ")
    cast = [entry for entry in answers if entry.committed]
    before = Counter(entry.answer for entry in cast)
    talk = Counter(entry.second or entry.answer for entry in cast)
    after = Counter(getattr(entry, entry.last) for entry in cast)
    talked = any(entry.talked for entry in answers)
    rows = []
    for letter, text in lettered(options).items():
        counts = [before[letter], talk[letter] if talked else None, after[letter]]
        rows.append([text, *counts, "the evidence" if letter in supported else ""])
    heads = ["option", "before", "after talk", "after", ""]
    return Table(heads, rows, f"{key}: {answers[0].question}")


def _predictions(answers: Sequence[Entry]) -> list:
    """Count those who were off by more than a factor of two, and ranges that held."""
    low = sum(entry.answer < entry.measured / 2 for entry in answers)
    high = sum(entry.answer > entry.measured * 2 for entry in answers)
    ranges = [entry.inside for entry in answers if entry.inside is not None]
    question = f"{answers[0].key}: {answers[0].question}"
    return [question, len(answers), low, len(answers) - low - high, high, _share(ranges)]


def _game(name: str, played: Sequence[dict]) -> list:
    counts = [game["asked"] for game in played if isinstance(game.get("asked"), int)]
    solved = sum(bool(game.get("diagnosed")) for game in played)
    middle = f"{statistics.median(counts):g}" if counts else ""
    return [name.removeprefix("case."), len(played), solved, middle]


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right) / len(right):.0%}" if right else "–"
