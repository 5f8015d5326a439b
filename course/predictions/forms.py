"""The forms in which a learner commits, and how a result is shown beside what was committed.

Every form has three shapes: widgets, where there are some; HTML, where a page is only read; and a
line of code, which does the same. Each field has a label of its own; Enter commits.
"""

import html
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course import ledger_file
from course.ledger_file import LETTERS, Entry, lettered

_BOX = (
    "border-left:4px solid #0072b2;padding:.6em 1em;margin:.4em 0;max-width:46em;"
    "background:rgba(0,114,178,.07)"
)
_QUESTION = """\
<div class="course-question" style="{{ box }}" data-key="{{ entry.key }}" \
data-unit="{{ entry.unit }}" data-also="{{ also }}"><b>Your {{ kind }}.</b> {{ entry.question }}
{%- if entry.unit %} [{{ entry.unit }}]{% endif %}
{%- if entry.options %}<ol type="a">
{%- for option in entry.options %}<li>{{ option }}</li>{% endfor %}</ol>{% endif %}
<p class="course-code-form"><small>In code: <code>{{ code }}</code></small></p></div>"""
_QUIZ = """\
<div class="course-quiz" style="{{ box }}"><b>{{ heading }}</b> {{ quiz.question }}<ol type="a">
{%- for option in quiz.options %}<li>{{ option }}</li>{% endfor %}</ol>
<details><summary>The answer</summary>{{ folded }}</details></div>"""
_RESULT = """\
{% set cell = "padding:.15em 1.2em .15em 0;text-align:left;background:none" -%}
<div class="course-result" data-key="{{ entry.key }}" style="{{ box }}">
<div>{{ entry.question }}</div><div class="course-you"></div>
<table style="border:none;margin:.3em 0"><tbody>{% for name, value, note in rows %}
<tr style="background:none"><th scope="row" style="{{ cell }};font-weight:normal">{{ name }}</th>
<td style="{{ cell }}"><b>{{ value }}</b></td><td style="{{ cell }}">{{ note }}</td></tr>
{%- endfor %}</tbody></table><div>{{ verdict }}</div></div>"""
_TALL = "display: flex; flex-flow: row-reverse; justify-content: left; height: auto"
_RESULT_NAMES = {
    "MEASURED": "here and now",
    "EMULATED": "here and now",
    "RECORDED": "the recorded run",
    "MODELLED": "the model",
    "PUBLISHED": "the published figure",
}
"""Tier -> what a result of it is called."""
_FIGURE = re.compile(
    r"([-+]?(?:[1-9]\d{0,2}(?:[,\u2009\u202f ]\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"\s*([^\s\d,].*)?"
)
"""A number, perhaps in groups of three digits, and perhaps a unit."""


@dataclass(frozen=True, slots=True)
class Quiz:
    """A question that has a right answer: a warm-up, or one of the inventory."""

    key: str
    question: str
    options: list[str]
    right: int
    """Index of the right option."""
    reason: str = ""

    @property
    def solution(self) -> str:
        """The right option and why it is right."""
        return f"{lettered(self.options)[LETTERS[self.right]]}. {self.reason}"

    def answer(self, letter: str) -> bool:
        """Note an answer in the learner's file; return whether it is right.

        Raises:
            ValueError: It is no letter of an option.
        """
        right = list(lettered(self.options)).index(letter) == self.right
        ledger_file.add("answered", self.key, letter=letter, right=right)
        return right


def show_question(entry: Entry, *, also: str, skippable: bool = False) -> None:
    """Display the form of a prediction or a vote; outside a notebook print it.

    Args:
        entry: The question.
        also: What to ask besides the answer: `range`, `reason` or nothing.
        skippable: Whether a gate shows it: then there is a way past it.
    """
    kind = "vote" if entry.options else "prediction"
    code = f'predict("{entry.key}", ..., value=...)'
    if entry.options:
        code = f'choose("{entry.key}", ..., answer="a", reason="...")'
    unit = f" [{entry.unit}]" if entry.unit else ""
    lines = [f"Your {kind}? {entry.question}{unit}"]
    lines += [f"  {option}" for option in lettered(entry.options).values()]
    lines += [f"In code: {code}"]
    if skippable:
        lines.append(f'To see it without: gate("{entry.key}", skip=True)')
    _display(
        "\n".join(lines),
        lambda: _page(_QUESTION, entry=entry, also=also, kind=kind, code=code),
        lambda: _question_form(entry, kind, also, skippable=skippable),
    )


def show_quiz(
    quiz: Quiz, answered: Callable[[str], str], *, heading: str, folded: str, code: str
) -> None:
    """Display a question that has a right answer.

    Args:
        quiz: The question.
        answered: Gets the letter that was chosen; returns what to say.
        heading: What stands before the question.
        folded: What stands in the fold where there are no widgets.
        code: How to answer in code.
    """
    options = [f"  {option}" for option in lettered(quiz.options).values()]
    _display(
        "\n".join([f"{heading} {quiz.question}", *options, f"In code: {code}"]),
        lambda: _page(_QUIZ, quiz=quiz, heading=heading, folded=folded),
        lambda: _quiz_form(quiz, answered, heading),
    )


def show_result(entry: Entry) -> None:
    """Display what was committed, what a model says, and the result."""
    rows, verdict = _rows(entry), _verdict(entry)
    lines = [f"  {name:<22}{value}  {note}".rstrip() for name, value, note in rows]
    _display(
        "\n".join([entry.question, *lines, f"  {verdict}"]),
        lambda: _page(_RESULT, entry=entry, rows=rows, verdict=verdict),
    )


def _display(plain: str, page: Callable[[], str], form: Callable[[], Any] = lambda: None) -> None:
    """Display what fits the place: widgets in a notebook, HTML on a page to read, else text."""
    if not in_notebook():
        print(plain)
        return
    from labkit.show import widgets

    widgets.display(None if _reading() else form(), static=page(), plain=plain)


def _page(template: str, **values: Any) -> str:
    import jinja2

    return jinja2.Environment(autoescape=True).from_string(template).render(box=_BOX, **values)


def in_notebook() -> bool:
    """Tell whether there is a notebook to display in."""
    return "IPython" in sys.modules and hasattr(sys.modules["IPython"].get_ipython(), "kernel")


def _reading() -> bool:
    return bool(os.environ.get("LABKIT_EDITION"))  # a page to read has no kernel behind its forms


def state_of(entry: Entry) -> str:
    """Say whether something is committed."""
    if entry.after is not None:
        return f"noted, but the result has been seen: {entry.in_words('after')}"
    if entry.committed:
        return f"committed: {entry.in_words()}"
    return "Commit before you run on: a guess in writing is worth ten in hindsight."


def _question_form(entry: Entry, kind: str, also: str, *, skippable: bool) -> Any:
    import ipywidgets

    question = ipywidgets.HTML(f"<b>Your {kind}.</b> {html.escape(entry.question)}")
    if entry.options:
        fields = {"answer": _choice(entry.options, entry.answer)}
        if also:
            fields["reason"] = _text("because", "one line", value=entry.reason, width="40em")
        asked = list(fields.values())
    else:
        fields = {"answer": _text("I expect", "a number", value=entry.answer)}
        unit = ipywidgets.HTML(html.escape(entry.unit), layout={"margin": "2px 1em 2px 2px"})
        asked = [fields["answer"], unit]
        if also:
            fields["low"] = _text("at least", "80 % sure", value=entry.low)
            fields["high"] = _text("at most", "80 % sure", value=entry.high)
            asked += [fields["low"], fields["high"]]
        asked = [ipywidgets.HBox(asked, layout={"flex_flow": "wrap"})]
    button = ipywidgets.Button(description="Commit", button_style="primary")
    button.tooltip = "Write this answer down; it is locked until you have seen the result"
    skip = ipywidgets.Button(description="Skip this question")
    skip.tooltip = "See the result without an answer; the ledger notes that you skipped"
    state = ipywidgets.HTML(html.escape(state_of(entry)))
    state.add_class("course-state")
    run_again = " Now run this cell again." if skippable else ""

    def lock() -> None:
        for widget in (*fields.values(), button, skip):
            widget.disabled = True

    def commit(*_: Any) -> None:
        try:
            new = _commit(entry, {name: field.value or "" for name, field in fields.items()})
        except ValueError as error:
            state.value = f"Not committed: {html.escape(str(error))}"
            return
        state.value = f"✔ {html.escape(state_of(new).rstrip('.'))}.{run_again}"
        lock()

    def skip_it(*_: Any) -> None:
        ledger_file.add("skipped", entry.key)
        state.value = f"Skipped.{run_again}"
        lock()

    if entry.committed and entry.measured is None:
        lock()
    button.on_click(commit)
    skip.on_click(skip_it)
    for field in fields.values():
        if isinstance(field, ipywidgets.Text):
            field.on_msg(lambda _, content, __: content.get("event") == "submit" and commit())
    buttons = ipywidgets.HBox([button, skip] if skippable else [button])
    return boxed([question, *asked, buttons, state], "course-question-form")


def _commit(entry: Entry, given: dict[str, str]) -> Entry:
    """Commit what the fields hold.

    Raises:
        ValueError: It cannot be.
    """
    if entry.options:
        return ledger_file.commit(entry.key, given["answer"], reason=given.get("reason", ""))
    low, high = (
        figure(given[end], entry.unit) if given.get(end, "").strip() else None
        for end in ("low", "high")
    )
    return ledger_file.commit(entry.key, figure(given["answer"], entry.unit), low=low, high=high)


def figure(text: str, unit: str) -> float:
    """Read a figure as people type it: `250`, `2.5e2`, `1,000`, `250 µs`.

    Raises:
        ValueError: It is no number, or names another unit, or has a comma that may be a decimal
            one.
    """
    match = _FIGURE.fullmatch(text.strip())
    if match is None:
        hint = " A decimal comma is a point here." if "," in text else ""
        raise ValueError(f"'{text}' is not a number. Write it like 250 or 2.5e2 (in {unit}).{hint}")
    if match[2] and _ascii(match[2]) != _ascii(unit):
        raise ValueError(f"the answer is asked in {unit}, not in '{match[2]}'.")
    return float(re.sub(r"[,\s]", "", match[1]))


def _ascii(unit: str) -> str:
    return unit.replace("μ", "u").replace("µ", "u").replace("×", "x").strip().lower()


def _quiz_form(quiz: Quiz, answered: Callable[[str], str], heading: str) -> Any:
    import ipywidgets

    question = ipywidgets.HTML(f"<b>{heading}</b> {html.escape(quiz.question)}")
    choice, state = _choice(quiz.options, None), ipywidgets.HTML()
    button = ipywidgets.Button(description="Answer", button_style="primary")

    def on_click(_: Any) -> None:
        if choice.value is None:
            state.value = "Choose one first."
            return
        choice.disabled = button.disabled = True
        state.value = html.escape(answered(choice.value))

    button.on_click(on_click)
    return boxed([question, choice, button, state], "course-quiz-form")


def _choice(options: Sequence[str], chosen: str | None) -> Any:
    import ipywidgets

    return ipywidgets.RadioButtons(
        options=[(text, letter) for letter, text in lettered(options).items()],
        value=chosen,
        layout={"width": "auto", "max_width": "46em"},
    )


def _text(label: str, placeholder: str, *, value: float | str | None, width: str = "14em") -> Any:
    import ipywidgets

    text = f"{value:g}" if isinstance(value, int | float) else value or ""
    return ipywidgets.Text(
        value=text, placeholder=placeholder, description=label,
        style={"description_width": "5em"}, layout={"width": width},
    )  # fmt: skip


def boxed(rows: list[Any], name: str) -> Any:
    """Frame a form's rows."""
    import ipywidgets

    style = ipywidgets.HTML(f"<style>.widget-radio-box > label {{{_TALL}}}</style>")
    layout = {"border_left": "4px solid #0072b2", "padding": "0.4em 1em"}
    return ipywidgets.VBox([style, *rows], layout=layout).add_class(name)


def _rows(entry: Entry) -> list[tuple[str, str, str]]:
    result = "the evidence" if entry.options else _RESULT_NAMES.get(entry.tier, "the result")

    def ratio(value: float | str | None) -> str:
        if value is None or isinstance(value, str) or not entry.measured:
            return ""
        return f"{value / entry.measured:.2f} × {result}"

    you = entry.reason if isinstance(entry.measured, str) else ratio(entry.answer)
    rows = [] if _reading() else [("you", entry.in_words(), you)]  # a reader's is put in there
    if entry.after is not None:
        rows.append(("you, afterwards", entry.in_words("after"), ""))
    if entry.model is not None:
        rows.append(("the model", entry.in_words("model"), f"{ratio(entry.model)} (MODELLED)"))
    return [*rows, (result, entry.in_words("measured"), entry.tier)]


def _verdict(entry: Entry) -> str:
    """Say in a sentence or two how the learner did, and why."""
    sentences = [_judgement(entry)]
    if entry.because:
        sentences.append(f"{entry.because[:1].upper()}{entry.because[1:].rstrip('.')}.")
    if entry.committed and entry.options and entry.disturbed:
        sentences.append(
            f"(Other programs used {entry.others:.1f} CPUs meanwhile: where your own pictures "
            "do not show it, a calm run does.)"
        )
    return " ".join(filter(None, sentences))


def _judgement(entry: Entry) -> str:
    if not entry.committed:
        if _reading():
            return ""
        return "You skipped this one." if entry.skipped else "Nothing was committed beforehand."
    if entry.options:
        return "Your vote stands." if entry.right else "The evidence is against your vote."
    if entry.disturbed:
        return f"Not judged: other programs used {entry.others:.1f} CPUs meanwhile."
    if not entry.counts:
        return "Compare the two figures yourself: a ratio makes no sense for them."
    side, miss = "above" if entry.answer > entry.measured else "below", entry.miss
    if miss < 1.1:
        text = "Within 10 %: well predicted."
    elif miss < 2:
        text = f"{miss:.2f} times {side}: the right size."
    elif entry.inside:
        text = f"{miss:.1f} times {side}."
    elif miss < 10:
        text = f"{miss:.1f} times {side}: what did your reasoning leave out?"
    else:
        text = f"{miss:.3g} times {side}: something essential is different from what you thought."
    if entry.inside is not None:
        text = f"Inside your range. {text}" if entry.inside else f"{text} Outside your range."
    return text
