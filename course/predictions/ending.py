"""How a lesson ends: a card with what was found, what one can do now, one's bets, one next click.

Which bets there were, and what came out, is in the learner's file; what one can do now stands at
the notebook's head, after "After this lesson".
"""

import json
import re
import textwrap

from course import catalogue
from course.predictions import forms, ledger_file
from course.predictions.figures import in_words
from course.predictions.ledger_file import Entry

_CAN = re.compile(r"\**After this lesson\**,? (you .+?)(?=\n|$)")


def show(number: str, *, yours: str = "", theirs: str = "") -> None:
    """Show a lesson's card; nothing where nobody reads it, or where no lesson has this number."""
    lessons = list(catalogue.find().values())
    numbers = [lesson.number for lesson in lessons]
    if ledger_file.nobody_answers() or number not in numbers:
        return
    book, lesson = ledger_file.load(), lessons[numbers.index(number)]
    tasks = lesson.notebook(catalogue.ROOT / "exercises")
    later = lessons[numbers.index(number) + 1 :]
    link = step = ""
    if tasks and not any(name.startswith(f"{number.lstrip('0')}.") for name in book.passed):
        link, step = f"../exercises/{tasks.name}", f"the exercises of {number}"
    elif later and (page := later[0].notebook(catalogue.ROOT / "notebooks")):
        link, step = page.name, f"{later[0].number} · {later[0].title}"
    figures = "; ".join(filter(None, [yours and f"Yours: {yours}", theirs and f"theirs: {theirs}"]))
    entries = [entry for key, entry in book.entries.items() if key.startswith(f"{number}.")]
    bets = [(textwrap.shorten(e.question, 90), outcome(e)) for e in entries if e.committed]
    title, can = f"{number} · {lesson.title}", _can(lesson)
    lines = [f"✔ {title}: you have come to its end. Well done!", figures, can and f"Now {can}"]
    lines += [f"  {question} {text}" for question, text in bets]
    lines += [link and f"Next: {step} ({link})"]
    names = {"title": title, "figures": figures, "can": can, "bets": bets, "link": link}
    text = "\n".join(filter(None, lines))
    forms.display(text, lambda: forms.filled("card.html", next=step, **names))


def outcome(entry: Entry) -> str:
    """Say in a few words what was bet, and what came out; it must have been bet."""
    bet = f"You said {in_words(entry)}".rstrip(".")
    if entry.measured is None:
        return f"{bet}; not judged yet."
    if entry.fates is not None:
        return f"{bet}; your run leaves {entry.measured}."
    result = f"{bet}; it was {in_words(entry, 'measured')}".rstrip(".")
    if entry.options:
        mark = {True: " ✔", False: ""}.get(entry.right, ", not judged")
    elif entry.explained:
        mark = ", not judged beside other programs"
    else:
        mark = " ✔" if _came_true(entry) else ""
    return f"{result}{mark}."


def _came_true(entry: Entry) -> bool:
    """Tell whether the result lies in the range, or, without one, within a factor of two."""
    if entry.inside is not None:
        return entry.inside
    return entry.answer == entry.measured or (entry.counts and entry.miss < 2)


def _can(lesson: catalogue.Lesson) -> str:
    """Read at a lesson's head what one can do after it; empty without its notebook."""
    path = lesson.notebook(catalogue.ROOT / "notebooks")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path else []
    matches = (_CAN.search("".join(cell["source"])) for cell in cells)
    return next((re.sub(r"[*`]", "", match[1]) for match in matches if match), "")
