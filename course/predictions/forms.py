"""The forms in which a learner commits, and how a result is shown beside what was committed.

Every form has three shapes: widgets, where there are some; HTML, where a page is only read; and a
line of code, which does the same. Each field has a label of its own; Enter commits.
"""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course.predictions import ledger_file
from course.predictions.figures import LETTERS, beside, in_words, lettered, read, written
from course.predictions.ledger_file import Entry
from course.runs import in_notebook

if TYPE_CHECKING:
    from course.predictions.form import Form

_BOX = (
    "border-left:4px solid #0072b2;padding:.6em 1em;margin:.4em 0;max-width:46em;"
    "background:rgba(0,114,178,.07)"
)
_RESULT_NAMES = {
    "MEASURED": "here and now",
    "EMULATED": "here and now",
    "RECORDED": "the recorded run",
    "MODELLED": "the model",
    "PUBLISHED": "the published figure",
}
"""Tier -> what a result of it is called."""
_live: dict[str, "weakref.WeakSet[Form]"] = {}
"""Key of a question -> the forms of it that are shown: they all say the same."""


@dataclass(frozen=True, slots=True)
class Quiz:
    """A question that has a right answer: a warm-up, or one of the inventory."""

    key: str
    question: str
    options: list[str]
    right: int  # index of the right option
    reason: str = ""

    @property
    def solution(self) -> str:
        """The right option and why it is right."""
        return f"{lettered(self.options)[LETTERS[self.right]]}. {self.reason}"

    def is_right(self, letter: str) -> bool:
        """Tell whether an answer is right; `ValueError` where it is no letter of an option."""
        return list(lettered(self.options)).index(letter) == self.right


def show_question(entry: Entry, *, gated: bool = False) -> None:
    """Display the form of a prediction or a vote; where a gate shows it, with a way past it."""
    kind, code = "prediction", f'predict("{entry.key}", value=...)'
    if entry.options:
        kind, code = "vote", f'choose("{entry.key}", answer="a", reason="...")'
    unit = f" [{entry.unit}]" if entry.unit else ""
    options = [f"  {option}" for option in lettered(entry.options).values()]
    lines = [f"Your {kind}? {entry.question}{unit}", *options, f"In code: {code}"]
    if gated:
        lines.append(f'To see it without: gate("{entry.key}", skip=True)')
    display(
        "\n".join(lines),
        lambda: filled("question.html", entry=entry, also=entry.also, kind=kind, code=code),
        lambda: _question_form(entry, kind, gated=gated),
        asks=entry.key,
    )


def show_quiz(
    quiz: Quiz, answered: Callable[[str], str], *, heading: str, folded: str, code: str
) -> None:
    """Display a question that has a right answer.

    `answered` gets the letter that was chosen, and returns what to say; `folded` stands in the fold
    of a page that is only read.
    """
    options = [f"  {option}" for option in lettered(quiz.options).values()]
    display(
        "\n".join([f"{heading} {quiz.question}", *options, f"In code: {code}"]),
        lambda: filled("quiz.html", quiz=quiz, heading=heading, folded=folded),
        lambda: _quiz_form(quiz, answered, heading),
        asks="",
    )


def show_result(entry: Entry) -> None:
    """Display what was committed, what a model says, and the result."""
    rows = _rows(entry)
    verdict = _verdict(entry, beside(entry.answer, entry.measured))
    lines = [f"  {name:<22}{value}  {note}".rstrip() for name, value, note in rows]
    display(
        "\n".join([entry.question, *lines, f"  {verdict}"]),
        lambda: filled("result.html", entry=entry, rows=rows, verdict=verdict),
        tells=entry.key,
    )


def display(
    plain: str, page: Callable[[], str], form: Callable[[], Any] = lambda: None, **role: str
) -> None:
    """Display what fits the place: widgets in a notebook, HTML on a page to read, else text.

    Of which question it asks or tells (`role`) stands in the output's metadata, for the edition.
    """
    if not in_notebook():
        print(plain)
        return
    from labkit.show import widgets

    box = None if _reading() else form()
    widgets.display(box, static=page(), plain=plain, metadata={"course": role})


def filled(template: str, **values: Any) -> str:
    """Fill a template of this folder with values, in the box that all our forms have."""
    import jinja2

    templates = jinja2.Environment(loader=jinja2.PackageLoader(__package__, ""), autoescape=True)
    return templates.get_template(template).render(box=_BOX, **values)


def _reading() -> bool:
    return bool(os.environ.get("LABKIT_STATIC"))  # a page to read has no kernel behind its forms


def state_of(entry: Entry) -> str:
    """Say whether something is committed, and whether it may still be changed."""
    if entry.after is not None:
        return f"noted, but the result has been seen: {in_words(entry, 'after')}"
    if entry.answer is not None:
        text = f"committed: {in_words(entry).rstrip('.')}"
        if entry.measured is not None:
            return f"{text}. The result has been seen: another answer is noted beside it."
        if entry.second is not None:
            return f"{text}. After talk: {in_words(entry, 'second').rstrip('.')}."
        if entry.talked:
            return f"{text}. It stays. Vote again now that you have talked."
        if entry.opened:
            return f"{text}. It stays until you have seen the result."
        return f"{text}. You may correct it until you see the result."
    if entry.measured is not None:
        return "The result has been seen. What you commit now is noted beside it."
    if entry.opened:
        return "You went on without an answer. After the result you may note what you think then."
    if entry.skipped:
        return "Skipped. You may still commit until you see the result."
    return "Commit before you run on: a guess in writing is worth ten in hindsight."


def refresh(entry: Entry) -> None:
    """Make all forms of a question that are shown say the same."""
    for form in _live.get(entry.key, ()):
        form.say(_reply(entry))


def _reply(entry: Entry, more: str = "") -> Any:
    from course.predictions.form import Reply

    last, text = getattr(entry, entry.last), state_of(entry)
    if entry.committed and entry.after is None:
        text = f"✔ {text}"
    values = None
    if last is not None:
        fields = {"answer": last, "reason": entry.reason, "low": entry.low, "high": entry.high}
        values = {name: _typed(value) for name, value in fields.items()}
    return Reply(f"{text.rstrip('.')}.{more}", open=not entry.locked, values=values)


def _typed(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else written(value, 12)


def _question_form(entry: Entry, kind: str, *, gated: bool) -> Any:
    from course.predictions.form import Field, Form, Reply

    figure = Field("answer", "I expect", entry.unit, "a number")
    reason = Field("reason", "because", hint="one line", size=44, figure=False)
    ends = [Field("low", "at least"), Field("high", "at most", entry.unit)]
    rows = [] if entry.options else [("", [figure])]
    if entry.also:
        more = ("", [reason]) if entry.options else ("80 % sure that it lies between:", ends)
        rows.append(more)
    buttons = {"commit": "Commit"} | ({"skip": "Skip this question"} if gated else {})
    again = " Now run this cell again (Shift+Enter)." if gated else ""

    def act(button: str, values: dict[str, str]) -> Reply:
        try:
            if button == "skip":
                now = ledger_file.note("skipped", entry.key)
            else:
                now = ledger_file.commit(entry.key, **_answer(entry, values))
        except (ValueError, OSError) as error:
            return Reply(f"Not committed: {error}", error=True)
        refresh(now)
        return _reply(now, again)

    shown = {"options": lettered(entry.options), "rows": rows, "buttons": buttons}
    title, first = f"Your {kind}.", _reply(entry)
    form = Form("course-question-form", title, entry.question, act=act, first=first, **shown)
    _live.setdefault(entry.key, weakref.WeakSet()).add(form)
    return form


def _answer(entry: Entry, typed: dict[str, str]) -> dict[str, Any]:
    """Return what a form's fields say, as arguments of `commit`; `ValueError` where it is wrong."""
    answer = typed.get("answer", "")
    if entry.options:
        return {"answer": answer, "reason": typed.get("reason", "").strip()}
    ends = {end: text for end in ("low", "high") if (text := typed.get(end, "").strip())}
    return {name: read(text, entry.unit) for name, text in {"answer": answer, **ends}.items()}


def _quiz_form(quiz: Quiz, answered: Callable[[str], str], heading: str) -> Any:
    from course.predictions.form import Form, Reply

    def act(_: str, values: dict[str, str]) -> Reply:
        if not values.get("answer"):
            return Reply("Choose one first.", error=True)
        return Reply(answered(values["answer"]), open=False)

    shown = {"options": lettered(quiz.options), "buttons": {"commit": "Answer"}}
    return Form("course-quiz-form", heading, quiz.question, act=act, **shown)


def _rows(entry: Entry) -> list[tuple[str, str, str]]:
    result = "the evidence" if entry.options else _RESULT_NAMES.get(entry.tier, "the result")
    you = entry.reason if isinstance(entry.measured, str) else ""
    rows = [] if _reading() else [("you", in_words(entry), you)]  # a reader's is put in there
    for name, which in (("you, after talk", "second"), ("you, afterwards", "after")):
        if getattr(entry, which) is not None:
            rows.append((name, in_words(entry, which), ""))
    if entry.model is not None:
        note = f"{beside(entry.model, entry.measured)} (MODELLED)".strip()
        rows.append(("the model", in_words(entry, "model"), note))
    return [*rows, (result, in_words(entry, "measured"), entry.tier)]


def _verdict(entry: Entry, distance: str) -> str:
    """Say how the learner did, by how far the answer lies beside the result, and why."""
    sentences = [_judgement(entry, distance)]
    if entry.because:
        sentences.append(f"{entry.because[:1].upper()}{entry.because[1:].rstrip('.')}.")
    if entry.committed and entry.options and entry.disturbed:
        used = f"Other programs used {entry.others:.1f} CPUs meanwhile."
        sentences.append(f"({used} If your pictures do not show this, a calm run does.)")
    return " ".join(filter(None, sentences))


def _judgement(entry: Entry, distance: str) -> str:
    if not entry.committed:
        if _reading():
            return ""
        return "You skipped this one." if entry.skipped else "Nothing was committed beforehand."
    if entry.options:
        return "Your vote stands." if entry.right else "The evidence is against your vote."
    if entry.explained:
        return (
            f"Not judged: other programs used {entry.others:.1f} CPUs meanwhile, and may have made "
            "this figure what it is. Close what you can, and run the cell again."
        )
    if not distance:
        if entry.answer == entry.measured:  # no ratio makes sense, as for the number of a call
            return "Exactly so."
        return f"You said {in_words(entry)}; it is {in_words(entry, 'measured')}."
    if entry.disturbed:
        explained = f"more than the other programs explain, which used {entry.others:.1f} CPUs"
        return f"{distance}: {explained}."
    miss, inside = entry.miss, entry.inside
    if miss < 1.1:
        text = "Within 10 %: well predicted."
    elif miss < 2:
        text = f"{distance}: the right order of magnitude."
    elif inside:
        text = f"{distance}."
    elif miss < 10:
        text = f"{distance}: what did your reasoning leave out?"
    else:
        text = f"{distance}: something essential differs from what you thought."
    if inside is None:
        return text
    return f"Inside your range. {text}" if inside else f"{text} Outside your range."
