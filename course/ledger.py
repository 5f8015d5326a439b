"""The ledger: commit to an answer, meet the measurement, and see how well you predict.

    predict("01.slope", "How much longer does a call take with every further pair?", "µs", low=True)
    choose("01.cause", "What makes it longer?", ["the network", "torch", "a queue"])
    ...
    gate("01.slope")  # first line of the cell that would show the answer
    ...
    reconcile("01.slope", 251.0, model=240.0, tier=Tier.MEASURED)
    reconcile("01.cause", "c", records=runs, because="it goes away when each pair has its own CPU")

What was committed is locked until its result has been seen; what is committed after that is kept
beside it. A gate stops its cell until there is a commitment or an explicit skip.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from course import forms, ledger_file
from course.ledger_file import Entry
from labkit.measure import records as measured_records
from labkit.measure.records import Record, Tier

_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}([,\u2009\u202f ]\d{3})+(?![\d,])")
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")

_asks: dict[str, tuple[str, ...]] = {}
"""Key -> what its form asks besides the answer: `range`, `reason`."""


class Stopped(Exception):
    """A gate is closed."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def predict(
    key: str,
    question: str,
    unit: str,
    *,
    value: float | None = None,
    low: float | bool = False,
    high: float | None = None,
) -> None:
    """Show a form in which the learner commits a figure.

    Args:
        key: Names the question for ever: lesson and word, like `01.slope`.
        question: The question, in full.
        unit: Unit of the answer, like `µs`; `x` for a ratio.
        value: Commits this value at once, for who prefers code to a form.
        low: True asks for a range as well, in which the learner is 80 % sure to find the result;
            in code, its lower end.
        high: In code, the upper end.

    Example:
        >>> predict("00.latency", "How long does one all_reduce of 4 bytes take?", "µs", value=80)
        committed: 80 µs
    """
    _ask(key, question, also=("range",) if low is not False else (), unit=unit)
    if value is None:
        _show(key)
        return
    ends = {} if high is None else {"low": float(low), "high": float(high)}
    print(_attempt(key, float(value), **ends))


def choose(
    key: str,
    question: str,
    options: Sequence[str],
    *,
    why: bool = False,
    answer: str | None = None,
    reason: str = "",
) -> None:
    """Show a form in which the learner votes for one of several options, lettered from a.

    Args:
        key: Names the question for ever, like `01.cause`.
        question: The question, in full.
        options: The options, in the order of their letters.
        why: Whether to ask for a line of reasons, too.
        answer: Commits this letter at once, for who prefers code to a form.
        reason: With it, in a line.

    Example:
        >>> choose("00.first", "Which clock is wrong?", ["the first", "none"], answer="b")
        committed: b) none
    """
    _ask(key, question, also=("reason",) if why else (), options=list(options))
    if answer is None:
        _show(key)
    else:
        print(_attempt(key, answer, reason=reason))


def commit(
    key: str,
    answer: float | str,
    *,
    low: float | None = None,
    high: float | None = None,
    reason: str = "",
) -> Entry:
    """Write an answer down; its question must have been asked.

    Raises:
        ValueError: It is no answer to this question, or another one is locked.
    """
    entry = ledger_file.entry(key)
    if entry.options:
        letters = list(forms.LETTERS[: len(entry.options)])
        if answer not in letters:
            raise ValueError(f"choose one of {', '.join(letters)}.")
    elif not math.isfinite(answer):
        raise ValueError(f"a prediction is a finite number, got {answer}.")
    elif low is not None and not low <= answer <= high:
        raise ValueError(f"your figure {answer:g} is not between {low:g} and {high:g}.")
    if entry.committed and entry.measured is None:
        if answer == entry.answer:
            return entry
        raise ValueError(f"locked until you have seen the result: {forms.answer_of(entry)}.")
    ends = {} if low is None else {"low": low, "high": high}
    ledger_file.add("committed", key, answer=answer, reason=reason, **ends)
    return ledger_file.entry(key)


def gate(key: str, *, skip: bool = False) -> None:
    """Stop the cell, with the form, until the question is answered or skipped.

    With `skip` the question is skipped, and the ledger says so. Gates are open under tests and
    where COURSE_GATES is `open`; `closed` closes them there, too.

    Raises:
        Stopped: Nothing is committed yet. A notebook shows one line of it.
    """
    given = "open" if "PYTEST_VERSION" in os.environ else "closed"
    if os.environ.get("COURSE_GATES", given) == "open":
        return
    entry = ledger_file.entry(key)
    if skip and not entry.decided:
        ledger_file.add("skipped", key)
    elif not entry.decided:
        _show(key, skippable=True)
        raise Stopped("First commit to an answer above. Then run this cell again.")


def mark(
    ax: Any,
    key: str,
    *,
    axis: Literal["x", "y"] = "y",
    scale: float = 1.0,
    at: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draw what the learner committed into a picture; nothing where nothing was committed.

    Args:
        ax: The axes, or a figure whose first axes are meant.
        key: The question.
        axis: The one that a figure is to be read off.
        scale: How many units of the axis one unit of the question makes.
        at: Where in the data a vote points to, by letter; without it stands in the corner.
    """
    entry = ledger_file.entry(key)
    if not entry.committed:
        return
    from labkit.show import alt_text

    ax = ax.axes[0] if hasattr(ax, "axes") and isinstance(ax.axes, list) else ax
    look = {"color": "#a3009e", "fontsize": 9, "fontweight": "bold"}
    text = f"you: {forms.answer_of(entry)}"
    short = f"you: {entry.answer})" if entry.options else text
    box = {"facecolor": "white", "edgecolor": look["color"], "alpha": 0.85, "pad": 2}
    if not entry.options:
        across, along = ("axhline", "axhspan") if axis == "y" else ("axvline", "axvspan")
        getattr(ax, across)(entry.answer * scale, color=look["color"], linestyle="--", zorder=3)
        if entry.low is not None:
            ends = entry.low * scale, entry.high * scale
            getattr(ax, along)(*ends, color=look["color"], alpha=0.1, zorder=0)
        place, frame = ((0.01, entry.answer * scale), ax.get_yaxis_transform())
        if axis == "x":
            place, frame = ((entry.answer * scale, 0.99), ax.get_xaxis_transform())
        side = "left" if axis == "y" else "right"  # curves often end where the answer lies
        ax.text(*place, short, ha=side, va="top", transform=frame, bbox=box, **look)
    elif at and entry.answer in at:
        arrow = {"arrowstyle": "->", "color": look["color"], "linewidth": 2}
        ax.annotate(
            "your vote", at[entry.answer], (14, 22), textcoords="offset points", bbox=box,
            arrowprops=arrow, **look,
        )  # fmt: skip
    else:
        ax.text(1.0, 1.01, short, ha="right", va="bottom", transform=ax.transAxes, bbox=box, **look)
    alt_text.describe(ax, f"Marked in it: {text}.")


def reconcile(
    key: str,
    measured: float | str,
    *,
    tier: Tier | str | None = None,
    records: Iterable[Record] | None = None,
    model: float | None = None,
    others: float | None = None,
    because: str = "",
) -> None:
    """Show what was committed beside the result, and keep the result: the first calm one counts.

    Args:
        key: The question.
        measured: The result, in the unit of the question; of a vote, the letter that the evidence
            supports.
        tier: How the result came to be.
        records: Instead of the tier: those that the result was computed from.
        model: What a model says, in the same unit.
        others: CPUs that other programs used meanwhile, where no records tell: a figure that they
            disturbed is shown, and no prediction judged by it.
        because: Of a vote: which run decided it, in a sentence.

    Raises:
        ValueError: Neither tier nor records are given, or both; or a letter that is no option.
    """
    if (tier is None) == (records is None):
        raise ValueError(f"reconcile({key!r}, ...) needs tier= or records=, one of both.")
    if records is not None:
        records = list(records)
        known = [record.others for record in records if record.others is not None]
        others = max(known, default=others)
    named = str(Tier(tier)) if tier is not None else measured_records.tiers_of(records)
    entry = ledger_file.entry(key)
    if isinstance(measured, str):
        if entry.options and measured not in list(forms.LETTERS[: len(entry.options)]):
            raise ValueError(f"{measured!r} is none of the options of {key}: {entry.options}")
    else:
        measured = float(measured)
    model = None if model is None else float(model)
    result = {"model": model, "tier": named, "because": because, "others": others}
    ledger_file.add("seen", key, measured=measured, **result)
    forms.show_result(replace(ledger_file.entry(key), measured=measured, **result))


def warmup(key: str, *, answer: str | None = None) -> None:
    """Ask a question of an older lesson; its reason unfolds when it is answered.

    Args:
        key: Of the question in a lesson's `warmups.json`.
        answer: Answers at once, for who prefers code to a form.

    Raises:
        ValueError: There is no such question; names those that there are.
    """
    known = warmups()
    if key not in known:
        raise ValueError(f"no warm-up {key!r}; there are: {', '.join(known)}.")
    asked = known[key]

    def answered(letter: str) -> str:
        right = forms.LETTERS.index(letter) == asked.right
        ledger_file.add("answered", key, letter=letter, right=right)
        return f"{'✔ Right' if right else '✘ No'}: {asked.solution}"

    if answer is not None:
        print(answered(answer))
    else:
        code = f'warmup("{key}", answer="...")'
        forms.show_quiz(asked.question, asked.options, answered, asked.solution, code=code)


@dataclass(frozen=True, slots=True)
class Warmup:
    """A question with its right answer."""

    key: str
    question: str
    options: tuple[str, ...]
    right: int
    """Index of the right option."""
    reason: str

    @property
    def solution(self) -> str:
        """The right option and why it is right."""
        return f"{forms.LETTERS[self.right]}) {self.options[self.right]}. {self.reason}"


def warmups() -> dict[str, Warmup]:
    """Load the warm-ups of all lessons, by key."""
    files = sorted((Path(__file__).parent / "lessons").glob("*/warmups.json"))
    asked = [item for path in files for item in json.loads(path.read_text(encoding="utf-8"))]
    return {item["key"]: Warmup(**item | {"options": tuple(item["options"])}) for item in asked}


def keep(name: str, values: dict[str, Any]) -> None:
    """Keep values for later, like a case's score. They must fit into JSON."""
    ledger_file.add("kept", name, values=values)


def recall(name: str) -> dict[str, Any] | None:
    """Return what `keep` kept under the name; None if nothing was."""
    return ledger_file.load().kept.get(name)


def passed(number: str) -> None:
    """Note that an exercise's check passed."""
    ledger_file.add("passed", number)


def finished(lesson: str) -> None:
    """Note that a lesson was run to its end; its last cell calls it: `finished("01")`."""
    ledger_file.add("finished", lesson)


def _ask(key: str, question: str, *, also: tuple[str, ...], **asked: Any) -> None:
    """Note the question, unless the file has it in these words."""
    _asks[key] = also
    old = ledger_file.load().entries.get(key)
    words = question, asked.get("unit", ""), tuple(asked.get("options", ()))
    if old is None or (old.question, old.unit, old.options) != words:
        ledger_file.add("asked", key, question=question, **asked)


def _attempt(key: str, answer: float | str, **details: Any) -> str:
    """Commit; say what became of it."""
    try:
        entry = commit(key, answer, **details)
    except ValueError as error:
        return f"not committed: {error}"
    return forms.state_of(entry)


def _show(key: str, *, skippable: bool = False) -> None:
    entry = ledger_file.entry(key)
    if entry.question == key and not entry.options:
        print(f"Run the cell that asks question {key} first.")
        return

    def on_commit(given: dict[str, str]) -> str:
        """Commit what the fields hold; say what became of it.

        Raises:
            ValueError: It cannot be.
        """
        if entry.options:
            return forms.state_of(commit(key, given["answer"], reason=given.get("reason", "")))
        ends = [given.get(end, "").strip() for end in ("low", "high")]
        figures = [_parse(end, entry.unit) if end else None for end in ends]
        if (figures[0] is None) != (figures[1] is None):
            raise ValueError("a range has two ends: fill both, or none.")
        value = _parse(given["answer"], entry.unit)
        return forms.state_of(commit(key, value, low=figures[0], high=figures[1]))

    on_skip = (lambda: ledger_file.add("skipped", key)) if skippable else None
    forms.show_question(entry, also=_asks.get(key, ()), on_commit=on_commit, on_skip=on_skip)


def _parse(text: str, unit: str) -> float:
    """Read a figure as people type it: `250`, `2.5e2`, `1,000`, `250 µs`.

    Raises:
        ValueError: It is no number, or names another unit, or has a comma that may be a decimal
            one.
    """
    plain = text.strip()
    if grouped := _THOUSANDS.match(plain):
        plain = re.sub(r"[,\s]", "", grouped[0]) + plain[grouped.end() :]
    match = _NUMBER.fullmatch(plain)
    if match is None or match[2].startswith(","):
        hint = " A decimal comma is a point here." if "," in text else ""
        raise ValueError(f"'{text}' is not a number. Write it like 250 or 2.5e2 (in {unit}).{hint}")
    if match[2] and _plain(match[2]) != _plain(unit):
        raise ValueError(f"the answer is asked in {unit}, not in '{match[2]}'.")
    return float(match[1])


def _plain(unit: str) -> str:
    return unit.replace("μ", "u").replace("µ", "u").replace("×", "x").strip().lower()
