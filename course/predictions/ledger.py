"""The ledger: commit to an answer, meet the measurement, and see how well you predict.

    predict("01.slope")  # asks what a lesson's `questions.json` has under this key
    choose("01.cause")
    ...
    gate("01.slope")  # first line of the cell that would show the answer
    ...
    reconcile("01.slope", 251.0, model=240.0, tier=Tier.MEASURED)
    reconcile("01.cause", board)  # what the experiments left: see course.predictions.board

What was committed may be corrected until its gate is passed, and is locked from there until its
result has been seen; what is committed after that is kept beside it. A gate stops its cell until
there is a commitment or an explicit skip.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from course.other_programs import limit
from course.predictions import ending, forms, judging, ledger_file
from course.predictions.board import Board, show_verdict
from course.predictions.figures import in_words, lettered
from course.predictions.forms import Quiz
from course.predictions.judging import Rounds
from course.predictions.ledger_file import Entry
from labkit.measure.records import Record, Tier, tiers_of

_told: set[str] = set()  # what is said only once: of open gates, and of the learner's file


class Stopped(Exception):
    """A gate is closed."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def predict(
    key: str,
    question: str = "",
    unit: str = "",
    *,
    value: float | None = None,
    low: float | None = None,
    high: float | None = None,
    with_range: bool = False,
) -> None:
    """Show a form in which the learner commits a figure.

    Args:
        key: Names the question for ever: lesson and word, like `01.slope`.
        question: The question, in full; without it, that of a lesson's `questions.json`.
        unit: Unit of the answer, like `µs`; `x` for a ratio.
        value: Commits this value at once, for who prefers code to a form.
        low: With a value, the lower end of a range in which the learner is 80 % sure to find it.
        high: The upper end.
        with_range: Whether the form asks for such a range, too.

    Example:
        >>> predict("00.latency", "How long does one all_reduce of 4 bytes take?", "µs", value=80)
        committed: 80 µs. You may correct it until you see the result.
    """
    also = "range" if with_range or low is not None else ""
    entry = _ask(key, question, also=also, unit=unit)
    if value is None:
        _show(entry)
    else:
        _commit(key, float(value), low=low, high=high)


def choose(
    key: str,
    question: str = "",
    options: Sequence[str] = (),
    *,
    why: bool = False,
    answer: str | None = None,
    reason: str = "",
) -> None:
    """Show a form in which the learner votes for one of several options, lettered from a.

    Args:
        key: Names the question for ever, like `01.cause`.
        question: The question, in full; without it, that of a lesson's `questions.json`.
        options: The options, in the order of their letters.
        why: Whether to ask for a line of reasons, too.
        answer: Commits this letter at once, for who prefers code to a form.
        reason: With it, in a line.

    Example:
        >>> choose("00.first", "Which clock is wrong?", ["the first", "none"], answer="b")
        committed: b) none. You may correct it until you see the result.
    """
    entry = _ask(key, question, also="reason" if why else "", options=options)
    if answer is None:
        _show(entry)
    else:
        _commit(key, answer, reason=reason)


def gate(key: str, *, skip: bool = False) -> None:
    """Stop the cell, with the form, until the question is answered or skipped.

    With `skip` the question is skipped, and the ledger says so. Gates are open where nobody can
    answer, and where COURSE_GATES is `open`; `closed` closes them there, too.

    Raises:
        Stopped: Nothing is committed yet. A notebook shows one line of it.
    """
    judging.watch_cells()
    if gates_are_open():
        return
    _stop_unless_answered(ledger_file.note("skipped", key) if skip else ledger_file.entry(key))
    forms.refresh(ledger_file.note("opened", key))


def _stop_unless_answered(entry: Entry) -> None:
    if not (entry.committed or entry.skipped or entry.measured is not None):
        _show(entry, gated=True)
        raise Stopped("First commit to an answer above. Then run this cell again.")


def vote_again(key: str) -> None:
    """Show the form of a vote again, for a room that has talked; the first vote stays beside it.

    Raises:
        Stopped: Nothing is committed yet.
    """
    gate(key)
    forms.refresh(ledger_file.note("talked", key))
    _show(ledger_file.entry(key))


def gates_are_open() -> bool:
    """Tell whether gates let everything pass; say so where that is since nobody can answer."""
    if (setting := os.environ.get("COURSE_GATES")) is not None:
        return setting == "open"
    if ledger_file.nobody_answers():
        _tell_once(
            "Nobody can answer here, as this run allows no input: all gates are open, and the "
            "learner's own file is left alone."
        )
        return True
    return False


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        print(text)


def mark(
    ax: Any,
    key: str,
    *,
    axis: Literal["x", "y"] = "y",
    scale: float = 1.0,
    at: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draw what the learner committed into a picture, where it has a place there.

    A figure has one on an axis. A vote has none, unless `at` gives it: then nothing is drawn.

    Args:
        ax: The axes, or a figure whose first axes are meant.
        key: The question.
        axis: The one that a figure is to be read off.
        scale: How many units of the axis one unit of the question makes.
        at: Where in the data a vote points to, by letter.
    """
    entry = ledger_file.entry(key)
    if not entry.committed or (entry.options and entry.answer not in (at or {})):
        return
    from labkit.show import alt_text

    ax = ax.axes[0] if isinstance(ax.axes, list) else ax
    color, text = "#a3009e", f"you: {in_words(entry)}"
    box = {"facecolor": "white", "edgecolor": color, "alpha": 0.85, "pad": 2}
    look = {"color": color, "fontsize": 9, "fontweight": "bold", "bbox": box}
    if entry.options:
        arrow = {"arrowstyle": "->", "color": color, "linewidth": 2}
        near = {"xytext": (14, 22), "textcoords": "offset points", "arrowprops": arrow}
        ax.annotate("your vote", at[entry.answer], **near, **look)
    else:
        on_y, value = axis == "y", entry.answer * scale
        (ax.axhline if on_y else ax.axvline)(value, color=color, linestyle="--", zorder=3)
        if entry.low is not None:
            band = entry.low * scale, entry.high * scale
            (ax.axhspan if on_y else ax.axvspan)(*band, color=color, alpha=0.1, zorder=0)
        low, high = sorted(ax.get_ylim() if on_y else ax.get_xlim())
        within = min(max(value, low), high)
        if within != value:  # limits that were set: it is said at the edge
            text += " (outside the picture)"
        if on_y:  # on the left: curves often end where the answer lies
            where = {"x": 0.01, "y": within, "ha": "left", "transform": ax.get_yaxis_transform()}
        else:
            side = "left" if within < (low + high) / 4 else "right"
            where = {"x": within, "y": 0.99, "ha": side, "transform": ax.get_xaxis_transform()}
        ax.text(s=text, va="top", **where, **look)
    alt_text.describe(ax, f"Marked in it: {text}.")


def reconcile(
    key: str,
    measured: float | str | Board,
    *,
    tier: Tier | str | None = None,
    records: Iterable[Record] | None = None,
    model: float | None = None,
    others: float | None = None,
    rounds: Rounds = None,
    because: str = "",
    ours: Board | None = None,
) -> None:
    """Show what was committed beside the result, and keep the result: the first calm one counts.

    Of a question that was asked it is as closed as the gate is: in a slow browser *Run All* does
    not end where a gate stops, since a cell that comes after the kernel has replied is run.

    Args:
        key: The question.
        measured: The result, in the unit of the question; of a vote on a cause, its board, which
            says what still stands; of another vote, the letter that the evidence supports.
        tier: How the result came to be.
        records: Instead of the tier: those that the result was computed from.
        model: What a model says, in the same unit.
        others: CPUs that other programs used meanwhile, where no records tell: a figure that they
            disturbed is shown, and judges a prediction only that is off by more than they explain.
        rounds: Of a figure that a claim is about, too: what that claim is given. Where its rounds
            decide, whatever other programs did, they decide here as well.
        because: Of a vote: which run decided it, in a sentence.
        ours: With a board: the same board of a calm machine, which folds below.

    Raises:
        ValueError: Neither tier nor records are given, or both; or a letter that is no option.
        Stopped: The question was asked, and nothing is committed yet.
    """
    entry = ledger_file.entry(key)
    if entry.question != key and not gates_are_open():
        _stop_unless_answered(entry)
    if isinstance(measured, Board):
        if measured.tests:
            left = " or ".join(measured.left) or "none"
            ledger_file.add("judged", key, measured=left, fates=measured.fates)
        show_verdict(measured, ours)
        return
    if (tier is None) == (records is None):
        raise ValueError(f"reconcile({key!r}, ...) needs tier= or records=, one of both.")
    all_records = list(records or [])
    tiers = tiers_of(all_records) if tier is None else str(Tier(tier))
    known = [record.others for record in all_records if record.others is not None]
    used = max(known, default=others)
    disturbed = used if used and used > limit() else None
    if rounds is not None and judging.judge(rounds, others=disturbed).outcome is not None:
        disturbed = None
    if not isinstance(measured, str):
        measured = float(measured)
    elif entry.options and measured not in lettered(entry.options):
        raise ValueError(f"{measured!r} is none of the options of {key}: {entry.options}")
    model = None if model is None else float(model)
    result = {"model": model, "tier": tiers, "because": because, "others": disturbed}
    ledger_file.add("seen", key, measured=measured, **result)
    now = ledger_file.entry(key)
    forms.refresh(now)
    forms.show_result(replace(now, measured=measured, **result))


def warmup(key: str, *, answer: str | None = None) -> None:
    """Ask a question of an older lesson; its reason unfolds when it is answered.

    Args:
        key: Of a question in a lesson's `questions.json` that has a right answer.
        answer: Answers at once, for who prefers code to a form.

    Raises:
        ValueError: There is no such question; names those that there are.
    """
    known = warmups()
    if key not in known:
        raise ValueError(f"no warm-up {key!r}; there are: {', '.join(known)}.")
    quiz = known[key]

    def answered(letter: str) -> str:
        right = quiz.is_right(letter)
        ledger_file.add("answered", key, letter=letter, right=right)
        return f"{'✔ Right' if right else '✘ No'}: {quiz.solution}"

    if answer is not None:
        print(answered(answer))
    else:
        code = f'warmup("{key}", answer="...")'
        forms.show_quiz(quiz, answered, heading="Warm-up.", folded=quiz.solution, code=code)


def questions() -> dict[str, dict[str, Any]]:
    """Load the questions of all lessons, by key, from their `questions.json`.

    A prediction has a `unit`, a vote has `options`, and `also` says what else its form asks: a
    `range` or a `reason`. A warm-up has the index of the `right` option and a `reason`.
    """
    files = sorted((Path(__file__).parents[1] / "lessons").glob("*/questions.json"))
    items = [item for path in files for item in json.loads(path.read_text(encoding="utf-8"))]
    return {item["key"]: item for item in items}


def warmups() -> dict[str, Quiz]:
    """Return the warm-ups of all lessons, by key."""
    return {key: Quiz(**item) for key, item in questions().items() if "right" in item}


def keep(name: str, values: dict[str, Any]) -> None:
    """Keep values for later, like a case's score. They must fit into JSON."""
    ledger_file.add("kept", name, values=values)


def recall(name: str) -> dict[str, Any] | None:
    """Return what `keep` kept under the name; None if nothing was."""
    return ledger_file.load().kept.get(name)


def passed(number: str) -> None:
    """Note that an exercise's check passed."""
    ledger_file.add("passed", number)


def finished(lesson: str, *, yours: str = "", theirs: str = "") -> None:
    """Note that a lesson was run to its end, and show its card; its last cell calls it.

    Args:
        lesson: Its number.
        yours: The figure that the learner found, in words.
        theirs: The figure of the case, to stand beside it.

    Example:
        >>> finished("02", yours="1.4 times", theirs="4.7 times")      # doctest: +ELLIPSIS
        ✔ 02 · 280 ms or 60?: you have come to its end. Well done!
        Yours: 1.4 times; theirs: 4.7 times
        ...
    """
    ledger_file.add("finished", lesson)
    ending.show(lesson, yours=yours, theirs=theirs)


def _ask(key: str, question: str, **form: Any) -> Entry:
    """Note a question in these words, or in the lessons'; `ValueError` where these have none."""
    if question:
        return ledger_file.ask(key, question, **form)
    known = questions()
    if key not in known:
        raise ValueError(f"no lesson's questions.json has {key!r}; give the question itself.")
    return ledger_file.ask(**known[key])


def _commit(key: str, answer: float | str, **details: Any) -> None:
    """Commit; print what became of it."""
    try:
        now = ledger_file.commit(key, answer, **details)
    except ValueError as error:
        print(f"not committed: {error}")
        return
    forms.refresh(now)
    print(forms.state_of(now))


def _show(entry: Entry, *, gated: bool = False) -> None:
    """Show the form of a question; with a way past it, where a gate asks."""
    if complaint := ledger_file.load().complaint():
        _tell_once(f"{ledger_file.location().name}: {complaint}")
    if entry.question == entry.key and not entry.options:
        print(f"Run the cell that asks question {entry.key} first.")
    else:
        forms.show_question(entry, gated=gated)
